"""Memory: is there room for the largest buffers on every rank of a node, before anything starts?"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from collbench.errors import UnansweredError
from collbench.mpi.calls import rotated_roots, sizes
from collbench.profile import Sampling
from collbench.records import Case, Cell
from collbench.units import format_bytes

RANK_BYTES = 56 << 20
"""Bytes that a rank takes for itself: Python, numpy and the MPI library (seen: 18 to 30 MiB at 2 to 16 ranks), and the
stretch of a result that is being checked, whatever the size of all of it (8 MiB, mpi/check.py)."""
SAFE_SHARE = 0.9
"""Share of the free memory that may be planned for."""
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


def needed_bytes(
    cases: Iterable[Case], ranks_per_node: int | None = None, sampling: Sampling | None = None
) -> int:
    """Return the bytes that the largest cell takes on its fullest node.

    All algorithms of a cell hold their buffers at once (they are interleaved), each as many pairs as go round.
    collbench's own schedules have up to a pair's size in scratch memory beside, for each pair and root that go round.
    One more pair is for a proof made between, and the MPI library takes up to a message's size for itself.

    Args:
        cases: what is to be measured.
        ranks_per_node: ranks on the fullest node; None = all.
        sampling: whether buffers or roots go round; None = they do not.
    """
    sampling = sampling or Sampling()
    together: dict[Cell, int] = {}
    one: dict[Cell, Case] = {}
    for case in cases:
        roots = rotated_roots(
            case, case.cell.ranks, copies=sampling.rotate_buffers, rotate_root=sampling.rotate_root
        )
        scratch = len(roots) if case.provider == "portable" else 0
        together[case.cell] = together.get(case.cell, 0) + sampling.rotate_buffers + scratch
        one[case.cell] = case
    return max(
        (
            _cell_bytes(one[cell], pairs, ranks_per_node, rotate_root=sampling.rotate_root)
            for cell, pairs in together.items()
        ),
        default=0,
    )


def _cell_bytes(case: Case, pairs: int, ranks_per_node: int | None, *, rotate_root: bool) -> int:
    cell = case.cell
    here = cell.ranks if ranks_per_node is None else min(cell.ranks, ranks_per_node)
    root = sizes(case, rank=0, size=cell.ranks, root=0)
    other = sizes(case, rank=1, size=cell.ranks, root=0)
    if rotate_root:
        # Each rank's buffers serve it as root and as another.
        root = other = max(root[0], other[0]), max(root[1], other[1])
    library = max(root) + (here - 1) * max(other)
    return here * RANK_BYTES + (pairs + 1) * (sum(root) + (here - 1) * sum(other)) + library


def check(cases: Iterable[Case], ranks_per_node: int | None = None, sampling: Sampling | None = None) -> None:
    """Refuse a plan whose largest buffers do not fit.

    Raises:
        UnansweredError: with what is needed, what there is, and what to change.
    """
    free = available_bytes()
    needed = needed_bytes(cases, ranks_per_node, sampling)
    if free is not None and needed > SAFE_SHARE * free:
        raise UnansweredError(
            f"the largest cell needs about {format_bytes(needed)} on one node but only {format_bytes(free)} are free: "
            "use smaller --sizes, fewer --ranks, --rotate-buffers or --algorithms at once"
        )


def shared_memory_bytes(path: Path = Path("/dev/shm")) -> int | None:  # noqa: S108 - the system's shared memory
    """Return the free bytes of /dev/shm, where MPI libraries put their on-node buffers; None when there is none."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
