"""What ran on each side: where algorithms are shown to differ, and what is refused before anything is timed."""

import pytest

from collbench import ran
from collbench.errors import UsageError

RING = {"status": "proven", "effective": "ring"}
LINEAR = {"status": "contradicted", "effective": "linear"}


def key(asked, collective="allreduce"):
    return f"{collective}|2|openmpi|{asked}|small|float32|out"


def test_algorithms_differ_only_where_no_candidate_is_common():
    """Evidence that cannot tell ring from chain does not differ from ring; unknown differs from nothing."""
    assert ran.differ(frozenset({"ring"}), frozenset({"linear"}))
    assert not ran.differ(frozenset({"ring"}), frozenset({"ring", "chain"}))
    assert not ran.differ(frozenset({"ring"}), None)
    assert ran.words(frozenset({"ring", "chain"})) == "chain or ring"
    assert ran.words(None) is None


def test_sizes_with_the_same_change_share_a_sentence():
    """One sentence a collective, rank count and change; what was asked for is named unless it is the default."""
    cells = [
        ({"collective": "bcast", "ranks": 8, "nbytes": 65536, "algorithm": "default"}, "binomial", "ring"),
        ({"collective": "bcast", "ranks": 8, "nbytes": 1 << 20, "algorithm": "default"}, "binomial", "ring"),
        ({"collective": "bcast", "ranks": 8, "nbytes": 8, "algorithm": "chain"}, "chain", "ring"),
    ]
    assert ran.findings(("A", "B"), cells) == [
        "bcast 8 ranks 64 KiB, 1 MiB: A ran binomial, B ran ring",
        "bcast 8 ranks 8 B as chain: A ran chain, B ran ring",
    ]


def test_an_algorithm_that_runs_in_one_environment_only_is_refused():
    """Asked to run ring, one does and the other does not: named with both, in either direction."""
    for first, second in ((RING, LINEAR), (LINEAR, RING)):
        with pytest.raises(
            UsageError, match=r"allreduce on 2 ranks was asked to run ring: A ran \w+, B ran \w+"
        ):
            ran.check_proofs({"A": {key("ring"): first}, "B": {key("ring"): second}}, "A")


@pytest.mark.parametrize(
    "proofs",
    [
        {"A": {key("default"): RING}, "B": {key("default"): LINEAR}},
        {"A": {key("ring"): LINEAR}, "B": {key("ring"): LINEAR}},
        {"A": {key("ring"): RING}, "B": {key("chain"): LINEAR}},
        {"A": {key("ring"): RING}, "B": {key("ring"): {"status": "unknown", "effective": None}}},
        {"B": {key("ring"): LINEAR}},
    ],
    ids=[
        "the default may change",
        "the same on both",
        "nothing in common",
        "unknown",
        "no evidence of the base",
    ],
)
def test_what_does_not_mix_is_not_refused(proofs):
    """Only a shown difference of what was asked for by name is refused."""
    ran.check_proofs(proofs, "A")
