"""Memory: is there room for the largest buffers on every rank of a node, before anything starts?"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from collbench.errors import UnansweredError
from collbench.mpi.calls import sizes
from collbench.records import ITEMSIZE, Case, Cell
from collbench.units import format_bytes

RANK_BYTES = 48 << 20
"""Bytes that an idle rank takes for itself: Python, numpy and the MPI library (seen: 18 to 30 MiB at 2 to 16 ranks)."""
SAFE_SHARE = 0.9
"""Share of the free memory that may be planned for."""
CHECK_BYTES = 5 * 16
"""Bytes an element of the result takes while it is checked: five arrays in extended precision (mpi/check.py)."""
PORTABLE_FACTOR = 2
"""collbench's own schedules have up to their buffers' size in scratch memory of their own."""
UNLIMITED = 1 << 60
"""cgroup v1 writes a number near 2^63 where there is no limit."""


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
    """Return limit − use of the tightest cgroup around this process, v2 or v1; None = no limit."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return None
    left: list[int] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            left += _left(root, path, ("memory.max", "memory.high"), "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes",)
            left += _left(root / "memory", path, names, "memory.usage_in_bytes", "total_inactive_file")
    return min(left) if left else None


def _left(base: Path, path: str, limits: tuple[str, ...], usage: str, cache: str) -> list[int]:
    """Return what each cgroup from ``path`` up to the root leaves; file cache that can be dropped counts as free.

    In a container the path may lie outside of what is mounted; then the mounted root is the container's own group.
    """
    folder = base if ".." in path else base / path.strip("/")
    found = []
    for group in (folder, *folder.parents):
        used = _number(group / usage)
        known = [
            limit for name in limits if (limit := _number(group / name)) is not None and limit < UNLIMITED
        ]
        if known and used is not None:
            found.append(max(0, min(known) - used + _stat(group / "memory.stat", cache)))
        if group == base:
            break
    return found


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _stat(path: Path, name: str) -> int:
    try:
        match = re.search(rf"^{name} (\d+)$", path.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0


def needed_bytes(cases: Iterable[Case], ranks_per_node: int | None = None) -> int:
    """Return the bytes that the largest cell takes on its fullest node.

    All algorithms of a cell hold their buffers at once (they are interleaved); one at a time is checked.

    Args:
        cases: what is to be measured.
        ranks_per_node: ranks on the fullest node; None = all.
    """
    together: dict[Cell, int] = {}
    one: dict[Cell, Case] = {}
    for case in cases:
        times = PORTABLE_FACTOR if case.provider == "portable" else 1
        together[case.cell] = together.get(case.cell, 0) + times
        one[case.cell] = case
    return max((_cell_bytes(one[cell], count, ranks_per_node) for cell, count in together.items()), default=0)


def _cell_bytes(case: Case, algorithms: int, ranks_per_node: int | None) -> int:
    cell = case.cell
    here = cell.ranks if ranks_per_node is None else min(cell.ranks, ranks_per_node)
    root = sizes(case, rank=0, size=cell.ranks, root=0)
    other = sizes(case, rank=1, size=cell.ranks, root=0)
    buffers = sum(root) + (here - 1) * sum(other)
    results = root[1] + (here - 1) * other[1]
    return here * RANK_BYTES + algorithms * buffers + results // ITEMSIZE[cell.dtype] * CHECK_BYTES


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
