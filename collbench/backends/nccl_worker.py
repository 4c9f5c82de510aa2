"""One rank of the NCCL back end: ``python -m collbench.backends.nccl_worker --plan FILE``; ``--spawn N`` starts N ranks."""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collbench import environment
from collbench.backends import nccl_measure as measure
from collbench.backends import nccl_race
from collbench.backends.nccl_control import PORT_OFFSET, Control, connect
from collbench.errors import CollbenchError
from collbench.importers import nccl_log
from collbench.profile import Sampling
from collbench.records import Case, Evidence, Measurement
from collbench.runfile import RunWriter
from collbench.samplers import doubts, percentiles

EXIT_UNUSABLE = 88
ONE_GPU = "COLLBENCH_ONE_GPU"
"""Set to 1, all ranks of a node share GPU 0 (NCCL_MULTI_RANK_GPU_ENABLE=1, NCCL 2.30 and newer)."""
DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING"}
SYNC, TIMER = "none", {"host": "host", "events": "cuda_event", "graph": "cuda_graph"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank, or start the ranks of one node, and return the exit status."""
    parser = argparse.ArgumentParser(prog="collbench.backends.nccl_worker")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--spawn", type=int)
    options = parser.parse_args(argv)
    if options.spawn:
        return spawn(options.spawn, ("-m", "collbench.backends.nccl_worker", "--plan", str(options.plan)))
    try:
        control = connect()
        return _run(
            control, json.loads(control.share(options.plan.read_bytes() if control.rank == 0 else b""))
        )
    except Exception as error:
        # The bindings' own errors (no driver, no such GPU) are answers for the user; our own faults stay faults.
        foreign = type(error).__module__.split(".")[0] in ("cuda", "nccl")
        if not foreign and not isinstance(error, CollbenchError | ImportError):
            raise
        print(f"collbench.nccl_worker: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return EXIT_UNUSABLE


def spawn(ranks: int, program: Sequence[str]) -> int:
    """Start ``ranks`` processes of this Python on this node and return the first bad exit status.

    When one ends badly the others are ended too: they would wait for it for ever.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = {
        **os.environ,
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port - PORT_OFFSET),
    }
    started = [
        subprocess.Popen([sys.executable, *program], env={**base, "RANK": str(r), "LOCAL_RANK": str(r)})
        for r in range(ranks)
    ]
    try:
        while True:
            states = [process.poll() for process in started]
            bad = [s for s in states if s not in (None, 0)]
            if bad or None not in states:
                return bad[0] if bad and bad[0] is not None else 0
            time.sleep(0.02)
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
        for process in started:
            process.wait()


def _run(control: Control, plan: Mapping[str, Any]) -> int:
    if control.ranks != plan["ranks"]:
        raise CollbenchError(f"{control.ranks} ranks came up where {plan['ranks']} were asked for")
    proof = plan["purpose"] == "proof"
    with tempfile.TemporaryDirectory(prefix="collbench-nccl-") as folder:
        log = Path(folder) / "nccl.log"
        if proof:
            # On local disk, and before NCCL reads it: its debug settings are read once per process.
            os.environ.update({**DEBUG, "NCCL_DEBUG_FILE": str(log)})
        from collbench.backends import nccl_bind as bind  # noqa: PLC0415 - loads CUDA, only in a rank

        # Several ranks on one GPU are a check of the code, never a measurement: the rows say so.
        device = 0 if os.environ.get(ONE_GPU) == "1" else control.local_rank
        session = measure.Session(bind.Gpu(device), control, bind.choose, bind.unique_id,
                                  plan["ranks_per_node"])  # fmt: skip
        rank = _Rank(session, plan, log if proof else None)
        rank.emit(_launch_line(plan, bind.version()))
        for group in plan["groups"]:
            rank.group([Case.from_json(c) for c in group])
        session.close()
        rank.close()
    control.barrier()
    control.close()
    return 0


