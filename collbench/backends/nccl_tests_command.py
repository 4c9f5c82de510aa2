"""Command lines of nccl-tests and rccl-tests: one process for each setting and geometric run of sizes."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench.backends.nccl_plan import WARMUP, forwarded, process_environment
from collbench.collectives import COLLECTIVES
from collbench.errors import UnansweredError, UsageError, unknown_name
from collbench.records import Case

TOOLS = ("nccl-tests", "rccl-tests")
DIR_VARIABLE = "COLLBENCH_NCCL_TESTS_DIR"
_KEYS = ("dir", "launcher", "tool", "graph")
_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "float8e4m3": "f8e4m3",
    "float8e5m2": "f8e5m2",
}
REDUCTION = "max"
"""What ``-a 3`` makes of the ranks' times: the slowest counts."""
PROOF = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING"}
"""Makes NCCL say which variables it has read and which algorithm it takes; only in untimed launches."""


@dataclass(frozen=True, slots=True)
class Tool:
    """The user's binaries and how they are started.

    Attributes:
        folder: where they are; None = not told.
        launcher: words of a launcher with {ranks}, {nodes}, {ranks_per_node}, {hosts}; empty = one process, all GPUs.
        name: nccl-tests or rccl-tests.
        graph: calls per CUDA graph; 0 = no graphs.
        hosts: host names.
    """

    folder: Path | None
    launcher: tuple[str, ...]
    name: str = "nccl-tests"
    graph: int = 0
    hosts: tuple[str, ...] = ()

    @property
    def provider(self) -> str:
        """Whose collectives these are: nccl or rccl."""
        return "rccl" if self.name == "rccl-tests" else "nccl"

    def binary(self, collective: str) -> Path:
        """Return the binary of a collective.

        Raises:
            UnansweredError: the folder is not told, or has no such binary.
        """
        if self.folder is None:
            raise UnansweredError(
                f"no {self.name} binaries: name their folder with --nccl-tests-dir, {DIR_VARIABLE} or the "
                "profile's [nccl-tests] dir"
            )
        path = self.folder / f"{COLLECTIVES[collective].nccl}_perf"
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise UnansweredError(f"{path} is no program: build {self.name} there, or name another folder")
        return path


def read_tool(
    table: Mapping[str, Any], folder: str | None, launcher: str | None, hosts: Sequence[str] = ()
) -> Tool:
    """Return the tool that the ``[nccl-tests]`` table and the command line describe.

    Raises:
        UsageError: an unknown key or a bad value.
    """
    for key in table:
        if key not in _KEYS:
            raise unknown_name("key of [nccl-tests]", key, _KEYS)
    name, graph = table.get("tool", "nccl-tests"), table.get("graph", 0)
    if name not in TOOLS:
        raise unknown_name("tool", str(name), TOOLS)
    if isinstance(graph, bool) or not isinstance(graph, int) or graph < 0:
        raise UsageError(f"[nccl-tests] graph {graph!r} is not a number of calls")
    found = folder or os.environ.get(DIR_VARIABLE) or table.get("dir")
    words = tuple(shlex.split(launcher or str(table.get("launcher", ""))))
    return Tool(Path(found).expanduser() if found else None, words, name, graph, tuple(hosts))


@dataclass(frozen=True, slots=True)
class Batch:
    """One process: one setting over a geometric run of sizes.

    Attributes:
        cases: cases by size, both forms (in place and not).
        first: first size asked for, before rounding.
        last: last size.
        factor: step between sizes.
        iterations: timed calls for each size.
        repetition: which of the run's launches.
        sizes: rounded size → size asked for.
    """

    cases: tuple[Case, ...]
    first: int
    last: int
    factor: int
    iterations: int
    repetition: int
    sizes: tuple[tuple[int, int], ...]

    @property
    def case(self) -> Case:
        """A case that stands for all: they differ in size and place only."""
        return self.cases[0]

    def environment(self) -> dict[str, str]:
        """Return the variables of this setting."""
        return process_environment(self.case)


