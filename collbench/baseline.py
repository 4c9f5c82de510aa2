"""Baselines: which run CI compares with, for which hardware and nodes, who set it, when and why."""

import getpass
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench import atomic, results
from collbench.errors import UnansweredError, UsageError
from collbench.results import RESULTS_DIR, Run

FILE = "baseline.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One baseline.

    Attributes:
        path: its run file.
        sha256: of the run file when it was set.
        hardware: what it belongs to: cpu, cores, hosts, ranks per node.
        who: user.
        when: UTC.
        why: the user's reason.
        same_hardware: whether it belongs to the hardware of the run it was chosen for.
    """

    path: Path
    sha256: str
    hardware: Mapping[str, Any]
    who: str
    when: str
    why: str
    same_hardware: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the entry as it is stored and printed."""
        return {"file": str(self.path), "sha256": self.sha256, "hardware": dict(self.hardware),
                "who": self.who, "when": self.when, "why": self.why}  # fmt: skip


def store() -> Path:
    """Return the file that names the baselines: baseline.json in the results folder."""
    return Path(os.environ.get("COLLBENCH_RESULTS", str(RESULTS_DIR))) / FILE


def hardware(run: Run) -> dict[str, Any]:
    """Return what a run's numbers belong to: processor, cores, node set.

    Raises:
        UnansweredError: the run says nothing of its machine.
    """
    launch = next((x for x in run.launches.values() if x.get("environment")), None)
    if launch is None:
        raise UnansweredError(f"{run.name} does not say which machine it was measured on (imported?)")
    environment = launch["environment"]
    hosts = {host for x in run.launches.values() for host in x.get("hosts") or ()}
    return {
        "cpu": environment.get("cpu"),
        "cores": environment.get("cores"),
        "hosts": sorted(hosts or {str(environment.get("hostname"))}),
    }


def entries() -> list[Entry]:
    """Return all baselines, the newest last.

    Raises:
        UsageError: the file is broken.
    """
    path = store()
    if not path.exists():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["baselines"]
        return [
            Entry(_resolved(row["file"]), row["sha256"], row["hardware"], row["who"], row["when"], row["why"])
            for row in rows
        ]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UsageError(f"{path} is no file of baselines ({error}): mend or remove it") from None


def _resolved(name: str) -> Path:
    path = Path(name)
    return path if path.is_absolute() else store().parent / path


def choose(run: Run) -> Entry:
    """Return the baseline of a run's hardware and nodes, else the newest of other hardware, marked so.

    Raises:
        UnansweredError: there is none, its file is gone, or is not what was set.
    """
    known = entries()
    if not known:
        raise UnansweredError(f"there is no baseline in {store()}: set one with 'collbench baseline set RUN'")
    key = hardware(run)
    own = [entry for entry in known if dict(entry.hardware) == key]
    entry = (own or known)[-1]
    if not entry.path.exists():
        raise UnansweredError(
            f"the baseline {entry.path} is gone: set another with 'collbench baseline update RUN'"
        )
    if _sum(entry.path) != entry.sha256:
        raise UnansweredError(f"the baseline {entry.path} is not the file that was set (its checksum differs): "
                              "set it again with 'collbench baseline update RUN --why …'")  # fmt: skip
    return Entry(entry.path, entry.sha256, entry.hardware, entry.who, entry.when, entry.why, bool(own))


def put(path: Path, why: str, *, replace: bool) -> Entry:
    """Make a run file the baseline of its hardware.

    Args:
        path: the run file.
        why: reason, kept.
        replace: update the one that is there; without it a second one for the same hardware is refused.

    Raises:
        UsageError: there is one already (or, to replace, none), or the run holds no cell.
    """
    run = results.read(path)
    if not run.cells:
        raise UsageError(f"{path} holds no measured cell: it cannot be a baseline")
    key = hardware(run)
    known = entries()
    others = [e for e in known if dict(e.hardware) != key]
    own = next((e for e in known if dict(e.hardware) == key), None)
    if own and not replace:
        raise UsageError(
            f"there is a baseline for this hardware: {own.path}; change it with 'baseline update'"
        )
    if own is None and replace:
        raise UsageError("there is no baseline for this hardware to update: use 'baseline set'")
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    entry = Entry(path, _sum(path), key, _user(), when, why)
    folder = store().parent
    rows = []
    for each in (*others, entry):
        inside = each.path.resolve().is_relative_to(folder.resolve())
        name = each.path.resolve().relative_to(folder.resolve()) if inside else each.path.resolve()
        rows.append({**each.to_json(), "file": str(name)})
    text = json.dumps({"schema": SCHEMA, "baselines": rows}, indent=1, ensure_ascii=False)
    atomic.write_text(store(), text + "\n", force=True)
    return entry


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
