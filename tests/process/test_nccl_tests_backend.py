"""The nccl-tests back end against a stand-in that prints the tool's real format. Nothing here is a measurement."""

import ctypes
import json
import shutil
import sys
from pathlib import Path

import pytest

from collbench import results
from collbench.algorithms.nccl import NATIVE_NUMBERS, PROTOCOLS
from collbench.backends.plugin import build, grammar

pytestmark = [pytest.mark.process, pytest.mark.once]

STANDIN = Path(__file__).with_name("nccl_perf_standin.py")

PROFILE = """
backend = "nccl-tests"
ranks_per_node = 8
launches = {launches}
[nccl]
memory_gib = 80
start_s = 0.5
[nccl-tests]
{tool}
[[sweep]]
collectives = {collectives}
ranks = {ranks}
sizes = "{sizes}"
algorithms = {algorithms}
"""


@pytest.fixture(name="folder")
def _folder(tmp_path, monkeypatch):
    """A folder of "binaries"; results and runs are kept beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    text = STANDIN.read_text().replace("#!/usr/bin/env python3", f"#!{sys.executable}", 1)
    for name in ("all_reduce", "all_gather", "alltoall", "broadcast"):
        path = folder / f"{name}_perf"
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("COLLBENCH_NCCL_TESTS_DIR", str(folder))
    return folder


@pytest.fixture(name="run")
def _run(folder, tmp_path, cli):
    """``run(sizes=…, algorithms=…)`` → (exit status, Run)."""

    def run(
        *words,
        sizes="1K:4M:x4",
        algorithms='["ring", "tree"]',
        collectives='"allreduce"',
        ranks=8,
        tool="",
        launches=1,
    ):
        profile = tmp_path / "standin.toml"
        profile.write_text(
            PROFILE.format(
                sizes=sizes,
                algorithms=algorithms,
                collectives=collectives,
                ranks=ranks,
                tool=tool,
                launches=launches,
            )
        )
        path = tmp_path / "run.jsonl"
        if "--resume" not in words:
            path.unlink(missing_ok=True)
        status = cli("run", str(profile), "-o", str(path), "--seed", "1", *words)
        return status, results.read(path) if path.exists() else None

    return run


def _cells(run):
    return {
        (
            c["case"]["algorithm"],
            c["case"]["params"].get("protocol"),
            c["case"]["nbytes"],
            c["case"]["in_place"],
        ): c
        for c in run.cells
    }


def test_every_setting_is_measured_and_proven(run):
    """Default, ring and tree with each protocol, both forms; NCCL's own lines prove algorithm and protocol."""
    status, found = run()
    assert status == 0
    cells = _cells(found)
    assert {(a, p) for a, p, *_ in cells} == {
        ("default", None),
        *((a, p) for a in ("ring", "tree") for p in ("ll", "ll128", "simple")),
    }
    assert {n for _, _, n, _ in cells} == {1024 * 4**k for k in range(7)}
    assert {place for *_, place in cells} == {False, True}
    assert all(c["evidence"]["status"] == "proven" for c in found.cells)
    assert cells["tree", "ll", 1024, False]["effective_params"] == {"protocol": "ll", "channels": 16}
    assert cells["default", None, 1024, False]["effective"] == "tree"
    assert cells["default", None, 16384, False]["effective"] == "ring"
    assert all(c["rank_reduction"] == "max" and c["sync"] == "none" for c in found.cells)
    assert found.launches[0]["purpose"] == "proof"
    assert all(
        x["library"]["version"] == "2.29.7" for x in found.launches.values() if x["purpose"] == "measure"
    )
    assert not found.failed


def test_json_is_read_where_the_tool_writes_it(run, monkeypatch):
    """The same rows come from -J."""
    monkeypatch.setenv("STANDIN_JSON", "1")
    status, found = run(sizes="1K:16K:x4")
    assert status == 0
    assert len(found.cells) == 7 * 3 * 2


def test_what_nccl_refuses_is_skipped_with_its_words(run):
    """A forced algorithm that the machine lacks is no failure and has no number."""
    status, found = run(algorithms='["nvls"]')
    assert status == 0
    assert {c["case"]["algorithm"] for c in found.cells} == {"default"}
    reasons = {s["reason"] for s in found.skipped if s["case"]["algorithm"] == "nvls"}
    assert len(reasons) == 1
    assert "NCCL refuses it: no algorithm/protocol available for function AllReduce" in reasons.pop()


def test_a_hang_costs_one_size(run, monkeypatch):
    """The process group is ended after the timeout; sizes before and after the hang are measured."""
    monkeypatch.setenv("STANDIN_HANG", "16384")
    status, found = run(
        "--timeout", "1", "--no-prove", algorithms='["default"]', sizes="1K:256K:x4", tool='dir = "unused"'
    )
    assert status == 0
    assert sorted({c["case"]["nbytes"] for c in found.cells}) == [1024, 4096, 65536, 262144]
    assert {(f["case"]["nbytes"], f["reason"]) for f in found.failed} == {(16384, "timeout")}