def geometric(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (first, last, factor) runs that cover ascending sizes exactly, as ``-b -e -f`` takes them."""
    runs: list[tuple[int, int, int]] = []
    index = 0
    while index < len(sizes):
        factor = sizes[index + 1] // sizes[index] if index + 1 < len(sizes) else 2
        end = index
        if factor >= 2:
            while end + 1 < len(sizes) and sizes[end + 1] == sizes[end] * factor:
                end += 1
        runs.append((sizes[index], sizes[end], max(2, factor) if end > index else 2))
        index = end + 1
    return runs


def program(tool: Tool, batch: Batch, *, proof: bool = False, json_file: Path | None = None) -> list[str]:
    """Return the words of the binary itself; with ``proof`` an untimed single call of each size."""
    cell = batch.case.cell
    name = f"{COLLECTIVES[cell.collective].nccl}_perf"
    words = [str(tool.folder / name) if tool.folder else name]
    words += ["-b", str(batch.first), "-e", str(batch.last), "-f", str(batch.factor)]
    words += ["-d", _TYPES.get(cell.dtype, cell.dtype)]
    if cell.op:
        words += ["-o", cell.op]
    words += ["-g", "1" if tool.launcher else str(cell.ranks)]
    words += ["-n", "1", "-w", "0", "-c", "0"] if proof else [
        "-n", str(batch.iterations), "-w", str(WARMUP), "-c", "1", "-a", "3"]  # fmt: skip
    if tool.graph and not proof:
        words += ["-G", str(tool.graph)]
    return [*words, "-J", str(json_file)] if json_file else words


def command(
    tool: Tool, batch: Batch, *, marker: Mapping[str, str], proof: bool = False, json_file: Path | None = None
) -> list[str]:
    """Return the whole command. Variables go through ``env`` on the far side, so every launcher forwards them.

    Args:
        tool: binaries and launcher.
        batch: what to run.
        marker: variables that mark the processes of this launch.
        proof: untimed, with NCCL's own account of what it does.
        json_file: where the tool writes JSON; None = text only.

    Raises:
        UsageError: the launcher's template has an unknown field, or ranks on several nodes have no launcher.
    """
    cell = batch.case.cell
    per_node = cell.ranks_per_node or cell.ranks
    own = forwarded(os.environ) if tool.launcher else {}
    planned = {**own, **batch.environment(), **(PROOF if proof else {}), **marker}
    if not tool.launcher and per_node < cell.ranks:
        raise UsageError(
            f"{cell.ranks} ranks on {-(-cell.ranks // per_node)} nodes need a launcher: give --launcher, for example "
            "'mpirun -n {ranks} -N {ranks_per_node} --host {hosts}' or 'srun -n {ranks} -N {nodes}'"
        )
    fields = {"ranks": cell.ranks, "nodes": -(-cell.ranks // per_node), "ranks_per_node": per_node,
              "hosts": ",".join(f"{h}:{per_node}" for h in tool.hosts)}  # fmt: skip
    try:
        front = [word.format_map(fields) for word in tool.launcher]
    except (KeyError, IndexError, ValueError) as error:
        raise UsageError(
            f"launcher {shlex.join(tool.launcher)!r}: {error} is no field of it: use {', '.join(fields)}"
        ) from None
    variables = [f"{name}={value}" for name, value in sorted(planned.items())]
    return [*front, "env", *variables, *program(tool, batch, proof=proof, json_file=json_file)]


def knows_json(binary: Path) -> bool:
    """Say whether this build of the tool has ``-J``."""
    if shutil.which(str(binary)) is None:
        return False
    try:
        shown = subprocess.run(
            [binary, "-h"], capture_output=True, text=True, errors="replace", timeout=60, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return bool(re.search(r"(^|\W)-J\b", shown.stdout + shown.stderr))
