"""A comparison as JSON, and the words that its text formats share."""

import json
from collections.abc import Sequence
from typing import Any

from collbench.registry import Registry
from collbench.units import format_percent, format_time
from collbench.verdict import (
    ADDED,
    FAILED,
    FASTER,
    INCONCLUSIVE,
    MISSING,
    SAME,
    SLOWER,
    VERDICTS,
    Comparison,
    Verdict,
)

FORMATS = Registry(
    "report format",
    {
        "terminal": "collbench.reports.compare_terminal:render",
        "markdown": "collbench.reports.markdown:render",
        "json": "collbench.reports.comparison:render",
        "junit": "collbench.reports.junit:render",
        "github": "collbench.reports.github:render",
    },
)
"""Format → function of a list of comparisons that returns the text (``terminal`` fits it to a width)."""

ORDER = (SLOWER, FAILED, MISSING, INCONCLUSIVE, FASTER, ADDED, SAME)
"""Verdicts, what needs attention first."""


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return the stable JSON form of one comparison: cells with their verdict, and the status."""
    return {
        "base": comparison.base,
        "new": comparison.new,
        "cells": [_cell(cell) for cell in comparison.cells],
        "counts": {name: comparison.count(name) for name in VERDICTS},
        "threshold": comparison.rules.threshold,
        "differences": [{"field": d.field, "base": d.base, "new": d.new} for d in comparison.differences],
        "remarks": [*comparison.remarks],
        "doubts": comparison.doubts(),
        "advisory": comparison.advisory,
        "status": comparison.status,
    }


def _cell(cell: Verdict) -> dict[str, Any]:
    ratio = cell.ratio
    return {
        "cell": cell.cell,
        **{name: json.loads(value) if name == "params" else value for name, value in cell.key.items()},
        "verdict": cell.verdict, "reason": cell.reason, "confirmed": cell.confirmed,
        "base_s": cell.base_s, "new_s": cell.new_s,
        "ratio": ratio and ratio.value, "ratio_low": ratio and ratio.low, "ratio_high": ratio and ratio.high,
        "p": ratio and ratio.p, "launches": ratio.count if ratio else 0, "paired": cell.paired,
        "state": cell.state, "left_out": cell.left_out, "detectable": cell.detectable, "spread": cell.spread,
        "base_ran": cell.base_ran, "new_ran": cell.new_ran,
    }  # fmt: skip


def render(comparisons: Sequence[Comparison]) -> str:
    """Return one comparison as a JSON object; several under "comparisons", with the worst status."""
    rows = [to_json(c) for c in comparisons]
    out = rows[0] if len(rows) == 1 else {"comparisons": rows, "status": overall(comparisons)}
    return json.dumps(out, ensure_ascii=False) + "\n"


def overall(comparisons: Sequence[Comparison]) -> int:
    """Return the exit status over several comparisons: 1 before 3 before 0; 3 when there is none."""
    found = {c.status for c in comparisons}
    return 1 if 1 in found else 3 if found != {0} else 0


def verdict_words(cell: Verdict) -> str:
    """Return the verdict with its mark: ``slower (unconfirmed)``."""
    if cell.confirmed is None:
        return cell.verdict
    return f"{cell.verdict} ({'confirmed' if cell.confirmed else 'unconfirmed'})"


def change_words(cell: Verdict) -> str:
    """Return ``+12.0 % [+9.1, +14.8]``; – where there is nothing to compare."""
    ratio = cell.ratio
    if ratio is None:
        return "–"
    text = format_percent(ratio.value - 1, sign=True)
    if ratio.low is None or ratio.high is None:
        return text
    return f"{text} [{(ratio.low - 1) * 100:+.1f}, {(ratio.high - 1) * 100:+.1f}]"


def sentence(cell: Verdict) -> str:
    """Return one line on a cell: verdict, times, change, launches, reason."""
    parts = [f"{cell.cell} is {verdict_words(cell)}"]
    if cell.base_s is not None and cell.new_s is not None and cell.ratio is not None:
        unit = "pairs" if cell.paired else "launches a side"
        parts.append(f"{format_time(cell.base_s)} → {format_time(cell.new_s)}, {change_words(cell)}, "
                     f"{cell.ratio.count} {unit}")  # fmt: skip
    return ": ".join(parts) + (f" ({cell.reason})" if cell.reason else "")


def attention(comparison: Comparison) -> list[Verdict]:
    """Return the cells that are not "same", the most urgent first."""
    cells = [c for c in comparison.cells if c.verdict != SAME]
    return sorted(cells, key=lambda c: (ORDER.index(c.verdict), -(abs(c.ratio.value - 1) if c.ratio else 0)))


def summary(comparison: Comparison) -> str:
    """Return the last line: the answer, the counts, the exit status."""
    words = {0: "no slow-down found", 1: "SLOWER", 3: "CANNOT SAY"}[comparison.status]
    if comparison.status == 0 and not comparison.gate:
        words = "compared"
    counts = ", ".join(f"{comparison.count(v)} {v}" for v in VERDICTS if comparison.count(v))
    because = comparison.doubts() if comparison.status == 3 else []
    if comparison.status == 3 and not comparison.compared:
        because = ["no cell was measured by both"]
    if comparison.status == 3 and comparison.advisory and comparison.count(SLOWER):
        because = ["slower than a baseline of other hardware"]
    reason = f": {'; '.join(because)}" if because else ""
    return f"{comparison.new} against {comparison.base}: {words} ({counts or 'no cells'}){reason} [exit {comparison.status}]"
