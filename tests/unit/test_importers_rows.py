"""Columns, numbers and the facts that decide what an nccl-tests table is about."""

import io

import pytest

from collbench import importers
from collbench.errors import CollbenchError
from collbench.importers import hints, nccl_log, nccl_rows
from collbench.importers.model import Options
from collbench.importers.nccl_resolve import RawTable, by_numbers, ranks_by_ratio, shares
from collbench.importers.nccl_table import decode_version
from collbench.importers.source import Source, find_files


@pytest.mark.parametrize(
    ("header", "widths"),
    [
        ("size count type redop root time algbw busbw #wrong time algbw busbw #wrong", {13, 9}),
        ("size count type redop time algbw busbw error time algbw busbw error", {12, 11, 8}),
        ("size count type time algbw busbw error time algbw busbw error", {11, 7}),
        (
            "size count type redop root cputime algbw busbw #wrong cputime algbw busbw #wrong timestamp",
            {13, 9},
        ),
        ("size count type nothing here", set()),
        ("size count type time algbw busbw error time algbw busbw", set()),
    ],
)
def test_the_header_tells_which_widths_a_row_may_have(header, widths):
    """Besides its own: a blank redop, and the in-place half alone."""
    assert set(nccl_rows.columns_of(header.split())) == widths


def test_the_in_place_half_alone_is_read():
    """Where the tool leaves the out-of-place half blank the row has one cell."""
    header = (*"size count type redop root".split(), *"time algbw busbw #wrong".split() * 2)  # noqa: SIM905
    tokens = ("1048576", "262144", "float", "sum", "-1", "100.00", "10.49", "18.35", "0")
    row = nccl_rows.read_row(1, tokens, nccl_rows.columns_of(header)[9])
    assert row.out is None
    assert row.inside.time_us == 100.0


@pytest.mark.parametrize(
    ("word", "half"),
    [("12.34", 0.005), ("373.0", 0.05), ("12158", 0.5), ("1.2e+06", 50000.0), ("0e999999", 0.5e300)],
)
def test_half_a_unit_in_the_last_place(word, half):
    """What rounding may have taken away follows from how a number is printed."""
    assert nccl_rows.half_unit(word) == pytest.approx(half)


@pytest.mark.parametrize(("code", "version"), [(22902, "2.29.2"), (2804, "2.8.4"), (23001, "2.30.1")])
def test_library_codes(code, version):
    """NCCL's version number in both of its forms."""
    assert decode_version(code) == version


def table(name, ranks, factor, *, per_rank, redop, root, wrong=0.0):
    rows = []
    for size in (1 << 25, 1 << 28):
        count = size // (4 * (ranks if per_rank else 1))
        rate = 123.45
        out = nccl_rows.Half(size / rate / 1e3, rate, round(rate * factor, 2), 0.0)
        rows.append(nccl_rows.RawRow(1, size, count, "float32", redop, root, out, out._replace(wrong=wrong)))
    return RawTable(rows=rows, name=name)


@pytest.mark.parametrize(
    ("expected", "factor", "per_rank", "redop", "root", "wrong"),
    [
        ("allreduce", 1.875, False, "sum", -1, 0.0),
        ("bcast", 1.0, False, "none", 0, 0.0),
        ("reduce", 1.0, False, "sum", 0, 0.0),
        ("sendrecv", 1.0, False, "sum", -1, None),
        ("allgather", 15 / 16, True, "none", -1, 0.0),
        ("reduce_scatter", 15 / 16, True, "sum", -1, 0.0),
        ("alltoall", 15 / 16, True, "none", -1, None),
        (None, 1.0, False, "sum", -1, 0.0),
        (None, 15 / 16, True, "none", 0, 0.0),
    ],
)
def test_numbers_alone_name_the_collective(expected, factor, per_rank, redop, root, wrong):
    """busbw/algbw, size/count, operator, root and what was checked leave one collective, or none for sure."""
    raw = table(None, 16, factor, per_rank=per_rank, redop=redop, root=root, wrong=wrong)
    assert by_numbers(raw, 16) == expected
    assert shares(raw.rows) == (16 if per_rank else None)


