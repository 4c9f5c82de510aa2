"""The plugin's table as text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.algorithms.nccl import ALGORITHMS, TUNABLE, protocols
from collbench.backends.plugin import grammar
from collbench.backends.plugin.grammar import TunerRule
from collbench.errors import UsageError

RULES = (
    TunerRule("allreduce", (0, 65536), (8, 8), (1, 1), "tree", "ll"),
    TunerRule("allreduce", (65537, None), (8, 8), (1, 1), "ring", "simple", 16),
    TunerRule("allreduce", (0, 262144), (16, 31), (2, 3), "tree", "ll128"),
    TunerRule("bcast", (0, None), (8, None), (0, None), "default"),
)


def test_the_rendered_text_is_the_documented_one(golden):
    """Header, versions and every form of a range."""
    golden(
        "nccl_tuner_table.txt",
        grammar.render(RULES, {"nccl": "2.32.3", "driver": "580.65.06"}, ["from a\ntest"]),
    )


def test_the_documentation_shows_a_table_that_parses(pytestconfig):
    """The example in docs/nccl.md is a valid table."""
    text = (pytestconfig.rootpath / "docs" / "nccl.md").read_text()
    example = "collbench-nccl-table" + text.split("```\ncollbench-nccl-table")[1].split("```")[0]
    assert len(grammar.parse(example).rules) == 5


def test_find_says_what_the_plugin_would_take():
    """Inclusive ends of bytes, ranks and nodes; None where NCCL's choice stays."""
    table = grammar.TunerTable(RULES)
    assert grammar.find(table, "allreduce", 65536, 8, 1) == RULES[0]
    assert grammar.find(table, "allreduce", 65537, 8, 1) == RULES[1]
    assert grammar.find(table, "allreduce", 8, 31, 3) == RULES[2]
    assert grammar.find(table, "allreduce", 8, 32, 3) is None
    assert grammar.find(table, "reduce", 8, 8, 1) is None


def test_two_rules_for_one_call_are_refused():
    """Also when their shapes are written differently."""
    with pytest.raises(UsageError, match="cover the same call"):
        grammar.render((RULES[0], TunerRule("allreduce", (100, 200), (4, 9), (0, None), "ring", "ll")))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (TunerRule("alltoall", (0, 1), (8, 8), (1, 1), "ring", "ll"), "alltoall"),
        (TunerRule("bcast", (0, 1), (8, 8), (1, 1), "tree", "ll"), "no algorithm 'tree' for bcast"),
        (TunerRule("allreduce", (0, 1), (8, 8), (1, 1), "nvls", "ll"), "cannot run with protocol 'll'"),
        (TunerRule("allreduce", (0, 1), (8, 8), (1, 1), "ring"), "has no protocol None"),
        (TunerRule("allreduce", (0, 1), (8, 8), (1, 1), "ring", "ll", 99), "channels 99"),
        (TunerRule("allreduce", (0, 1), (8, 8), (1, 1), "default", "ll"), "leaves NCCL alone"),
        (TunerRule("allreduce", (0, 1), (8, 8), (1, 1), "symmetric", None), "no algorithm 'symmetric'"),
    ],
)
def test_what_nccl_cannot_follow_is_refused(rule, words):
    """The message names the value."""
    with pytest.raises(UsageError, match=words):
        grammar.render([rule])


_PAIRS = sorted({(r.collective, r.name, p) for r in ALGORITHMS for p in protocols(r.collective, r.name)})
_SPANS = st.tuples(st.integers(0, 2**20), st.none() | st.integers(0, 2**20)).map(
    lambda s: (s[0], None if s[1] is None else s[0] + s[1])
)


@given(st.sampled_from(_PAIRS), _SPANS, _SPANS, _SPANS, st.none() | st.integers(1, 64))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_what_is_rendered_reads_back(pair, nbytes, ranks, nodes, channels):
    """Rendering and parsing are inverse."""
    rule = TunerRule(pair[0], nbytes, ranks, nodes, pair[1], pair[2], channels)
    assert grammar.parse(grammar.render([rule], {"net": "x.so"})) == grammar.TunerTable(
        (rule,), {"net": "x.so"}
    )


def test_every_tunable_collective_has_a_ring():
    """Ring is NCCL's one algorithm for everything."""
    assert all(protocols(name, "ring") == ("ll", "ll128", "simple") for name in TUNABLE)
