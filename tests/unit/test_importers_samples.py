"""Every sample log of the repository (each tool's format, invented numbers) yields the rows it holds."""

import csv
import dataclasses
from pathlib import Path

import pytest

from collbench import importers
from collbench.collectives import busbw
from collbench.errors import UnansweredError
from collbench.importers import nccl_rows
from collbench.importers.model import Imported, Options, Row
from collbench.importers.source import Source

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
with (GOLDEN / "import_samples.tsv").open() as _file:
    SAMPLES = list(csv.DictReader(_file, delimiter="\t"))


def load(name: str, **options) -> Imported:
    with (GOLDEN / name).open("rb") as handle:
        return importers.read(Source(handle, name), Options(**options))


def rows(name: str, **options) -> list[Row]:
    return [row for table in load(name, **options).tables for row in table.rows]


@pytest.mark.parametrize("sample", SAMPLES, ids=[s["file"] for s in SAMPLES])
def test_a_sample_yields_its_rows(sample):
    """Format, launches, cells, failed cells, ranks, nodes, collective and first time are those of the sample."""
    found = load(sample["file"])
    table = found.tables[0]
    first = next(row for row in table.rows if row.time_s is not None)
    seen = {
        "file": sample["file"], "format": found.format, "tables": str(len(found.tables)), "cells": str(found.cells),
        "failed": str(found.failed), "ranks": str(table.ranks), "nodes": str(table.nodes or ""),
        "collective": first.collective, "provider": table.provider,
    }  # fmt: skip
    assert {k: v for k, v in sample.items() if k in seen} == seen
    assert first.time_s * 1e6 == pytest.approx(float(sample["first_us"]), rel=1e-3)
    assert sample["remark"] in " ".join(found.remarks)
    assert found.bad == []


def _printed(text: str):
    """Yield (size, in place, half) of each whole row of a log, prefixes removed."""
    for line in text.splitlines():
        words = nccl_rows.without_stamp(line.split("stdout>:")[-1].removeprefix("   0: ").split())
        columns = nccl_rows.columns_from_right(words)
        if columns is not None and nccl_rows.looks_like_row(words):
            row = nccl_rows.read_row(1, words, columns)
            yield from (
                (row.size, in_place, half) for half, in_place in ((row.out, False), (row.inside, True))
            )


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s["format"] in ("nccl-tests", "rccl-tests")],
                         ids=lambda s: s["file"])  # fmt: skip
def test_computed_bandwidths_agree_with_the_printed_ones(sample):
    """Time, algbw and busbw that collbench computes are those that each generation of nccl-tests prints."""
    computed = []
    for table in load(sample["file"]).tables:
        for row in table.rows:
            if row.time_s is not None:
                rate = busbw(row.collective, table.ranks, row.nbytes, row.time_s)
                values = (row.time_s * 1e6, row.nbytes / row.time_s / 1e9, rate / 1e9)
                computed.append((row.nbytes, row.in_place, values))
    good = [p for p in _printed((GOLDEN / sample["file"]).read_text()) if p[0] and (p[2].wrong or 0) < 1e-3]
    assert good
    for size, in_place, half in good:
        values = (half.time_us, half.algbw, half.busbw)
        same = [v for s, i, v in computed if (s, i) == (size, in_place)]
        assert any(v == pytest.approx(values, abs=0.0051, rel=2e-3) for v in same)


def test_the_good_half_of_a_wrong_row_is_kept():
    """#wrong in one half fails that half only, and never becomes a time."""
    wrong = {(r.nbytes, r.in_place): r for r in rows("import_gen_b_srun_wrong.txt")}
    assert wrong[1048576, False].time_s is None
    assert wrong[1048576, False].reason == "wrong result"
    assert "20736" in wrong[1048576, False].detail
    assert wrong[1048576, True].time_s is not None
    assert wrong[16777216, True].reason == wrong[16777216, False].reason == "wrong result"


def test_the_first_generation_s_error_is_a_tolerance():
    """1e-07 is a correct result, 3e-02 of float32 is not, and N/A was not checked."""
    found = rows("import_gen_a_reduce.txt")
    assert [r.reason for r in found if r.nbytes == 1024] == ["", "wrong result"]
    assert all(r.extra["root"] == 2 for r in found)


