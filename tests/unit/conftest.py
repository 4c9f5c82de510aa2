"""Example run files, written as the worker writes them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from collbench.records import Case, Cell, Evidence, Measurement
from collbench.runfile import RunWriter

RUN = {
    "kind": "run", "schema": 1, "tool": "collbench 0.1.0", "profile": "quick", "seed": 7, "argv": ["run"],
    "label": None, "started": "2026-01-02T03:04:05Z",
}  # fmt: skip


def launch_line(number: int, ranks: int, **facts: Any) -> dict[str, Any]:
    """Return the line of one launch on one node of two cores, in the fast state."""
    return {
        "kind": "launch", "launch": number, "ranks": ranks, "nodes": 1, "ranks_per_node": ranks,
        "node_sizes": [ranks], "library": {"name": "openmpi", "version": "5.0.11", "string": "Open MPI v5.0.11"},
        "thread_level": "single", "environment": {}, "probe": {"state": "fast"}, "oversubscribed": ranks > 2,
        "emulated": False, "repetition": number, "variant": None, "settings": {}, **facts,
    }  # fmt: skip


def cell_line(
    launch: int,
    collective: str,
    ranks: int,
    nbytes: int,
    algorithm: str,
    blocks_us: Sequence[float],
    **facts: Any,
) -> dict[str, Any]:
    """Return a cell line whose time is the median of its blocks, given in microseconds."""
    middle = sorted(blocks_us)[len(blocks_us) // 2]
    reduces = collective in ("allreduce", "reduce", "reduce_scatter")
    cell = Cell(collective, ranks, facts.pop("ranks_per_node", ranks), nbytes, op="sum" if reduces else None)
    case = Case(
        cell,
        facts.pop("provider", "openmpi"),
        algorithm,
        facts.pop("component", "tuned"),
        facts.pop("params", ()),
    )
    evidence = facts.pop("evidence", Evidence("proven", "operator_trace", algorithm))
    line = Measurement(
        case,
        launch,
        middle * 1e-6,
        tuple(b * 1e-6 for b in blocks_us),
        {"p50": middle * 1e-6},
        100,
        evidence=evidence,
    ).to_json()
    return {**line, **facts}


@pytest.fixture(name="write_run")
def _write_run(tmp_path: Path) -> Callable[..., Path]:
    """``write_run(lines, name="example", **header)`` writes a run file through RunWriter and returns its path."""

    def write(lines: Sequence[Mapping[str, Any]], name: str = "example", **header: Any) -> Path:
        path = tmp_path / f"{name}.jsonl"
        with RunWriter(path, create=True) as writer:
            for line in [{**RUN, **header}, *lines]:
                writer.write(line)
        return path

    return write


@pytest.fixture(name="lines", scope="session")
def _lines() -> Any:
    """The makers of lines: ``lines.launch(number, ranks)``, ``lines.cell(…)``."""

    class Lines:
        launch = staticmethod(launch_line)
        cell = staticmethod(cell_line)

    return Lines


@pytest.fixture(name="example")
def _example(write_run: Callable[..., Path]) -> Path:
    """A run of allreduce and barrier on 2 and 4 ranks with a clear winner, a tie, a failure, a skip, a contradiction."""
    near = [2.0, 2.1, 1.9, 2.05, 1.95]
    unknown, wrong = Evidence(), Evidence("contradicted", "operator_trace", "recursive_doubling")
    alike = Evidence("not_separable", "operator_trace", "ring", ("ring", "segmented_ring"))
    four = {"params": (("segment_bytes", 65536),)}
    failed = Case(Cell("allreduce", 4, 4, 65536, op="sum"), "openmpi", "rabenseifner", "tuned").to_json()
    skipped = Case(Cell("allreduce", 4, 4, 8, op="sum"), "openmpi", "ring", "tuned").to_json()
    return write_run([
        launch_line(0, 2),
        cell_line(0, "allreduce", 2, 8, "default", near),
        cell_line(0, "allreduce", 2, 8, "recursive_doubling", [2.02, 2.08, 1.88, 2.06, 1.96]),
        cell_line(0, "allreduce", 2, 8, "ring", [4.0, 4.2, 4.1, 4.05, 4.0], evidence=wrong),
        cell_line(0, "allreduce", 2, 65536, "default", [30, 31, 30.5, 30.2, 30.1]),
        cell_line(0, "allreduce", 2, 65536, "recursive_doubling", [40, 41, 40.5, 40.2, 40.1], evidence=unknown),
        cell_line(0, "allreduce", 2, 65536, "ring", [20, 21, 20.5, 20.2, 20.1], evidence=alike),
        cell_line(0, "barrier", 2, 0, "default", [1.0, 1.1, 1.05]),
        cell_line(0, "barrier", 2, 0, "recursive_doubling", [0.5, 0.55, 0.52]),
        {"kind": "launch_end", "launch": 0, "probe": {"state": "fast"}, "status": "ok"},
        launch_line(1, 4),
        cell_line(1, "allreduce", 4, 8, "default", [5, 5.1, 5.2], warnings=[{"kind": "bimodal", "ratio": 2.7}]),
        cell_line(1, "allreduce", 4, 8, "recursive_doubling", [5.9, 6.1, 6.0]),
        cell_line(1, "allreduce", 4, 65536, "default", [90, 91, 92]),
        cell_line(1, "allreduce", 4, 65536, "segmented_ring", [60, 61, 62], **four),
        {"kind": "failed", "launch": 1, "case": failed, "reason": "timeout", "detail": "no sign of life for 5 s"},
        {"kind": "skipped", "case": skipped, "reason": "needs at least one element per rank"},
    ])  # fmt: skip