def test_a_crash_costs_one_size_and_says_what_was_printed(run, monkeypatch):
    """The tool's last error line is the detail."""
    monkeypatch.setenv("STANDIN_CRASH", "4096")
    status, found = run("--no-prove", algorithms='["default"]', sizes="1K:64K:x4")
    assert status == 0
    assert sorted({c["case"]["nbytes"] for c in found.cells}) == [1024, 16384, 65536]
    assert {f["case"]["nbytes"] for f in found.failed} == {4096}
    assert "unspecified launch failure" in found.failed[0]["detail"]


def test_a_signal_ends_the_run_with_130_and_keeps_the_file(run, monkeypatch, tmp_path, cli):
    """What was measured before stays, nothing counts as failed, and the run goes on from there."""
    words = ("--no-prove", "--json")
    monkeypatch.setenv("STANDIN_INTERRUPT", "16384")
    status, found = run(*words, algorithms='["default"]', sizes="1K,64K,16K")
    assert status == 130
    assert "interrupted by SIGTERM" in status.stderr
    assert not found.failed
    monkeypatch.delenv("STANDIN_INTERRUPT")
    assert cli("run", "--resume", str(tmp_path / "run.jsonl")) == 0
    assert {c["case"]["nbytes"] for c in results.read(tmp_path / "run.jsonl").cells} == {1024, 16384, 65536}


def test_rccl_tests_measure_rccl(run):
    """Its cases, and the library of its launches, are RCCL's, skipped ones included."""
    status, found = run(tool='tool = "rccl-tests"', sizes="1K:16K:x4", algorithms='["ring", "symmetric"]')
    assert status == 0
    lines = [*found.cells, *found.skipped]
    assert {x["case"]["provider"] for x in lines} == {"rccl"}
    assert {c["case"]["algorithm"] for c in found.cells} == {"default", "ring"}


def test_wrong_results_are_failures_without_a_time(run, monkeypatch):
    """Only the half that is wrong is lost."""
    monkeypatch.setenv("STANDIN_WRONG", "4096")
    _, found = run("--no-prove", algorithms='["default"]', sizes="1K:64K:x4")
    assert [(f["case"]["nbytes"], f["case"]["in_place"]) for f in found.failed] == [(4096, True)]
    assert "time_s" not in found.failed[0]
    assert len(found.cells) == 7


def test_variables_that_do_not_arrive_prove_nothing(run, monkeypatch):
    """Without NCCL's echo a forced algorithm is never reported as proven."""
    monkeypatch.setenv("STANDIN_DEAF", "1")
    _, found = run(sizes="1K:4K:x4", algorithms='["ring"]')
    forced = [c for c in found.cells if c["case"]["algorithm"] == "ring"]
    assert forced
    assert {c["evidence"]["status"] for c in forced} <= {"unknown", "contradicted"}


def test_a_launcher_gets_the_variables_on_the_far_side(run):
    """The template's fields are filled in; variables go through env behind it, so any launcher forwards them."""
    launcher = f'launcher = "{shutil.which("env")} STANDIN_RANKS={{ranks}} STANDIN_NODES={{nodes}}"'
    status, found = run(ranks=16, tool=launcher, sizes="1K:16K:x4", algorithms='["tree"]')
    assert status == 0
    assert {(c["case"]["ranks"], c["case"]["ranks_per_node"]) for c in found.cells} == {(16, 8)}
    assert {x["nodes"] for x in found.launches.values()} == {2}
    assert {c["evidence"]["status"] for c in found.cells} == {"proven"}


def test_the_users_own_settings_go_with_a_launcher(run, tmp_path, cli, monkeypatch):
    """The default is the user's untouched stack on every node, not only on the first."""
    run(ranks=16, tool='launcher = "env STANDIN_RANKS={ranks}"', sizes="1K", algorithms='["ring"]')
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    shown = cli("run", str(tmp_path / "standin.toml"), "--dry-run").stdout
    assert "env STANDIN_RANKS=16 env NCCL_ALGO=Ring NCCL_PROTO=LL NCCL_SOCKET_IFNAME=eth7 " in shown


def test_too_few_ranks_are_no_measurement(run):
    """A launcher that starts fewer ranks than asked for yields failed cells only, exit 3."""
    status, found = run(
        ranks=16, tool='launcher = "env STANDIN_RANKS=8"', sizes="1K", algorithms='["default"]'
    )
    assert status == 3
    assert {f["reason"] for f in found.failed} == {"wrong_ranks"}


