"""Inside a launch: ``python -m collbench.worker``, started on every rank by the runner.

Imports mpi4py, numpy and a few modules of collbench; rank 0 alone reads the plan and writes the run file.
"""

import argparse
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from collbench import environment, schedule
from collbench.backends.mpi import prove_case
from collbench.backends.session import Session
from collbench.errors import CollbenchError, UnansweredError
from collbench.heartbeat import Status
from collbench.mpi import library, start, state, switch
from collbench.mpi.clock import Clocks
from collbench.portable import topology
from collbench.profile import Sampling
from collbench.records import Case, Evidence, Topology
from collbench.runfile import RunWriter

EXIT_SINGLETON = 86
EXIT_ENVIRONMENT = 87
EXIT_NO_MPI = 88
EXIT_WRITE = 89


def main(argv: Sequence[str] | None = None) -> int:
    """Run one launch of a plan and return its exit status."""
    parser = argparse.ArgumentParser(prog="collbench.worker")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--thread-level", default="single")
    options = parser.parse_args(argv)
    try:
        MPI = start.start(options.thread_level)
    except (ImportError, CollbenchError) as error:
        print(f"collbench.worker: MPI cannot be loaded: {error}", file=sys.stderr)
        return EXIT_NO_MPI
    return run(MPI, options.plan, options.ranks)


def run(MPI: Any, plan_file: Path, ranks: int) -> int:
    """Measure the plan with the ranks that are here."""
    comm = MPI.COMM_WORLD
    if comm.Get_size() != ranks:
        print(
            f"collbench.worker: {comm.Get_size()} rank(s) came up where {ranks} were asked for",
            file=sys.stderr,
        )
        return EXIT_SINGLETON
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    control = comm.Dup()
    plan = json.loads(share_text(MPI, control, plan_file.read_text() if comm.Get_rank() == 0 else ""))
    missing = _missing_settings(MPI, control, plan["settings"])
    if missing:
        if comm.Get_rank() == 0:
            print(f"collbench.worker: planned variables did not reach every rank: {missing}", file=sys.stderr)
        return EXIT_ENVIRONMENT
    first = comm.Get_rank() == 0
    writer = RunWriter(Path(plan["output"])) if first else None
    status = Status(Path(plan["status"]) if first else None)
    try:
        _launch(MPI, control, plan, writer, status)
    except UnansweredError as error:
        # Only writing raises this outside a case: end the whole launch, the file is whole up to the last line.
        print(f"collbench.worker: {error}", file=sys.stderr, flush=True)
        comm.Abort(EXIT_WRITE)
    if writer:
        writer.close()
    return 0


def share_text(MPI: Any, comm: Any, text: str) -> str:
    """Return rank 0's text on every rank (plain bytes; nothing is pickled)."""
    data = text.encode()
    size = np.array([len(data)], dtype=np.int64)
    comm.Bcast(size, root=0)
    buffer = np.frombuffer(data, dtype=np.uint8).copy() if data else np.empty(int(size[0]), dtype=np.uint8)
    comm.Bcast([buffer, MPI.BYTE], root=0)
    return buffer.tobytes().decode()


def _missing_settings(MPI: Any, comm: Any, settings: Mapping[str, str]) -> str:
    """Return the planned variables that some rank does not see as planned; empty when all do."""
    names = sorted(settings)
    seen = np.array([os.environ.get(n) == settings[n] for n in names], dtype=np.int64)
    everywhere = np.zeros_like(seen)
    comm.Allreduce(seen, everywhere, op=MPI.MIN)
    return ", ".join(n for n, ok in zip(names, everywhere, strict=True) if not ok)


def _texts(MPI: Any, comm: Any, text: str) -> list[str]:
    """Return every rank's text, on every rank (fixed-width bytes; nothing is pickled)."""
    width = 256
    mine = np.frombuffer(text.encode()[:width].ljust(width, b"\0"), dtype=np.uint8).copy()
    everyone = np.empty((comm.Get_size(), width), dtype=np.uint8)
    comm.Allgather([mine, MPI.BYTE], [everyone, MPI.BYTE])
    return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in everyone]


def _topology(MPI: Any, comm: Any, virtual_nodes: int | None) -> tuple[Topology, list[int], list[int], bool]:
    """Return the shape, each rank's node (real or virtual), its real node, and whether any lacks cores for its ranks."""
    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    lowest = np.array([comm.Get_rank()], dtype=np.int64)
    leader = np.zeros_like(lowest)
    local.Allreduce(lowest, leader, op=MPI.MIN)
    leaders = np.zeros(comm.Get_size(), dtype=np.int64)
    comm.Allgather(leader, leaders)
    cores = np.zeros(4096, dtype=np.int64)
    for core in os.sched_getaffinity(0):
        cores[min(core, 4095)] = 1
    union = np.zeros_like(cores)
    local.Allreduce(cores, union, op=MPI.MAX)
    crowded = np.array([local.Get_size() > int(union.sum())], dtype=np.int64)
    anywhere = np.zeros_like(crowded)
    comm.Allreduce(crowded, anywhere, op=MPI.MAX)
    local.Free()
    order = {leader: index for index, leader in enumerate(dict.fromkeys(leaders.tolist()))}
    real = [order[leader] for leader in leaders.tolist()]
    node_of = list(topology.node_of(comm.Get_size(), virtual_nodes=virtual_nodes)) if virtual_nodes else real
    sizes = tuple(node_of.count(n) for n in range(max(node_of) + 1))
    return Topology(comm.Get_size(), len(sizes), max(sizes), sizes), node_of, real, bool(anywhere[0])


