"""Memory: is there room for the largest buffers on every rank of a node, before anything starts?"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from collbench.errors import UnansweredError
from collbench.records import Case, Cell
from collbench.units import format_bytes

RANK_OVERHEAD = 150 << 20
"""Bytes that an idle rank takes: Python, numpy and the MPI library (seen: 60 to 120 MB)."""
SAFE_SHARE = 0.9


def available_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return what can still be allocated: the kernel's estimate, or less where a cgroup limits it; None = unknown."""
    found = [v for v in (_meminfo(proc), _cgroup_left(proc, cgroup)) if v is not None]
    return min(found) if found else None


def _meminfo(proc: Path) -> int | None:
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", (proc / "meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def _cgroup_left(proc: Path, root: Path) -> int | None:
    """Return limit − use of the tightest cgroup above this process (v2 and v1)."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return None
    left = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root if not controllers else root / "memory"
        names = (
            ("memory.max", "memory.current")
            if not controllers
            else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        folder = base / path.lstrip("/")
        while True:
            limit, used = _number(folder / names[0]), _number(folder / names[1])
            if limit is not None and used is not None and limit < 1 << 60:
                left.append(max(0, limit - used))
            if folder in (base, folder.parent):
                break
            folder = folder.parent
    return min(left) if left else None


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def needed_bytes(cases: Iterable[Case], ranks_per_node: int | None = None) -> int:
    """Return the bytes that the largest cell takes on one node: two buffers a rank and case, and the ranks themselves."""
    most = 0
    by_cell: dict[Cell, int] = {}
    for case in cases:
        by_cell[case.cell] = by_cell.get(case.cell, 0) + 1
    for cell, algorithms in by_cell.items():
        ranks = cell.ranks if ranks_per_node is None else min(cell.ranks, ranks_per_node)
        most = max(most, ranks * (RANK_OVERHEAD + 2 * algorithms * cell.nbytes))
    return most


def check(cases: Iterable[Case], ranks_per_node: int | None = None) -> None:
    """Refuse a plan whose largest buffers do not fit.

    Raises:
        UnansweredError: with what is needed, what there is, and what to change.
    """
    free = available_bytes()
    needed = needed_bytes(cases, ranks_per_node)
    if free is not None and needed > SAFE_SHARE * free:
        raise UnansweredError(
            f"the largest cell needs about {format_bytes(needed)} on one node but only {format_bytes(free)} are free: "
            "use smaller --sizes, fewer --ranks, or fewer --algorithms at once"
        )


def shared_memory_bytes(path: Path = Path("/dev/shm")) -> int | None:  # noqa: S108 - the system's shared memory
    """Return the free bytes of /dev/shm, where MPI libraries put their on-node buffers; None when there is none."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
