"""Verdicts over run files: the stated answer for each kind of pair of runs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from collbench import compare, method, results, sides
from collbench.errors import UsageError
from collbench.refinement import AGREE
from collbench.verdict import FASTER, INCONCLUSIVE, MISSING, SAME, SLOWER, Rules

CELLS = [("allreduce", 2, 8), ("allreduce", 2, 65536), ("bcast", 2, 1024)]
FAST, SLOW = 90.0, 400.0


@pytest.fixture(name="make")
def _make(write_run, lines):
    """``make(name, launches=8, seed=0, slow={cell index: factor}, …)`` writes a run with 1 % launch scatter."""

    def make(
        name, launches=8, seed=0, slow=None, cells=CELLS, probes=None, header=None, variant=None, **facts
    ):
        source = np.random.default_rng(seed)
        cell_facts = {
            k: facts.pop(k) for k in ("sync", "rank_reduction", "effective", "provider") if k in facts
        }
        out = []
        for number in range(launches):
            probe = (probes or [FAST] * launches)[number]
            line = lines.launch(number, 2, **facts)
            line["probe"] = {"pingpong_ns": probe} if probe else None
            if variant:
                line["variant"], line["repetition"] = variant(number)
            out.append(line)
            state = 2.7 if probe and probe > 200 else 1.0
            for index, (collective, ranks, nbytes) in enumerate(cells):
                factor = (slow or {}).get(index, 1.0)
                if callable(factor):
                    factor = factor(number)
                time_us = (10 + index) * float(np.exp(source.normal(0, 0.01))) * factor * state
                out.append(lines.cell(number, collective, ranks, nbytes, "default", [time_us], **cell_facts))
            out.append({"kind": "launch_end", "launch": number, "probe": {"pingpong_ns": probe} if probe else None,
                        "status": "ok"})  # fmt: skip
        return results.read(write_run(out, name, **(header or {})))

    return make


def judged(base, new, rules=None, by=None, **only):
    names = sides.key_names(by=by)
    pair = sides.of_runs(base, new, names)
    method.check(pair[0].rows, pair[1].rows)
    return compare.compare(*pair, names, rules or Rules(**only))


def words(comparison):
    return [cell.verdict for cell in comparison.cells]


def test_a_run_against_itself_is_the_same(make):
    """Eight launches against themselves: every cell is shown to be the same, exit 0."""
    run = make("a")
    found = judged(run, run)
    assert words(found) == [SAME] * 3
    assert found.status == 0


def test_one_cell_ten_percent_slower_is_found(make):
    """A copy whose one cell is 10 % slower: that cell is slower and unconfirmed, the others the same, exit 1."""
    found = judged(make("a"), make("b", slow={1: 1.10}))
    assert words(found) == [SAME, SLOWER, SAME]
    assert found.status == 1
    assert found.cells[1].confirmed is False
    assert found.cells[1].ratio.low < 1.10 < found.cells[1].ratio.high
    assert any("not measured interleaved" in remark for remark in found.remarks)


def test_faster_is_no_fault(make):
    """A cell that became faster is said so; exit 0."""
    found = judged(make("a"), make("b", slow={0: 0.8}))
    assert words(found)[0] == FASTER
    assert found.status == 0


def test_a_truncated_copy_is_missing_cells(make):
    """Cells that NEW lacks are missing, exit 3; slower ones still win with 1."""
    found = judged(make("a"), make("b", cells=CELLS[:2]))
    assert words(found) == [SAME, SAME, MISSING]
    assert found.status == 3
    assert judged(make("c"), make("d", cells=CELLS[:2], slow={0: 1.3})).status == 1


def test_fail_on_slower_alone_bears_missing_cells(make):
    """--fail-on slower: a missing cell does not change the exit status."""
    assert judged(make("a"), make("b", cells=CELLS[:2]), fail_on=(SLOWER,)).status == 0


def test_nothing_in_common_cannot_be_answered(make):
    """An empty intersection is 3, whatever fails."""
    found = judged(make("a", cells=CELLS[:1]), make("b", cells=CELLS[2:]), fail_on=(SLOWER,))
    assert found.compared == 0
    assert found.status == 3


def test_a_failed_cell_of_new_is_three(make, write_run):
    """A failed (or wrong) cell in NEW is reported as that, with its reason."""
    base = make("a")
    text = make("b", cells=CELLS[:2]).path.read_text().splitlines()
    line = next(json.loads(x) for x in base.path.read_text().splitlines() if '"bcast"' in x)
    bad = {"kind": "failed", "launch": 0, "case": line["case"], "reason": "wrong_result", "detail": ""}
    new = results.read(write_run([*map(json.loads, text[1:]), bad], "c"))
    found = judged(base, new)
    assert [(c.verdict, c.reason) for c in found.cells][2] == ("failed", "wrong_result")
    assert found.status == 3


@pytest.mark.parametrize(
    ("factor", "verdict", "status"), [(1.2, SLOWER, 1), (1.0, INCONCLUSIVE, 3), (0.7, INCONCLUSIVE, 3)]
)
def test_one_launch_a_side_knows_the_threshold_only(make, factor, verdict, status):
    """One launch a side: 1 if slower, else 3; never "same"."""
    found = judged(make("a", 1), make("b", 1, slow=dict.fromkeys(range(3), factor)))
    assert words(found) == [verdict] * 3
    assert found.status == status


@pytest.mark.parametrize("launches", [2, 3])
def test_too_few_launches_are_inconclusive(make, launches):
    """Two or three launches a side cannot reach p = 5 %, even for twice the time."""
    found = judged(make("a", launches), make("b", launches, slow=dict.fromkeys(range(3), 2.0)))
    assert words(found) == [INCONCLUSIVE] * 3
    assert "at least 4 are needed" in found.cells[0].reason
    assert found.status == 3


def test_another_machine_state_is_inconclusive(make):
    """All launches of NEW ran in the slow state: no verdict, although the times are 2.7 times longer."""
    found = judged(make("a"), make("b", probes=[SLOW] * 8))
    assert words(found) == [INCONCLUSIVE] * 3
    assert found.cells[0].state == "different"


def test_launches_of_the_other_state_are_left_out(make):
    """Two of eight launches in the slow state are left out and counted; the rest decides."""
    found = judged(make("a"), make("b", probes=[FAST] * 6 + [SLOW] * 2))
    assert words(found) == [SAME] * 3
    assert found.cells[0].ratio.count == 6
    assert any("left out" in remark for remark in found.remarks)


def test_without_probes_the_state_is_unknown(make):
    """Imported runs have no probe: they are compared, and it is said."""
    found = judged(make("a", probes=[None] * 8), make("b", probes=[None] * 8))
    assert {c.state for c in found.cells} == {"unknown"}
    assert any("state of 3 cells is unknown" in remark for remark in found.remarks)


def test_another_library_version_is_compared_and_listed(make):
    """A library of another version is what one compares: same verdicts, the difference beside them."""
    library = {"name": "openmpi", "version": "5.1.0", "string": "Open MPI v5.1.0"}
    found = judged(make("a"), make("b", library=library))
    assert found.status == 0
    assert ("library.version", "5.0.11", "5.1.0") in [(d.field, d.base, d.new) for d in found.differences]


@pytest.mark.parametrize(
    ("facts", "field"),
    [({"sync": "window"}, "sync"), ({"rank_reduction": "avg"}, "rank_reduction"),
     ({"thread_level": "multiple"}, "thread_level")],
)  # fmt: skip
def test_other_methods_are_refused(make, facts, field):
    """Rows of another method are refused (exit 2) with the field and both values."""
    with pytest.raises(
        UsageError,
        match=f"{field} of allreduce on 2 ranks is .* in BASE and {next(iter(facts.values()))} in NEW",
    ):
        judged(make("a"), make("b", **facts))


def test_another_dtype_is_refused(make, write_run):
    """The element type is part of the method."""
    base = make("a")
    text = base.path.read_text().replace('"float32"', '"float64"')
    new = results.read(write_run([json.loads(x) for x in text.splitlines()[1:]], "b"))
    with pytest.raises(
        UsageError, match="dtype of allreduce on 2 ranks is float32 in BASE and float64 in NEW"
    ):
        judged(base, new)


def test_an_algorithm_that_ran_as_another_on_one_side_is_refused(make, write_run):
    """Requested and effective algorithm differ, by proof: not compared with one that ran as asked."""

    def as_ring(name, effective, status):
        rows = [json.loads(x) for x in make("a" + name).path.read_text().splitlines()[1:]]
        for row in rows:
            if row["kind"] == "cell":
                row["case"]["algorithm"], row["effective"] = "ring", effective
                row["evidence"] = {"status": status, "by": "operator_trace"}
        return results.read(write_run(rows, name))

    bad, good = as_ring("b", "linear", "contradicted"), as_ring("g", "ring", "proven")
    for base, new in ((bad, good), (good, bad)):
        with pytest.raises(UsageError, match="asked to run ring but linear ran"):
            judged(base, new)
    # The same substitution on both sides mixes nothing.
    assert judged(bad, bad).cells


def test_required_cells_must_have_an_answer(make):
    """A required cell that is missing, or matches nothing, is 3 even where few are inconclusive."""
    run = make("a")
    assert judged(run, run, required=("allreduce/2/*",)).status == 0
    assert judged(run, run, required=("alltoall/*",)).status == 3
    assert judged(run, make("b", cells=CELLS[:2]), required=("bcast/*",), fail_on=(SLOWER,)).status == 3


def test_too_many_inconclusive_cells_are_three(make):
    """A wildly scattering cell is inconclusive; one of three is more than 10 %, but may be borne."""
    noisy = {0: lambda number: 1 + 0.4 * (number % 2)}
    base, new = make("a", slow=noisy), make("b", seed=3, slow=noisy)
    assert words(judged(base, new)) == [INCONCLUSIVE, SAME, SAME]
    assert judged(base, new).status == 3
    assert judged(base, new, max_inconclusive=0.5).status == 0


def test_power_is_stated(make):
    """What would have been seen is above the threshold and said in words."""
    found = judged(make("a"), make("b", seed=1))
    assert all(0.05 < c.detectable < 0.10 for c in found.cells)
    assert any("would have been seen" in remark for remark in found.remarks)


def test_libraries_compare_across_providers(make):
    """--by library: the defaults of two libraries are compared although their providers differ."""
    library = {"name": "mpich", "version": "5.0.2", "string": "MPICH"}
    base, new = make("a"), make("b", provider="mpich", library=library, slow={0: 1.5})
    assert judged(base, new).compared == 0
    found = judged(base, new, by="library")
    assert words(found) == [SLOWER, SAME, SAME]


def variants(number):
    return "AB"[(number + number // 2) % 2], number // 2


def only_b(factor):
    return lambda number: factor if variants(number)[0] == "B" else 1.0


def interleaved(run):
    names = sides.key_names()
    return compare.compare(*sides.of_variants(run, "A", "B", names), names, Rules())


def test_variants_are_paired_by_repetition(make):
    """Ten pairs of an interleaved run: 10 % slower in B is found; a launch that no other can meet is left out."""
    probes = [FAST] * 16 + [FAST, SLOW, FAST, FAST]
    run = make(
        "ab",
        20,
        slow={1: only_b(1.10)},
        probes=probes,
        variant=variants,
        header={"ab": {"variants": ["A", "B"]}},
    )
    found = interleaved(run)
    assert words(found) == [SAME, SLOWER, SAME]
    assert all(c.paired and c.ratio.count == 9 and c.left_out == 2 for c in found.cells)


def test_a_slow_state_in_the_middle_does_not_matter_to_pairs(make):
    """Both partners in the slow state are a good pair."""
    probes = [FAST] * 8 + [SLOW] * 12
    run = make("ab", 20, probes=probes, variant=variants, header={"ab": {"variants": ["A", "B"]}})
    assert words(interleaved(run)) == [SAME] * 3


def confirming(number):
    name, repetition = variants(number)
    return name, repetition if number < 20 else sides.CONFIRM_FROM + repetition


@pytest.mark.parametrize(("again", "verdict", "confirmed"), [(1.12, SLOWER, True), (1.0, SAME, None)])
def test_suspects_are_judged_by_fresh_launches_alone(make, again, verdict, confirmed):
    """A suspect is confirmed, or cleared, by the launches that re-measured it."""
    slow = {0: lambda n: (1.12 if n < 20 else again) if variants(n)[0] == "B" else 1.0}
    run = make("ab", 40, slow=slow, variant=confirming, header={"ab": {"variants": ["A", "B"]}})
    found = interleaved(run)
    assert (found.cells[0].verdict, found.cells[0].confirmed) == (verdict, confirmed)
    assert found.status == (1 if verdict == SLOWER else 0)


def test_a_suspect_is_not_cleared_by_time_that_ran_out(make):
    """Three fresh pairs cannot answer: what was slower stays slower, unconfirmed, exit 1."""
    slow = {0: lambda n: 1.12 if variants(n)[0] == "B" else 1.0}
    run = make("ab", 26, slow=slow, variant=confirming, header={"ab": {"variants": ["A", "B"]}})
    found = interleaved(run)
    assert (found.cells[0].verdict, found.cells[0].confirmed, found.status) == (SLOWER, False, 1)


def test_algorithms_of_one_run_are_compared_within_launches(make, lines, write_run):
    """--by algorithm: ring against the default, paired by launch; a slower algorithm is an answer, exit 0."""
    rows = [json.loads(x) for x in make("a").path.read_text().splitlines()[1:]]
    for row in [r for r in rows if r["kind"] == "cell"]:
        case = {**row["case"], "algorithm": "ring"}
        rows.append({**row, "case": case, "effective": "ring", "time_s": row["time_s"] * 1.2})
    run = results.read(write_run(rows, "b"))
    names = sides.key_names(by="algorithm")
    ((base, new),) = sides.of_algorithms(run, "default", names)
    found = compare.compare(base, new, names, Rules(), who=new.label)
    assert words(found) == [SLOWER] * 3
    assert found.cells[0].paired
    assert found.status == 0


def test_variants_that_ran_another_algorithm_are_a_finding(make, write_run):
    """What the default ran in each environment stands in the cell; where it differs, one sentence says so."""
    run = make("ab", 16, variant=variants, header={"ab": {"variants": ["A", "B"]}})
    rows = [json.loads(x) for x in run.path.read_text().splitlines()[1:]]
    for row in rows:
        if row["kind"] == "cell" and row["case"]["collective"] == "bcast":
            name = variants(row["launch"])[0]
            row["effective"] = {"A": "binomial", "B": "ring"}[name]
            row["evidence"] = {"status": "proven", "by": "message_counts"}
        elif row["kind"] == "cell":
            row["effective"], row["evidence"] = (
                "ring",
                {"status": "not_separable", "candidates": ["ring", "chain"]},
            )
    found = interleaved(results.read(write_run(rows, "b", ab={"variants": ["A", "B"]})))
    assert (found.cells[2].base_ran, found.cells[2].new_ran) == ("binomial", "ring")
    assert found.cells[0].new_ran == "chain or ring"
    assert [x for x in found.remarks if " ran " in x] == ["bcast 2 ranks 1 KiB: A ran binomial, B ran ring"]


def left_out(run, *lines_left, launch=0):
    """Return the run without the lines of some cells, which are said to need no measuring."""
    gone = [c for c in run.cells if (c["case"]["collective"], c["case"]["nbytes"]) in lines_left]
    lines = [{"kind": "skipped", "launch": launch, "case": c["case"], "reason": AGREE} for c in gone]
    return replace(run, cells=[c for c in run.cells if c not in gone], skipped=lines)


@pytest.mark.parametrize("side", ["base", "new"])
def test_sizes_whose_neighbours_agree_are_neither_missing_nor_added(make, side):
    """One sentence counts them, the others are compared, and the exit status is theirs."""
    whole, other = make("base"), make("new", seed=1)
    fewer = left_out(whole if side == "base" else other, ("allreduce", 65536))
    found = judged(fewer, other) if side == "base" else judged(whole, fewer)
    assert words(found) == [SAME, SAME]
    assert found.status == 0
    assert any("1 cells were measured on one side only" in remark for remark in found.remarks)


def test_other_cells_that_are_gone_stay_missing(make):
    """What was neither measured nor left out for agreeing neighbours is a fault."""
    new = left_out(make("new", seed=1), ("allreduce", 65536))
    found = judged(make("base"), replace(new, skipped=[]))
    assert words(found).count(MISSING) == 1
    assert found.status == 3
