"""An NCCL plan in words, and as data."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from collbench.backends.nccl_plan import NcclPlan, estimate
from collbench.request import RunOptions
from collbench.units import format_bytes, format_duration


def plan(
    the_plan: NcclPlan, options: RunOptions, *, external: bool = False, commands: Sequence[str] = ()
) -> str:
    """Return what would run: cases, what is left out and why, wall time and GPU-hours, the exact commands."""
    version = ".".join(str(n) for n in the_plan.version)
    where = "the newest in collbench's table, no library was asked" if the_plan.assumed else "as told"
    lines = [f"NCCL {version} ({where}), seed {options.seed}, {the_plan.launches} repetitions"]
    for ranks in the_plan.ranks:
        lines.append(_ranks(the_plan, ranks, options, external=external))
        lines.extend(_cases(the_plan, ranks))
    reasons = Counter(reason for _, reason in the_plan.skipped)
    lines.extend(f"skipped: {count} cases, {reason}" for reason, count in reasons.most_common())
    lines.extend(commands)
    total = [estimate(the_plan, r, options.iterations, external=external) for r in the_plan.ranks]
    wall, gpu = sum(e.wall_s for e in total), sum(e.gpu_s for e in total)
    lines.append(
        f"estimated: {format_duration(wall)} of wall time, {gpu / 3600:.2f} GPU-hours, "
        f"{sum(e.launches for e in total)} launches, {sum(e.communicators for e in total)} communicators "
        "(their creation included)"
    )
    return "\n".join(lines)


def plan_json(
    the_plan: NcclPlan, options: RunOptions, *, external: bool = False, commands: Sequence[Sequence[str]] = ()
) -> dict[str, Any]:
    """Return the same as data: times in seconds, commands as words, each case as a run file has it."""
    counts = []
    for ranks in the_plan.ranks:
        cost = estimate(the_plan, ranks, options.iterations, external=external)
        cases = the_plan.of(ranks)
        per_node = cases[0].cell.ranks_per_node or ranks
        counts.append({
            "ranks": ranks, "nodes": -(-ranks // per_node), "wall_s": cost.wall_s, "gpu_s": cost.gpu_s,
            "launches": cost.launches, "communicators": cost.communicators, "cases": [c.to_json() for c in cases],
        })  # fmt: skip
    return {
        "library": {"name": "nccl", "version": ".".join(str(n) for n in the_plan.version), "assumed": the_plan.assumed},
        "seed": options.seed, "repetitions": the_plan.launches, "rank_counts": counts,
        "skipped": [{"case": c.to_json(), "reason": r} for c, r in the_plan.skipped],
        "commands": [list(words) for words in commands],
        "wall_s": sum(c["wall_s"] for c in counts), "gpu_s": sum(c["gpu_s"] for c in counts),
    }  # fmt: skip


def _ranks(the_plan: NcclPlan, ranks: int, options: RunOptions, *, external: bool) -> str:
    cost = estimate(the_plan, ranks, options.iterations, external=external)
    per_node = the_plan.of(ranks)[0].cell.ranks_per_node or ranks
    return (
        f"{ranks} ranks on {-(-ranks // per_node)} nodes: {len(the_plan.of(ranks))} cases, "
        f"{format_duration(cost.wall_s)}, {cost.gpu_s / 3600:.2f} GPU-hours"
    )


def _cases(the_plan: NcclPlan, ranks: int) -> list[str]:
    sizes: dict[tuple[str, str, str], set[int]] = {}
    for case in the_plan.of(ranks):
        cell = case.cell
        place = "in place" if cell.in_place else ""
        name = case.label if case.provider in ("nccl", "rccl") else f"{case.provider}:{case.label}"
        sizes.setdefault((cell.collective, place, f"{name} {cell.dtype}"), set()).add(cell.nbytes)
    return [
        f"  {name} {label}{f' {place}' if place else ''}: {_sizes(sorted(found))}"
        for (name, place, label), found in sorted(sizes.items())
    ]


def _sizes(sizes: list[int]) -> str:
    return ", ".join(format_bytes(s) for s in sizes)