def _launch(
    MPI: Any, control: Any, plan: Mapping[str, Any], writer: RunWriter | None, status: Status
) -> None:
    lib = library.identify(MPI)
    shape, node_of, real, crowded = _topology(MPI, control, plan.get("virtual_nodes"))
    hosts = _texts(MPI, control, socket.gethostname())
    redact: dict[str, str] | None = {} if plan.get("redact") else None

    def emit(line: Mapping[str, Any]) -> None:
        if writer:
            writer.write(line if redact is None else environment.redact(dict(line), redact))

    def beat(case: Case | None, timeout_s: float) -> None:
        status.write(state="measuring", case=case.to_json() if case else None, timeout_s=timeout_s)

    machines = state.gather(control, real)
    emit({**_launch_line(MPI, plan, lib, shape, hosts, crowded), "machines": machines})
    session = Session(
        MPI=MPI,
        control=control,
        library=lib,
        switch=switch.Switch(MPI, MPI.COMM_WORLD, lib),
        sampling=Sampling(**plan["sampling"]),
        launch=plan["launch"],
        node_of=node_of,
        emit=emit,
        beat=beat,
        sync=plan["sync"],
        clocks=Clocks(control, real),
        throttling=state.Throttling(control, real),
        step_s=plan.get("step_s"),
        timeout_s=plan["timeout_s"],
        evidence={key: _evidence(e) for key, e in plan["evidence"].items()},
        warnings=({"kind": "oversubscribed"},) if crowded else (),
    )
    _work(session, plan, shape, driver_here=hosts[0] == plan["host"])
    emit({"kind": "machines_end", "launch": plan["launch"], "machines": state.gather(control, real)})
    status.write(state="done", case=None, timeout_s=plan["timeout_s"])
    control.Barrier()


def _work(session: Session, plan: Mapping[str, Any], topology: Topology, *, driver_here: bool) -> None:
    """Prove or measure all cells of the plan."""
    groups = [[_placed(Case.from_json(c), topology) for c in group] for group in plan["groups"]]
    if plan["purpose"] == "proof":
        for group in groups:
            for case in group:
                prove_case(session, case, monitoring=True)
    else:
        schedule.measure(
            session, groups, plan["levels"], budget_s=plan.get("budget_s"), known=plan["known"],
            driver=plan.get("driver_pid") if driver_here else None,
        )  # fmt: skip


def _placed(case: Case, topology: Topology) -> Case:
    """Return the case with the ranks per node that really came up."""
    return replace(case, cell=replace(case.cell, ranks_per_node=topology.ranks_per_node))


def _evidence(flat: Mapping[str, Any]) -> Evidence:
    return Evidence(
        flat["status"],
        flat.get("by"),
        flat.get("effective"),
        tuple(flat.get("candidates", ())),
        flat.get("detail", ""),
        flat.get("component"),
    )


def _launch_line(
    MPI: Any,
    plan: Mapping[str, Any],
    lib: library.Library,
    topology: Topology,
    hosts: list[str],
    crowded: bool,
) -> dict[str, Any]:
    replaces = plan.get("replaces")
    return {
        "kind": "launch",
        "launch": plan["launch"],
        **({} if replaces is None else {"replaces": replaces}),
        "repetition": plan["repetition"],
        "variant": plan.get("variant"),
        "purpose": plan["purpose"],
        "ranks": topology.ranks,
        "nodes": topology.nodes,
        "ranks_per_node": topology.ranks_per_node,
        "node_sizes": list(topology.node_sizes),
        "hosts": list(dict.fromkeys(hosts)),
        "library": {
            "name": lib.name,
            "version": _dotted(lib.version),
            "string": lib.string,
            "path": lib.path,
        },
        "thread_level": start.provided(MPI),
        "settings": plan["settings"],
        "environment": environment.capture(),
        "probe": plan.get("probe"),
        "oversubscribed": crowded,
        "emulated": bool(plan.get("virtual_nodes")),
    }


def _dotted(version: tuple[int, ...] | None) -> str | None:
    return ".".join(str(n) for n in version) if version else None


if __name__ == "__main__":
    sys.exit(main())
