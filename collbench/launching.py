"""From a planned launch to the exact command, the worker's plan and the first line of a run file."""

import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from collbench import launchers
from collbench.installation import Installation
from collbench.plan import Group, Launch, to_json
from collbench.processes import MARKER, new_marker
from collbench.profile import Sampling
from collbench.request import RunOptions


def worker_plan(
    launch: Launch,
    groups: tuple[Group, ...],
    options: RunOptions,
    sampling: Sampling,
    *,
    number: int,
    output: Path,
    status: Path,
    probe: Mapping[str, Any] | None,
    evidence: Mapping[str, Any],
    budget_s: float | None,
    driver: bool = True,
    known: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return what rank 0 reads: the cases that are left, how to sample them, and where to write.

    Args:
        launch: as planned.
        groups: its cells that are still to be measured.
        options: the command line.
        sampling: how cells are sampled.
        number: of this launch in the run file.
        output: the run file.
        status: file for signs of life.
        probe: the machine's state before the launch.
        evidence: proof key → evidence found so far.
        budget_s: measuring time; None = no limit.
        driver: a driver watches from outside (its end ends the workers too).
        known: ``cell`` lines of an earlier start of the same launch, for what its finer sizes need.
    """
    return {
        **to_json(launch),
        "groups": [[c.to_json() for c in g.cases] for g in groups],
        "levels": [g.level for g in groups],
        "known": list(known),
        "launch": number,
        "output": str(output.resolve()),
        "status": str(status),
        "host": socket.gethostname() if driver else "",
        "driver_pid": os.getpid() if driver else None,
        "sync": options.sync,
        "sampling": asdict(sampling),
        "timeout_s": options.timeout_s,
        "virtual_nodes": options.virtual_nodes,
        "redact": options.redact,
        "probe": probe,
        "step_s": probe["step_ns"] * 1e-9 if probe and probe.get("step_ns") else None,
        "evidence": dict(evidence),
        "budget_s": budget_s,
    }


def launch_command(
    launch: Launch, options: RunOptions, installation: Installation, plan_file: Path
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command line and the whole environment that start one launch."""
    program = (
        str(installation.python), "-m", "collbench.worker", "--plan", str(plan_file),
        "--ranks", str(launch.ranks), "--thread-level", options.thread_level,
    )  # fmt: skip
    # The installed package measures, never a clone that happens to be the working directory.
    planned = {"PYTHONSAFEPATH": "1", **installation.env, **launch.settings, MARKER: new_marker()}
    launcher = launchers.choose(
        installation,
        template=options.launcher,
        extra_args=options.launcher_args,
        hosts=options.hosts,
        ranks_per_node=options.ranks_per_node,
        environ=os.environ,
    )
    spec = launchers.LaunchSpec(launch.ranks, program, planned, options.hosts, options.ranks_per_node)
    command = launcher.command(spec)
    return command.argv, {**os.environ, **planned, **command.env}


def run_line(
    profile: Mapping[str, Any], options: RunOptions, tool: str, argv: Sequence[str]
) -> dict[str, Any]:
    """Return the first line of a run file; it holds all that ``--resume`` needs."""
    return {
        "kind": "run",
        "schema": 1,
        "tool": tool,
        "profile": profile["name"],
        "seed": options.seed,
        "argv": list(argv),
        "label": options.label,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": sys.version.split()[0],
        "request": {"profile": profile, "options": asdict(options)},
    }
