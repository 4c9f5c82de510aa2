"""What a worker tells its driver: the status file, and the sentences for launches that cannot work."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench.errors import UnansweredError
from collbench.installation import Installation
from collbench.plan import Launch


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker's last sign of life.

    Attributes:
        at: when, seconds since the epoch.
        state: measuring or done.
        case: the case in flight as a run file's ``case`` object; None between cases.
        timeout_s: how long it may stay silent from then on.
    """

    at: float
    state: str
    case: Mapping[str, Any] | None
    timeout_s: float


def read(path: Path) -> WorkerStatus | None:
    """Return the last status; None before the first one (or while it is being overwritten)."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return WorkerStatus(found["at"], found["state"], found["case"], found["timeout_s"])


def raise_for(said: str, launch: Launch, installation: Installation, output: Path) -> None:
    """Raise when what a launch printed means that no launch can work.

    Args:
        said: the end of its output.
        launch: what was started.
        installation: with what.
        output: the run file.

    Raises:
        UnansweredError: singletons, lost variables, no MPI, or a full disk; one sentence with the remedy.
    """
    if "collbench.worker:" not in said:
        return
    message = (
        next(x for x in said.splitlines() if "collbench.worker:" in x)
        .partition("collbench.worker:")[2]
        .strip()
    )
    if "came up where" in message:
        raise UnansweredError(
            f"{installation.mpiexec} started {launch.ranks} separate processes that do not see each other: it belongs to "
            f"another MPI than the {installation.library} that mpi4py loads; run 'collbench doctor', or name the right one "
            "with --mpi"
        )
    if "planned variables" in message:
        raise UnansweredError(f"{message}; let the launcher forward them with --launcher-args")
    if "cannot be loaded" in message:
        raise UnansweredError(f"{message}; run 'collbench doctor' for the command that mends it")
    if "cannot go on writing" in message:
        raise UnansweredError(message)
    raise UnansweredError(f"the worker stopped: {message} (run file: {output})")