def test_size_zero_is_a_failed_cell():
    """Rows whose size was rounded down to nothing time an empty call."""
    zero = [r for r in rows("import_gen_a_per_rank.txt") if r.nbytes == 0]
    assert [r.reason for r in zero] == ["zero size"] * 4
    assert all(r.time_s is None for r in zero)


def test_split_rows_are_put_together():
    """A row cut by debug output, also inside a number and with a host glued to it, is read whole."""
    found = {(r.nbytes, r.in_place): r for r in rows("import_gen_c_debug_split.txt")}
    times = {key: round(r.time_s * 1e6, 2) for key, r in found.items()}
    assert times[268435456, False] == 1190.17
    assert times[268435456, True] == 1187.5
    assert times[536870912, False] == 2314.78
    assert times[1073741824, False] == 4543.79
    assert times[1073741824, True] == 4531.25


def test_requested_and_effective_algorithm_are_kept_apart():
    """NCCL_ALGO is the request; NCCL's own line for each size shows what ran, and contradicts, proves or stays open."""
    found = {r.nbytes: r for r in rows("import_gen_c_debug_split.txt")}
    assert {r.algorithm for r in found.values()} == {"tree"}
    assert (found[268435456].evidence.status, found[268435456].evidence.effective) == ("contradicted", "ring")
    assert (found[536870912].evidence.status, found[536870912].evidence.effective) == ("proven", "tree")
    assert found[1073741824].evidence.status == "not_separable"
    assert found[2147483648].evidence.status == "unknown"
    assert found[536870912].extra["effective_params"] == {"protocol": "simple", "channels": 24}


def test_tuning_lines_name_the_algorithm_where_nothing_was_requested(tmp_path):
    """Without a recorded request the case is named after what NCCL's lines show."""
    text = (
        (GOLDEN / "import_gen_c_debug_split.txt")
        .read_text()
        .replace("NCCL_ALGO set by environment to Tree", "x")
    )
    path = tmp_path / "log.txt"
    path.write_text(text)
    with path.open("rb") as handle:
        found = importers.read(Source(handle, "log.txt"), Options())
    named = {r.nbytes: (r.algorithm, r.params, r.evidence.status) for r in found.tables[0].rows}
    assert named[268435456] == ("ring", (("protocol", "simple"),), "proven")
    assert named[536870912] == ("tree", (("protocol", "simple"),), "proven")
    assert named[1073741824][0] == named[2147483648][0] == "default"


def test_headings_of_a_hand_made_summary_are_requests():
    """ALGO=Ring over bare rows is what was asked for; NCCL's spelling becomes ours."""
    found = load("import_headings.txt")
    assert [t.rows[0].algorithm for t in found.tables] == ["ring", "tree"]


def test_per_iteration_columns_become_percentiles():
    """-I adds min, max and p99 of each half; -S's time stamp is no column; -B's barrier is the synchronisation."""
    table = load("import_gen_d_iterations.txt").tables[0]
    row = table.rows[0]
    assert set(row.percentiles_s) == {"min", "max", "p99"}
    assert row.percentiles_s["min"] < row.time_s < row.percentiles_s["p99"] < row.percentiles_s["max"]
    assert table.sync == "barrier"


def test_the_header_tells_library_gpu_and_iterations():
    """nccl-library=22902 is 2.29.2; device lines name GPU, nodes and ranks per node."""
    table = load("import_gen_c_multi_tagged.txt").tables[0]
    assert table.library["version"] == "2.29.2"
    assert table.gpu == "NVIDIA H100 80GB HBM3"
    assert table.node_sizes == (5, 5)
    assert table.rows[0].iterations == 20
    assert [t.rows[0].collective for t in load("import_gen_c_multi_tagged.txt").tables] == [
        "allreduce", "allgather", "alltoall", "sendrecv", "allreduce",
    ]  # fmt: skip


def test_json_keeps_no_secret():
    """Of the environment only communication variables are kept."""
    table = load("import_json.json").tables[0]
    assert table.environment == {"NCCL_ALGO": "Tree"}
    assert [r.reason for r in table.rows] == ["", "wrong result", "", ""]
    assert table.rows[0].algorithm == "tree"


