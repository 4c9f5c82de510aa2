"""Guidance: verdicts on the textbook's advice from the cells at hand."""

import importlib.util
from pathlib import Path

import pandas as pd
import pytest

from collbench import guidance
from collbench.reports import guidance_text
from collbench.results import COLUMNS

_SPEC = importlib.util.spec_from_file_location("made_rows", Path(__file__).with_name("test_selection.py"))
made = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(made)
KIB, MIB = 1 << 10, 1 << 20


def cluster(ranks, ring_from):
    """Ring is twice as fast from a size on and four times slower below; tree is the reference."""
    rows = []
    for nbytes in (KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB):
        tree = 1e-5 + nbytes * 1e-9
        ring = tree / 2 if nbytes >= ring_from else tree * 4
        rows += [
            made.row(name, nbytes, t, provider="nccl", ranks=ranks, ranks_per_node=8)
            for name, t in (("tree", tree), ("ring", ring))
        ]
    return rows


@pytest.fixture(name="page")
def _page():
    rows = cluster(8, MIB) + cluster(64, 64 * MIB)
    return guidance.guide(pd.DataFrame(rows, columns=list(COLUMNS)))


def verdict(page, name, ranks):
    return next(v for v in page.verdicts if (v.name, v.ranks) == (name, ranks))


def test_advice_that_holds_from_a_size_on_says_from_which(page):
    found = verdict(page, "ring_at_scale", 64)
    assert found.verdict == "holds_from"
    assert found.from_bytes == 64 * MIB
    assert pytest.approx(found.cost_worst) == 3.0


def test_advice_speaks_of_its_own_ranks_and_sizes_only(page):
    assert not [v for v in page.verdicts if v.name == "ring_at_scale" and v.ranks < 64]
    assert verdict(page, "ring_for_large", 8).verdict == "holds"
    assert verdict(page, "ring_for_large", 64).verdict == "holds_from"
    assert verdict(page, "tree_for_small", 8).verdict == "holds"


def test_the_bands_show_the_ring_leading_from_larger_sizes_on_the_larger_cluster(page):
    bands = {(b.ranks, b.leader): b.from_bytes for b in page.bands}
    assert bands[8, "ring"] == MIB
    assert bands[64, "ring"] == 64 * MIB


def test_a_composition_may_be_recommended_and_is_marked_as_application_code():
    rows = cluster(64, 64 * MIB)
    rows += [
        made.row("hier_bw", n, 1e-6, provider="composition", ranks=64, ranks_per_node=8)
        for n in (16 * MIB, 64 * MIB)
    ]
    page = guidance.guide(pd.DataFrame(rows, columns=list(COLUMNS)), "nccl")
    large = next(u for u in page.uses if u.size_class == "large")
    assert large.provider == "composition"
    assert verdict(page, "hierarchical_at_scale", 64).verdict == "holds"
    assert "needs application code" in guidance_text.render(page)


def test_sharded_training_adds_the_times_of_its_parts():
    rows = []
    for name, time in (("allreduce", 1e-4), ("reduce_scatter", 2e-5), ("allgather", 3e-5)):
        rows.append(made.row("default", MIB, time, collective=name, op=None))
    page = guidance.guide(pd.DataFrame(rows, columns=list(COLUMNS)))
    found = verdict(page, "sharded", 4)
    assert pytest.approx(found.gain) == 1.0
    assert found.verdict == "holds"


def test_the_page_keeps_context_apart_from_verdicts(page, golden):
    text = guidance_text.render(page)
    assert text.index("not part of the verdicts") > text.rindex("Followed blindly")
    golden("guidance_page.txt", text)


def test_the_json_form_names_each_items_kind(page):
    kinds = {item["kind"] for item in guidance.to_json(page)}
    assert {"verdict", "use", "band"} == kinds
