"""What a run came to, in words and as data."""

from collbench.outcome import Outcome
from collbench.refinement import AGREE


def test_sizes_whose_neighbours_agree_are_no_loss():
    """They are counted apart from what the budget left out, and a run of nothing else is not empty."""
    came = Outcome(launches=1)
    came.take({"kind": "skipped", "reason": AGREE})
    came.take({"kind": "skipped", "reason": "the time budget was spent"})
    assert (came.agreed, came.skipped) == (1, 1)
    assert not came.is_empty
    assert came.words(0) == (
        "0 cases measured, 1 left out (budget spent), 1 not needed (neighbours agree), 1 launches"
    )
    assert came.to_json(3)["skipped"] == 4


def test_a_run_that_measured_nothing_is_empty_but_not_one_that_was_complete():
    """Going on with a complete run starts nothing, or repeats only."""
    assert Outcome(launches=2).is_empty
    assert not Outcome().is_empty
    assert not Outcome(launches=1, repeated=1).is_empty
    assert (
        Outcome(launches=1, repeated=1).words(0).startswith("0 cases measured, 1 disturbed launch repeated")
    )


def test_second_launches_of_winners_are_named_and_measure_the_same_cases():
    came = Outcome(launches=3, confirming=1)
    came.take({"kind": "cell"})
    with came.the_same_cases():
        came.take({"kind": "cell"})
        came.take({"kind": "skipped", "reason": "the time budget was spent"})
    assert came.words(0) == "1 cases measured, 3 launches (1 to confirm winners)"
    assert came.to_json(0)["confirming"] == 1
    assert not Outcome(launches=1, confirming=1).is_empty
