"""A check on a machine with one GPU, a few minutes long: ``python tests/gpu/device_check.py [-o RUN.jsonl]``.

One rank on one GPU, several ranks on one GPU where NCCL allows it (2.30 and newer), and the tuner plugin loaded by the
real library. Writes a run file and prints what passed. Exit status: 0 all passed or skipped with a reason, 1 something
failed, 3 nothing could be tried. It needs nccl4py, cuda-bindings and this package; no MPI.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from collbench import __version__
from collbench.algorithms.nccl import MEASURABLE
from collbench.backends import nccl_plan, nccl_presence
from collbench.backends.plugin import build, grammar
from collbench.profile import parse
from collbench.request import RunOptions
from collbench.runfile import RunWriter, parse_lines

MULTI_RANK_SINCE = (2, 30)
TIMEOUT_S = 150
PROFILE = """
backend = "nccl"
[nccl]
memory_gib = 4
prune = false
timings = ["host", "events", "graph"]
[defaults]
ranks = {ranks}
sizes = "{sizes}"
[[sweep]]
collectives = {collectives}
dtypes = {dtypes}
in_place = [false, true]
algorithms = {algorithms}
"""
RULES = (grammar.TunerRule("allreduce", (0, None), (0, None), (0, None), "ring", "ll", 2),)


class Check:
    """Runs launches of the worker and keeps what passed."""

    def __init__(self, output: Path, folder: Path) -> None:
        self.output, self.folder, self.number = output, folder, 0
        self.lines: list[tuple[str, str, str]] = []

    def say(self, name: str, status: str, detail: str) -> None:
        """Print one finding and keep it."""
        self.lines.append((name, status, detail))
        print(f"{status:7s} {name}: {detail}", flush=True)

    def launch(
        self, name: str, text: str, *, purpose: str = "measure", env: dict[str, str] | None = None
    ) -> str:
        """Start the worker on every rank of this node and judge what it wrote; return what it printed."""
        chosen = parse(text, name, name)
        plan = nccl_plan.make_plan(chosen, RunOptions(iterations=20))
        ranks = plan.ranks[0]
        before = len(self.output.read_bytes())
        plan_file = self.folder / f"plan{self.number}.json"
        plan_file.write_text(json.dumps({
            "launch": self.number, "purpose": purpose, "repetition": 0, "ranks": ranks, "ranks_per_node": ranks,
            "groups": [[c.to_json() for c in g] for g in plan.groups], "timings": plan.request.timings,
            "sampling": asdict(chosen.sampling),
            "iterations": 20, "output": str(self.output), "status": str(self.folder / "status"), "evidence": {},
        }))  # fmt: skip
        self.number += 1
        words = [
            sys.executable,
            "-m",
            "collbench.backends.nccl_worker",
            "--plan",
            str(plan_file),
            "--spawn",
            str(ranks),
        ]
        started = time.monotonic()
        try:
            done = subprocess.run(words, env={**os.environ, **(env or {})}, capture_output=True, text=True,
                                  timeout=TIMEOUT_S, check=False)  # fmt: skip
        except subprocess.TimeoutExpired as error:
            self.say(name, "FAILED", f"no end within {TIMEOUT_S} s")
            return str(error.stdout or "")
        self._judge(name, before, done.returncode, done.stdout + done.stderr, time.monotonic() - started)
        return done.stdout + done.stderr

    def _judge(self, name: str, before: int, status: int, said: str, seconds: float) -> None:
        new = [json.loads(x) for x in self.output.read_bytes()[before:].splitlines()]
        kinds = {k: [x for x in new if x["kind"] == k] for k in ("cell", "failed", "skipped", "proof")}
        words = ", ".join(f"{len(v)} {k}" for k, v in kinds.items() if v) or "no lines"
        where = sorted({x["checked"] for x in kinds["cell"]})
        words += f" (results compared on the {' and the '.join(where)})" if where else ""
        bad = status != 0 or kinds["failed"] or not (kinds["cell"] or kinds["proof"])
        reasons = sorted({x["reason"] for x in [*kinds["failed"], *kinds["skipped"]]})[:4]
        detail = f"{words} in {seconds:.0f} s" + (f"; {'; '.join(reasons)}" if reasons else "")
        if status:
            detail += f"; exit status {status}: {' '.join(said.split())[-400:]}"
        self.say(name, "FAILED" if bad else "passed", detail)


def _profile(ranks: int, sizes: str, collectives: list[str], algorithms: str, dtypes: list[str]) -> str:
    return PROFILE.format(ranks=ranks, sizes=sizes, collectives=json.dumps(collectives), algorithms=json.dumps(algorithms),
                          dtypes=json.dumps(dtypes))  # fmt: skip


def one_gpu(check: Check) -> None:
    """One rank: communicator, every collective, types, three ways of timing, a result check of each."""
    names = [n for n in MEASURABLE if n != "sendrecv"]
    check.launch("one rank, all collectives", _profile(1, "1K,1M,64M", names, "default", ["float32"]))
    kinds = ["int8", "float16", "bfloat16", "float64"]
    check.launch("one rank, element types", _profile(1, "1M", ["allreduce"], "default", kinds))


def several_ranks(check: Check, version: tuple[int, ...]) -> None:
    """Two ranks on the one GPU: forcing, proof, compositions. NCCL before 2.30 refuses this."""
    name = "two ranks on one GPU"
    if version < MULTI_RANK_SINCE:
        check.say(
            name,
            "skipped",
            f"NCCL {'.'.join(map(str, version))} has no NCCL_MULTI_RANK_GPU_ENABLE (2.30 and newer)",
        )
        return
    # LOCAL_RANK is the rank on the node; both ranks of this check belong to GPU 0.
    env = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "COLLBENCH_ONE_GPU": "1"}
    text = _profile(2, "1K,1M", list(MEASURABLE), "all", ["float32"])
    check.launch(f"{name}, proof", text, purpose="proof", env=env)
    check.launch(f"{name}, all algorithms", text, env=env)
    plugin(check, env)


def plugin(check: Check, env: dict[str, str]) -> None:
    """The real library loads our plugin, takes its choice, and names it in its log."""
    library = build.build(check.folder / build.LIBRARY)
    table = check.folder / "table.txt"
    table.write_text(grammar.render(RULES))
    before = len(check.output.read_bytes())
    check.launch("tuner plugin", _profile(2, "1M", ["allreduce"], "default", ["float32"]), purpose="proof",
                 env={**env, **build.activation(library, str(table))})  # fmt: skip
    proofs = [
        x for x in map(json.loads, check.output.read_bytes()[before:].splitlines()) if x["kind"] == "proof"
    ]
    ran = [(p["effective"], p.get("params")) for p in proofs]
    right = bool(ran) and all(e == "ring" and (p or {}).get("protocol") == "ll" for e, p in ran)
    check.say(
        "tuner plugin's choice (ring, LL, 2 channels)",
        "passed" if right else "FAILED",
        f"NCCL's log says {ran}",
    )


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("device-check.jsonl"))
    output = parser.parse_args().output.resolve()
    absent = nccl_presence.missing()
    if absent:
        print(f"nothing could be tried: missing {' and '.join(absent)}")
        return 3
    from collbench.backends import nccl_bind

    version = nccl_bind.version()
    with RunWriter(output, create=True) as writer:
        writer.write({"kind": "run", "schema": 1, "tool": f"collbench {__version__}", "profile": None, "seed": 0,
                      "argv": ["device_check"], "label": "device check", "options": asdict(RunOptions())})  # fmt: skip
    print(f"NCCL {'.'.join(map(str, version))}, {nccl_presence.gpus()} GPU(s)")
    with tempfile.TemporaryDirectory() as folder:
        check = Check(output, Path(folder))
        one_gpu(check)
        several_ranks(check, version)
    parse_lines(output.read_bytes(), output)
    print(f"run file: {output}")
    return 1 if any(status == "FAILED" for _, status, _ in check.lines) else 0


if __name__ == "__main__":
    sys.exit(main())