def test_resume_measures_only_what_is_missing(run, tmp_path, cli):
    """A run file cut in the middle is completed; nothing is measured twice, launch numbers go on."""
    _, whole = run(launches=2, sizes="1K:64K:x4", algorithms='["ring"]')
    path = tmp_path / "run.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: len(lines) // 2]))
    before = results.read(path)
    assert cli("run", "--resume", str(path)) == 0
    after = results.read(path)

    def keys(run):
        return sorted(
            (run.launches[c["launch"]]["repetition"], json.dumps(c["case"], sort_keys=True))
            for c in run.cells
        )

    assert keys(after) == keys(whole)
    assert len(after.cells) > len(before.cells)


def test_total_sizes_are_rounded_as_the_tool_does(run):
    """Six ranks: the rows hold the rounded sizes, and every one is found again."""
    status, found = run(collectives='"allgather"', ranks=6, sizes="1K:64K:x4", algorithms='["ring"]')
    assert status == 0
    assert {c["case"]["nbytes"] for c in found.cells} == {s // 24 * 24 for s in (1024, 4096, 16384, 65536)}
    assert not found.failed


def test_a_missing_folder_or_binary_is_one_sentence(folder, run, monkeypatch):
    """Exit 3 and what to do; no run file is left."""
    (folder / "all_reduce_perf").unlink()
    status, left = run()
    assert status == 3
    assert left is None
    assert "all_reduce_perf is no program" in status.stderr
    monkeypatch.delenv("COLLBENCH_NCCL_TESTS_DIR")
    status, _ = run()
    assert status == 3
    assert "no nccl-tests binaries" in status.stderr


def test_dry_run_prints_the_exact_commands_without_binaries(run, tmp_path, cli, monkeypatch):
    """Nothing is started, nothing written."""
    run(sizes="1K:4K:x4")
    monkeypatch.delenv("COLLBENCH_NCCL_TESTS_DIR")
    status = cli("run", str(tmp_path / "standin.toml"), "--dry-run")
    assert status == 0
    assert (
        "env NCCL_ALGO=Ring NCCL_PROTO=LL128 all_reduce_perf -b 1024 -e 4096 -f 4 -d float -o sum -g 8"
        in status.stdout
    )
    assert "GPU-hours" in status.stdout


def test_from_the_stand_in_to_a_table_that_the_compiled_plugin_follows(run, tmp_path, cli, monkeypatch):
    """run → recommend → the plugin's answers through its interface → guidance; the numbers are the stand-in's."""
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        pytest.skip("no C compiler")
    status, found = run("--no-prove", "--timeout", "60s", launches=3, sizes="1K:64M:x8")
    assert status == 0
    assert not found.failed
    table = tmp_path / "table.txt"
    recommended = cli("recommend", str(tmp_path / "run.jsonl"), "--format", "nccl-tuner", "-o", str(table))
    assert recommended == 0
    assert "allreduce" in recommended.stdout
    rules = grammar.parse(table.read_text()).rules
    assert {(rule.algorithm, rule.protocol) for rule in rules} == {("tree", "ll"), ("tree", "ll128")}
    monkeypatch.setenv(grammar.TABLE_VARIABLE, str(table))
    library = build.build(tmp_path / build.LIBRARY)
    for nbytes in (1024, 8192, 65536, 524288, 4194304, 67108864):
        rule = grammar.find(grammar.parse(table.read_text()), "allreduce", nbytes, 8, 1)
        expected = None if rule is None else (NATIVE_NUMBERS[rule.algorithm], PROTOCOLS.index(rule.protocol))
        assert _plugin_answer(library, 8, 1, nbytes) == expected
        assert _plugin_answer(library, 16, 2, nbytes) is None
    guidance = cli("recommend", str(tmp_path / "run.jsonl"), "--guidance-only")
    assert guidance == 0
    assert "card" in guidance.stdout


def _plugin_answer(library, ranks, nodes, nbytes):
    """Return (algorithm, protocol) whose cost the plugin sets to 0 for an allreduce; None = it changes nothing."""
    words = (ctypes.c_void_p * 4).in_dll(ctypes.CDLL(str(library)), "ncclTunerPlugin_v6")
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    init = ctypes.CFUNCTYPE(number, pointer, ctypes.c_uint64, size, size, pointer, pointer, pointer)(words[1])
    get = ctypes.CFUNCTYPE(number, pointer, number, size, number, pointer, number, number, number, pointer)(
        words[2]
    )
    end = ctypes.CFUNCTYPE(number, pointer)(words[3])
    context, channels, costs = pointer(), number(0), (ctypes.c_float * 21)(*[7.0] * 21)
    assert init(ctypes.addressof(context), 1, ranks, nodes, None, None, None) == 0
    assert get(context, 4, nbytes, 1, ctypes.addressof(costs), 7, 3, 0, ctypes.addressof(channels)) == 0
    assert end(context) == 0
    zeros = [i for i, cost in enumerate(costs) if cost == 0.0]
    assert len(zeros) <= 1
    return divmod(zeros[0], 3) if zeros else None
