"""Records and the lines of a run file are each other's image."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.collectives import COLLECTIVES
from collbench.records import ITEMSIZE, Case, Cell, Evidence, Measurement, Rule, algorithm_label

common = settings(deadline=None, derandomize=True, max_examples=100)

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12)
params = st.dictionaries(names, st.integers(0, 1 << 40) | names, max_size=3).map(
    lambda d: tuple(sorted(d.items()))
)
cells = st.builds(
    Cell,
    collective=st.sampled_from(sorted(COLLECTIVES)), ranks=st.integers(1, 100_000),
    ranks_per_node=st.none() | st.integers(1, 256), nbytes=st.integers(0, 1 << 50), dtype=st.sampled_from(sorted(ITEMSIZE)),
    op=st.none() | st.sampled_from(["sum", "max"]), in_place=st.booleans(), memory=st.sampled_from(["host", "cuda"]),
    groups=st.integers(1, 64),
)  # fmt: skip
cases = st.builds(
    Case, cell=cells, provider=names, algorithm=names, component=st.none() | names, params=params
)


@common
@given(cases)
def test_a_case_survives_its_json(case):
    """Case → JSON text → Case is the identity."""
    assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case


def test_a_case_with_only_what_is_indispensable():
    """An imported case may lack everything but collective, ranks, size, provider and algorithm."""
    flat = {"collective": "bcast", "ranks": 8, "nbytes": 64, "provider": "nccl", "algorithm": "ring"}
    case = Case.from_json(flat)
    assert (case.cell.dtype, case.cell.memory, case.cell.ranks_per_node, case.params) == (
        "float32",
        "host",
        None,
        (),
    )
    for key in flat:
        with pytest.raises(KeyError):
            Case.from_json({k: v for k, v in flat.items() if k != key})


times = st.floats(1e-9, 1e3)


@common
@given(cases, times, st.lists(times, max_size=5), st.none() | st.integers(1, 10**9))
def test_a_measurement_line_holds_the_case_and_the_times_exactly(case, time_s, blocks, iterations):
    """Times survive JSON bit by bit; the effective algorithm stands beside its evidence."""
    found = Evidence("proven", "operator_trace", "ring", detail="as asked")
    sent = Measurement(
        case, 3, time_s, tuple(blocks), {"p50": time_s}, iterations, evidence=found, extra={"span_s": 1.0}
    )
    line = json.loads(json.dumps(sent.to_json()))
    assert Case.from_json(line["case"]) == case
    assert (line["time_s"], line["blocks_s"], line["iterations"]) == (time_s, blocks, iterations)
    assert (line["kind"], line["launch"], line["effective"], line["span_s"]) == ("cell", 3, "ring", 1.0)
    assert line["evidence"] == {"status": "proven", "by": "operator_trace", "detail": "as asked"}


def test_labels_hold_parameters_in_one_word():
    """``ring`` stays ``ring``; parameters follow in brackets."""
    assert algorithm_label("ring", ()) == "ring"
    assert algorithm_label("ring", (("channels", 8), ("protocol", "ll"))) == "ring[channels=8,protocol=ll]"


def test_another_algorithm_of_the_same_cell():
    """with_algorithm changes what runs, not where."""
    case = Case(Cell("bcast", 4, 4, 64), "openmpi", "chain", "tuned", (("fanout", 2),))
    other = case.with_algorithm("default")
    assert (other.cell, other.algorithm, other.params, other.label) == (case.cell, "default", (), "default")


def test_a_rule_lists_its_evidence():
    """A rule's JSON says from where to where, what, and on what it rests."""
    flat = Rule("bcast", 8, 8, 0, None, "openmpi", "chain", gain=0.2, sizes=3, launches=1).to_json()
    assert (flat["min_bytes"], flat["max_bytes"], flat["basis"], flat["gain"]) == (0, None, "measured", 0.2)
