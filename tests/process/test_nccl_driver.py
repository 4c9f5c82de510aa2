"""The driver of the NCCL back end around launches of a stand-in worker; its numbers are made up and never shown."""

import os
import sys
from pathlib import Path

import pytest

from collbench import profile, results
from collbench.backends import nccl, nccl_presence
from collbench.errors import InterruptedRunError, UnansweredError
from collbench.request import RunOptions
from collbench.runfile import RunWriter

pytestmark = [pytest.mark.process, pytest.mark.once]

STANDIN = """
import json, os, signal, sys
from collbench.backends.nccl_worker import proof_key
from collbench.records import Case
from collbench.runfile import RunWriter
plan = json.load(open(sys.argv[1]))
bad = os.environ.get("STANDIN_CRASH")
with RunWriter(__import__("pathlib").Path(plan["output"])) as run:
    run.write({"kind": "launch", "launch": plan["launch"], "purpose": plan["purpose"], "repetition": plan["repetition"],
               "ranks": plan["ranks"], "nodes": 1, "library": {"name": "nccl", "version": "2.32.3"}})
    for group in plan["groups"]:
        open(plan["status"], "w").write(json.dumps(group))
        for case in group:
            if case["algorithm"] == "nvls":
                run.write({"kind": "skipped", "case": case, "reason": "NCCL refuses it: no NVSwitch"})
            elif plan["purpose"] == "proof":
                run.write({"kind": "proof", "launch": plan["launch"], "key": proof_key(Case.from_json(case)), "case": case,
                           "effective": case["algorithm"], "params": {},
                           "evidence": {"status": "proven", "by": "tuning_log"}})
            elif str(case["nbytes"]) == os.environ.get("STANDIN_INTERRUPT"):
                open(os.environ["STANDIN_PID"], "w").write(str(os.getpid()))
                os.kill(os.getppid(), signal.SIGTERM)
                signal.pause()
            elif str(case["nbytes"]) == bad:
                print("rank 0 lost its GPU")
                run.close()
                os._exit(9)
            else:
                known = plan["evidence"].get(proof_key(Case.from_json(case)), {"status": "unknown"})
                run.write({"kind": "cell", "launch": plan["launch"], "case": case, "time_s": 1e-5, "evidence": known})
"""

PROFILE = """
backend = "nccl"
launches = 2
[nccl]
start_s = 0.1
[[sweep]]
collectives = "allreduce"
ranks = [2, 4]
sizes = "1K,4K,16K"
algorithms = ["ring[protocol=simple]", "nvls"]
"""


@pytest.fixture(name="measure")
def _measure(tmp_path, monkeypatch):
    """``measure()`` executes the profile around the stand-in and returns the run; the file is kept between calls."""
    script = tmp_path / "standin.py"
    script.write_text(STANDIN)
    path = tmp_path / "run.jsonl"
    monkeypatch.setattr(nccl_presence, "require", lambda _ranks: None)
    monkeypatch.setattr(nccl, "_live_version", lambda: (2, 32, 3))
    monkeypatch.setattr(
        nccl, "_command", lambda _p, _r, _o, plan_file: [sys.executable, str(script), str(plan_file)]
    )

    def measure(budget_s=None):
        chosen = profile.parse(PROFILE, "test", "test")
        if budget_s is not None:
            chosen = profile.parse(f'budget = "{budget_s}s"\n{PROFILE}', "test", "test")
        with RunWriter(path) as writer:
            if not Path(path).stat().st_size:
                writer.write({"kind": "run", "schema": 1})
            nccl.Backend().execute(chosen, RunOptions(seed=1), writer)
        return results.read(path)

    measure.path = path
    return measure


def _keys(run):
    return sorted((run.launches[c["launch"]]["repetition"], c["case"]["ranks"], c["case"]["algorithm"], c["case"]["nbytes"])
                  for c in run.cells)  # fmt: skip


EVERYTHING = sorted((rep, ranks, name, size) for rep in (0, 1) for ranks in (2, 4) for name in ("default", "ring")
                    for size in (1024, 4096, 16384))  # fmt: skip


def test_each_rank_count_is_proven_once_and_measured_in_every_repetition(measure):
    """Refused cases are asked for once; the proof's evidence reaches the rows."""
    run = measure()
    assert _keys(run) == EVERYTHING
    assert [x["purpose"] for x in run.launches.values()] == ["proof", "measure", "measure"] * 2
    assert {c["evidence"]["status"] for c in run.cells} == {"proven"}
    refused = [s for s in run.skipped if s["reason"].startswith("NCCL refuses")]
    assert len(refused) == 6


def test_a_crash_costs_the_cell_in_flight_only(measure, monkeypatch):
    """Its cases fail with what was printed; all others are measured by a new launch."""
    monkeypatch.setenv("STANDIN_CRASH", "4096")
    run = measure()
    assert _keys(run) == [k for k in EVERYTHING if k[3] != 4096]
    assert {(f["case"]["nbytes"], f["reason"]) for f in run.failed} == {(4096, "crashed")}
    assert "rank 0 lost its GPU" in run.failed[0]["detail"]


def test_a_finished_file_is_not_measured_again_and_a_cut_one_is_completed(measure):
    """Resuming goes by what the file holds."""
    whole = _keys(measure())
    lines = measure.path.read_text().splitlines(keepends=True)
    assert _keys(measure()) == whole
    measure.path.write_text("".join(lines[: len(lines) // 2]))
    assert _keys(measure()) == whole


def test_a_spent_budget_skips_the_rest(measure):
    """With the reason, and without a number."""
    with pytest.raises(UnansweredError, match="NCCL measured nothing"):
        measure(budget_s=0.001)
    run = results.read(measure.path)
    assert not run.cells
    assert "the time budget was spent" in {s["reason"] for s in run.skipped}


def test_the_batch_systems_signal_ends_the_run_and_keeps_the_file(measure, monkeypatch, tmp_path):
    """The launch in flight is ended too; exit 130; the file is completed by the next call."""
    monkeypatch.setenv("STANDIN_INTERRUPT", "4096")
    monkeypatch.setenv("STANDIN_PID", str(tmp_path / "pid"))
    with pytest.raises(InterruptedRunError, match=r"SIGTERM.*--resume") as caught:
        measure()
    assert caught.value.exit_status == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert not results.read(measure.path).failed
    monkeypatch.delenv("STANDIN_INTERRUPT")
    assert _keys(measure()) == EVERYTHING