def test_osu_columns_and_sizes():
    """Per-rank sizes become totals, each title's kind has its own timer, Fail is a failed cell, memory is the title's."""
    tables = load("import_osu_several.txt").tables
    sizes = {t.rows[0].collective: (t.rows[0].nbytes, t.memory) for t in tables}
    assert sizes["allgather"] == (6, "cuda")
    assert sizes["alltoall"] == (6, "host")
    assert sizes["reduce"] == (1, "rocm")
    assert sizes["reduce_scatter_v"] == (1024, "host")
    assert sizes["barrier"] == (0, "host")
    full = next(t for t in tables if t.rows[0].collective == "allgather").rows[0]
    assert full.extra["rank_max_s"] == pytest.approx(12.38e-6, rel=1e-2)
    assert full.iterations == 1000
    nonblocking = next(t for t in tables if t.timer == "osu-nonblocking").rows[0]
    assert nonblocking.time_s == pytest.approx(21.5e-6)
    assert nonblocking.dtype == "int32"
    failed = next(t for t in tables if t.rows[0].collective == "alltoall").rows[1]
    assert (failed.reason, failed.time_s) == ("wrong result", None)
    tails = next(t for t in tables if t.rows[0].collective == "bcast").rows[0].percentiles_s
    assert tails == pytest.approx({"p50": 3.4e-6, "p95": 4.4e-6, "p99": 6.6e-6})
    assert {t.rank_reduction for t in tables} == {"avg"}


def test_osu_rates_become_times():
    """A rate over several pairs or both directions is the time of one message of one pair."""
    tables = load("import_osu_point_to_point.txt").tables
    last = {t.timer: (t.rows[-1].time_s, t.ranks) for t in tables}
    assert last["osu-bw"] == (pytest.approx(1048576 / 12000e6), 2)
    assert last["osu-bibw"] == (pytest.approx(2 * 1048576 / 20000e6), 2)
    assert last["osu-mbw_mr"] == (pytest.approx(4 * 1048576 / 40000e6), 8)


def test_imb_blocks():
    """Groups are launches, a repeated group is another one, a single process and unknown benchmarks are left out."""
    found = load("import_imb_groups.txt")
    allreduce = [t for t in found.tables if t.rows[0].collective == "allreduce"]
    assert [t.ranks for t in allreduce] == [4, 4]
    assert {t.rank_reduction for t in allreduce} == {"max"}
    assert allreduce[0].rows[1].time_s == pytest.approx(5.25e-6 * 1.5, rel=1e-2)
    assert allreduce[0].rows[0].reason == "zero size"
    alltoall = next(t for t in found.tables if t.rows[0].collective == "alltoall")
    assert alltoall.rows[0].nbytes == 8 * 1024
    scattered = next(t for t in found.tables if t.rows[0].collective == "reduce_scatter_v")
    assert [r.reason for r in scattered.rows] == ["", "wrong result"]
    biband = next(t for t in found.tables if t.timer == "imb-biband")
    assert biband.rows[0].time_s == pytest.approx(2 * 2 / 4e6)


def test_all_reduce_bench_states_ranks_or_they_follow_from_the_ratio(tmp_path):
    """Ranks come from the sentence above the table; without it from busbw/algbw."""
    text = (GOLDEN / "import_all_reduce_bench.txt").read_text().replace("over 16 ranks", "")
    path = tmp_path / "bench.txt"
    path.write_text(text)
    with path.open("rb") as handle:
        found = importers.read(Source(handle, "bench.txt"), Options())
    assert found.tables[0].ranks == 16
    last = found.tables[0].rows[-1]
    assert last.time_s == pytest.approx((1 << 30) / 50e9)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("import_aborted.txt", "aborted"), ("import_pico_terminal.txt", "PICO terminal log")],
)
def test_what_holds_nothing_is_refused_by_name(name, reason):
    """An aborted run and a PICO terminal log end in an error that says why."""
    with pytest.raises(UnansweredError, match=reason):
        load(name)


def test_options_fill_only_what_the_log_does_not_say():
    """--ranks and --collective never override the log."""
    table = load("import_gen_c_multi_tagged.txt", ranks=64, collective="bcast").tables[0]
    assert (table.ranks, table.rows[0].collective) == (10, "allreduce")


def test_rows_are_immutable_records():
    """Rows are plain tuples, options frozen."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().ranks = 3