def test_the_ratio_tells_ranks_only_where_it_is_unique():
    """1.875 is 16 ranks; near 2 many rank counts fit and none is guessed."""
    assert ranks_by_ratio(table(None, 16, 1.875, per_rank=False, redop="sum", root=-1).rows) == 16
    assert (
        ranks_by_ratio(table(None, 2048, 2 * 2047 / 2048, per_rank=False, redop="sum", root=-1).rows) is None
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [("Ring", "ring"), ("NVLSTree", "nvls_tree"), ("allreduce:tree;broadcast:ring", "tree"), ("^NVLS", "default"),
     ("Ring,Tree", "default"), ("", "default")],
)  # fmt: skip
def test_a_recorded_request(value, expected):
    """One name is a request; lists and exclusions leave the choice to NCCL."""
    assert nccl_log.requested({"NCCL_ALGO": value}, "allreduce") == (expected, ())


def test_a_forced_protocol_is_not_the_default():
    """NCCL's own choice of algorithm under a forced protocol is called auto."""
    assert nccl_log.requested({"NCCL_PROTO": "LL128"}, "allreduce") == ("auto", (("protocol", "ll128"),))


def test_old_tuning_lines_number_the_algorithms():
    """``Algo 1 proto 2`` of older NCCL is ring and Simple."""
    log = nccl_log.NcclLog()
    log.take("h:1:2 [0] NCCL INFO AllGather: 1024 Bytes -> Algo 1 proto 2 time 12.5")
    shown, fields = nccl_log.evidence(log, "allgather", 8192, 8, "default")
    assert (shown.status, shown.effective) == ("proven", "ring")
    assert fields == {"effective_params": {"protocol": "simple"}}


@pytest.mark.parametrize(
    ("line", "ranks", "each"),
    [
        ("mpirun -np 16 -npernode 8 ./all_reduce_perf -b 8", 16, 8),
        ("$ mpiexec.hydra -n 64 -ppn 32 ./osu_allreduce", 64, 32),
        ("+ srun --ntasks=128 --cpu-bind=cores ./x", 128, None),
        ("srun -l -N 4 ./all_reduce_perf", None, None),
        ("mpirun was not found", None, None),
    ],
)
def test_command_lines_tell_ranks(line, ranks, each):
    """Processes and processes per node of the usual launchers."""
    assert hints.command_ranks(line) == ranks
    assert hints.command_per_node(line) == each


@pytest.mark.parametrize(
    ("name", "ranks"),
    [("a/run_0064r_x.log", 64), ("nccl_n2_g8.txt", 16), ("x_2n4g.txt", 8), ("osu-np32.txt", 32), ("h100_80GB.txt", None),
     ("v2.29_a100.log", None)],
)  # fmt: skip
def test_file_names_tell_ranks(name, ranks):
    """``64r``, ``n2_g8``, ``2n4g``, ``np32``; model names and versions are no rank counts."""
    assert hints.file_ranks(name) == ranks


def test_variables_are_kept_by_allow_list():
    """Communication variables of a shell trace are kept, proxies and secrets are not."""
    line = "mpirun -x NCCL_ALGO=Ring -x UCX_AUTH_TOKEN=x -x HOME=/root http_proxy=http://p:1"
    assert hints.variables(line) == [("NCCL_ALGO", "Ring")]


@pytest.mark.parametrize(
    "unit",
    ["OSU MPI ", "mpirun -x ", "a" * 50, "all_reduce_perf ", "NCCL INFO ", " -> Algo ", "NCCL x:1:2 [0] NCCL INFO ", "# ",
     "1 1 float NCCL ", "Rank 0 Pid ", "<std", "\x1b]", "size count type ", "payload | "],
)  # fmt: skip
def test_hostile_lines_end_in_an_error(unit):
    """200 kB of repeated signs on one line are refused by every reader; quadratic patterns would hang here."""
    text = ("# nThread 1 nGpus 1 minBytes 8\n" + unit * (200_000 // len(unit)) + " NCCL INFO -> Algo \n") * 2
    for form in ("nccl-tests", "osu", "imb"):
        with pytest.raises(CollbenchError):
            importers.read(Source(io.BytesIO(text.encode()), "x"), Options(ranks=8), form)


def test_a_file_given_twice_is_one_log(tmp_path):
    """Under two names or inside a folder as well it is imported once."""
    (tmp_path / "a.txt").write_text("x")
    assert find_files([tmp_path / "a.txt", tmp_path, tmp_path / "." / "a.txt"]) == [tmp_path / "a.txt"]
