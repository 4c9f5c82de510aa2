"""Which launches meet: states by the probes, pairs, and partners anew for those that lost theirs."""

import numpy as np
import pytest

from collbench import pairing
from collbench.pairing import LaunchState, Sample, classify, match, usable
from collbench.stats import signed_rank_p

CALM = LaunchState(0, probes=(45.0, 44.0))
OTHER = LaunchState(1, probes=(195.0, 190.0))
DISTURBED = LaunchState(0, disturbed=True, probes=(45.0, 195.0))


def side(*states, ranks=2, first=0):
    """Samples of one environment: repetition n ran in the n-th state and took n + 1 seconds."""
    return [Sample((ranks, first + n), n + 1.0, s) for n, s in enumerate(states)]


def test_probe_that_moved_by_more_than_a_state_spans_marks_a_launch_disturbed():
    """Before and after in two states: foreign load, or a jump. The probe's own scatter inside a state is none."""
    states = classify([
        {"probe": {"pingpong_ns": 45}, "probe_after": {"pingpong_ns": 50}},
        {"probe": {"pingpong_ns": 45}, "probe_after": {"pingpong_ns": 28}},
        {"probe": {"pingpong_ns": 45}, "probe_after": {"pingpong_ns": 195}},
        {"probe": {"pingpong_ns": 195}, "probe_after": {"pingpong_ns": 190}},
        {"probe": {"pingpong_ns": None}},
    ])  # fmt: skip
    assert [s.disturbed for s in states] == [False, False, True, False, False]
    assert states[3].state not in (states[0].state, None)
    assert states[4] == LaunchState(None)


def test_a_pair_is_judged_by_its_own_probes():
    """Two launches that are alike are a pair, wherever a state found over all launches happens to end."""
    low, high = LaunchState(0, probes=(50.0, 52.0)), LaunchState(1, probes=(56.0, 54.0))
    assert match(side(low), side(high)).state == "same"
    assert match(side(CALM), side(OTHER)).state == "different"


def test_survivors_of_two_disturbed_pairs_are_paired():
    """A of repetition 1 and B of repetition 2 lost their partners: they meet; nothing is used twice."""
    found = match(side(CALM, CALM, DISTURBED, CALM), side(CALM, DISTURBED, CALM, CALM))
    assert list(zip(found.base, found.new, strict=True)) == [(1.0, 1.0), (4.0, 4.0), (2.0, 3.0)]
    assert found.left_out == 2


@pytest.mark.parametrize(
    ("base", "new"),
    [
        ((CALM, CALM, DISTURBED), (CALM, DISTURBED, OTHER)),
        (
            (CALM, CALM, *[CALM] * pairing.REPAIR_REACH, DISTURBED),
            (CALM, DISTURBED, *[CALM] * pairing.REPAIR_REACH, CALM),
        ),
    ],
    ids=["another state", "too far away"],
)
def test_survivors_that_cannot_meet_stay_out(base, new):
    """Another machine state, or more repetitions away than the reach: left out."""
    found = match(side(*base), side(*new))
    assert len(found.base) == sum(x is CALM and y is CALM for x, y in zip(base, new, strict=True))


def test_each_survivor_meets_one_other():
    """Two survivors of one side and one of the other make one pair, the nearest."""
    found = match(side(CALM, CALM, DISTURBED, CALM), side(CALM, DISTURBED, CALM, DISTURBED))
    assert len(found.base) == 2
    assert (found.base[1], found.new[1]) in ((2.0, 3.0), (4.0, 3.0))


def test_rank_counts_are_never_crossed():
    """A launch of another rank count is no partner, however near."""
    base = [*side(CALM), *side(CALM, ranks=4, first=1)]
    new = [*side(CALM), *side(CALM, ranks=8, first=1)]
    assert match(base, new).base == (1.0,)


def launch(variant, repetition, *probes, **facts):
    return {"ranks": 2, "repetition": repetition, "variant": variant,
            "probe": {"pingpong_ns": probes[0]}, "probe_after": {"pingpong_ns": probes[-1]}, **facts}  # fmt: skip


def test_usable_counts_what_match_would_pair():
    """Survivors count, proof launches do not; with three environments the fewest pairs with the base count."""
    lines = [
        launch("A", 0, 45), launch("B", 0, 195), launch("B", 1, 45), launch("A", 1, 45, 195),
        launch("A", 2, 45), launch("B", 2, 44), launch("A", 0, 45, purpose="proof"),
    ]  # fmt: skip
    assert usable(lines, ["A", "B"]) == {2: 2}
    assert usable([*lines, launch("C", 2, 46)], ["A", "B", "C"]) == {2: 1}
    assert usable([launch("A", 0, 45)], ["A", "B"]) == {2: 0}


def simulated(source, repetitions, drift):
    """Both sides of a machine against itself: jumps between two states, disturbed launches, drift, scatter."""
    sides = {"A": [], "B": []}
    state, moved = 0, 0.0
    for repetition in range(repetitions):
        for name in ("AB", "BA")[repetition % 2]:
            jump = source.random() < 0.2
            machine = LaunchState(state, disturbed=jump, probes=((45.0, 195.0)[state],) * 2)
            state = 1 - state if jump else state
            moved += drift + source.normal(0, 0.01)
            slow = 0.7 * machine.state + (source.random() if jump else 0.0)
            time_s = float(np.exp(moved + slow + source.normal(0, 0.02)))
            sides[name].append(Sample((2, repetition), time_s, machine))
    return sides["A"], sides["B"]


@pytest.mark.parametrize("drift", [0.0, 0.004])
def test_new_partners_raise_no_false_alarms(drift, monkeypatch):
    """A machine against itself, 1500 times: at most 5 % alarms (and what chance allows), with more pairs than before."""
    source = np.random.default_rng(3)
    runs = [simulated(source, 14, drift) for _ in range(1500)]

    def alarms():
        found = [match(*run) for run in runs]
        told = [
            signed_rank_p(np.log(np.divide(m.new, m.base)).tolist()) <= 0.05
            for m in found
            if len(m.base) >= 6
        ]
        return sum(told) / len(told), len(told), sum(len(m.base) for m in found)

    share, usable_runs, pairs = alarms()
    monkeypatch.setattr(pairing, "REPAIR_REACH", 0)
    _, fewer_runs, fewer_pairs = alarms()
    assert share <= 0.05 + 2 * (0.05 * 0.95 / usable_runs) ** 0.5
    assert pairs > fewer_pairs
    assert usable_runs > fewer_runs
