"""Launches that ran beside foreign load, their repeats, and whose times count.

The driver probes the machine before and after each launch (a cache line bounced between two cores). A launch whose
probe moved by more than ``DISTURBED`` saw the machine change under it (facts: timing-and-statistics §9: run again).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

DISTURBED = 2.0
"""A launch whose probe moved by more than this ratio between before and after is started again: as far as one state of
the machine spans, so what comparisons would leave out (``pairing.classify``) is what is measured again."""

Line = Mapping[str, Any]


def movement(launch: Line) -> float | None:
    """Return the ratio of the probes before and after a launch, the larger to the smaller; None = not known.

    Args:
        launch: a ``launch`` line with ``probe_after`` from its ``launch_end``.
    """
    before, after = ((launch.get(key) or {}).get("pingpong_ns") for key in ("probe", "probe_after"))
    if not before or not after:
        return None
    return float(max(before, after) / min(before, after))


def first_try(number: int, launch: Line) -> int:
    """Return the number of the launch that this one stands in for; its own where it is none's repeat."""
    return int(launch.get("replaces", number))


def outdone(launches: Mapping[int, Line], cells: Sequence[Line]) -> list[bool]:
    """Say of each ``cell`` line whether another try of the same launch counts instead.

    Of all tries of one launch (the first, and those whose line says ``replaces``) that hold the same case, the one
    whose probe moved least counts, the earlier of equals; a try without both probes counts as moved most. So a repeat
    that was disturbed more than the first try replaces nothing, and what only one try holds always counts.

    Args:
        launches: launch number → ``launch`` line with ``probe_after``.
        cells: ``cell`` lines.
    """
    repeated = {first_try(n, line) for n, line in launches.items() if "replaces" in line}
    if not repeated:
        return [False] * len(cells)
    tries = {n: first for n, line in launches.items() if (first := first_try(n, line)) in repeated}
    best: dict[tuple[int, str], tuple[float, int]] = {}
    keys = []
    for cell in cells:
        number = cell["launch"]
        key = (tries[number], json.dumps(cell["case"], sort_keys=True)) if number in tries else None
        keys.append(key)
        if key:
            rank = (movement(launches[number]) or float("inf"), number)
            best[key] = min(best.get(key, rank), rank)
    return [key is not None and best[key][1] != cell["launch"] for key, cell in zip(keys, cells, strict=True)]