def _launch_line(plan: Mapping[str, Any], version: tuple[int, ...]) -> dict[str, Any]:
    dotted, per_node = ".".join(str(n) for n in version), plan["ranks_per_node"]
    return {
        "kind": "launch", "launch": plan["launch"], "purpose": plan["purpose"], "repetition": plan["repetition"],
        "variant": None, "ranks": plan["ranks"], "nodes": -(-plan["ranks"] // per_node), "ranks_per_node": per_node,
        "node_sizes": [], "library": {"name": "nccl", "version": dotted, "string": f"NCCL {dotted}"},
        "thread_level": None, "settings": {}, "environment": environment.capture(), "probe": None,
        "oversubscribed": os.environ.get(ONE_GPU) == "1", "emulated": False,
    }  # fmt: skip


class _Rank:
    """What one rank does with the groups of a plan; rank 0 writes."""

    def __init__(self, session: measure.Session, plan: Mapping[str, Any], log: Path | None) -> None:
        self._session, self._plan, self._log = session, plan, log
        first = session.control.rank == 0
        self._writer = RunWriter(Path(plan["output"])) if first else None
        self._status = Path(plan["status"]) if first else None
        self._seen = 0

    def emit(self, line: Mapping[str, Any]) -> None:
        """Append a line to the run file (rank 0)."""
        if self._writer:
            self._writer.write(line)

    def close(self) -> None:
        """Close the run file."""
        if self._writer:
            self._writer.close()

    def group(self, cases: Sequence[Case]) -> None:
        """Prepare the cases of a cell, then time them in rotated blocks, or prove each with one call."""
        if self._status:
            self._status.write_text(json.dumps([c.to_json() for c in cases]))
        self._session.release()
        ready = []
        for case in cases:
            try:
                self._log_mark()
                found = measure.prepare(self._session, case)
            except measure.RefusedError as error:
                self.emit(
                    {
                        "kind": "skipped",
                        "case": case.to_json(),
                        "reason": f"NCCL refuses it: {str(error)[:200]}",
                    }
                )
            except ValueError as error:
                self._fail(case, "wrong_result", str(error))
            else:
                if self._log is not None:
                    self._prove(case)
                else:
                    ready.append(found)
        for timing in self._plan["timings"] if self._log is None else ():
            self._race(ready, timing)

    def _fail(self, case: Case, reason: str, detail: str) -> None:
        self.emit({"kind": "failed", "launch": self._plan["launch"], "case": case.to_json(), "reason": reason,
                   "detail": detail})  # fmt: skip

    def _race(self, ready: Sequence[measure.Ready], timing: str) -> None:
        sampling = Sampling(**self._plan["sampling"])
        race, lengths = nccl_race.race(self._session, ready, timing, sampling, self._plan["iterations"])
        for entry, series, length in zip(ready, race.series, lengths, strict=True):
            times = np.concatenate(series.times)
            evidence = self._plan["evidence"].get(proof_key(entry.case), {})
            extra = {"checked": entry.checked, "stopped_by": race.stopped_by, "rounds": len(series.blocks)}
            if evidence.get("params"):
                extra["effective_params"] = evidence["params"]
            self.emit(
                Measurement(
                    entry.case, self._plan["launch"], float(np.median(times)), tuple(series.blocks),
                    percentiles(times) if timing == "events" else {}, length * len(series.blocks), sync=SYNC,
                    timer=TIMER[timing], evidence=_evidence(entry.case, evidence),
                    warnings=tuple(doubts(series, None)), extra=extra,
                ).to_json()
            )  # fmt: skip

    def _log_mark(self) -> None:
        if self._log is not None and self._log.exists():
            self._seen = self._log.stat().st_size

    def _prove(self, case: Case) -> None:
        """Read what NCCL wrote about the one call of ``prepare`` (rank 0's log speaks for all)."""
        if self._session.control.rank or self._log is None:
            return
        text = self._log.read_bytes()[self._seen :].decode(errors="replace") if self._log.exists() else ""
        evidence, params = read_proof(text, case)
        self.emit({"kind": "proof", "launch": self._plan["launch"], "key": proof_key(case), "case": case.to_json(),
                   "effective": evidence.effective, "params": params, "evidence": evidence.to_json()})  # fmt: skip


def proof_key(case: Case) -> str:
    """Return the key under which the proof of a case is found: every size, because NCCL chooses by size."""
    cell = case.cell
    words = (
        cell.collective,
        cell.ranks,
        case.provider,
        case.label,
        cell.nbytes,
        cell.dtype,
        cell.op,
        cell.in_place,
    )
    return "|".join(str(w) for w in words)


def read_proof(text: str, case: Case) -> tuple[Evidence, dict[str, Any]]:
    """Return what NCCL's debug lines of one call show, with protocol and channels."""
    cell = case.cell
    if case.algorithm == "symmetric":
        ran = "[Symmetric]" in text
        words = "NCCL's log names a symmetric kernel" if ran else "NCCL's log names no symmetric kernel"
        return Evidence("proven" if ran else "unknown", "tuning_log" if ran else None,
                        "symmetric" if ran else None, (), words), {}  # fmt: skip
    log = nccl_log.NcclLog()
    for line in text.splitlines():
        log.take(line)
    evidence, extra = nccl_log.evidence(log, cell.collective, cell.nbytes, cell.ranks, case.algorithm)
    if case.algorithm == "default" and not evidence.effective and "[Symmetric]" in text:
        evidence = Evidence("proven", "tuning_log", "symmetric", (), "NCCL's log names a symmetric kernel")
    params = extra.get("effective_params")
    found: dict[str, Any] = dict(params) if isinstance(params, dict) else {}
    asked = dict(case.params).get("protocol")
    if asked and found.get("protocol", asked) != asked:
        words = f"protocol {found['protocol']} ran where {asked} was asked for"
        evidence = Evidence("contradicted", "tuning_log", evidence.effective, (), words)
    return evidence, found


def _evidence(case: Case, found: Mapping[str, Any]) -> Evidence:
    if case.provider == "portable":
        return Evidence("proven", "own_code", case.algorithm)
    if not found:
        return Evidence()
    return Evidence(found["status"], found.get("by"), found.get("effective"), tuple(found.get("candidates", ())),
                    found.get("detail", ""))  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
