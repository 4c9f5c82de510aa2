"""Acceptance of a machine: ceilings for latency, floors for bandwidth, with tolerance, from a TOML file."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from collbench import sides
from collbench.collectives import busbw
from collbench.errors import EXIT_NO, EXIT_OK, EXIT_UNANSWERED, UsageError, unknown_name
from collbench.results import CASE_COLUMNS, Run, frame
from collbench.units import format_rate, format_time, parse_percent

PASS, FAIL, UNMEASURED = "PASS", "FAIL", "NOT MEASURED"
BOUNDS = {"max_time_us": 1e-6, "min_busbw_gbs": 1e9, "min_algbw_gbs": 1e9}
"""Key of a bound → factor to SI."""
LATENCY_LIMIT = 4096
"""``write`` gives cells up to this size a ceiling for the time, larger ones a floor for busbw."""
TOLERANCE = 0.10


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is expected of the cells that a pattern matches.

    Attributes:
        cells: shell pattern of cell names, ``allreduce/8/*/default``.
        bound: one of BOUNDS.
        limit: in seconds or bytes per second, without tolerance.
        tolerance: share by which the limit may be missed.
    """

    cells: str
    bound: str
    limit: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer for one cell and one expectation.

    Attributes:
        cell: name of the cell; the pattern where nothing was measured.
        expectation: what was expected.
        answer: PASS, FAIL or NOT MEASURED.
        value: measured, in the unit of the limit; None = not measured.
        reason: why there is no value.
    """

    cell: str
    expectation: Expectation
    answer: str
    value: float | None = None
    reason: str = ""

    @property
    def sentence(self) -> str:
        """One line for people."""
        e = self.expectation
        show = format_time if e.bound == "max_time_us" else format_rate
        side = "at most" if e.bound == "max_time_us" else "at least"
        got = show(self.value) if self.value is not None else self.reason
        return f"{self.answer}  {self.cell}: {got}, expected {side} {show(e.limit)} (tolerance {e.tolerance:.0%})"

    def to_json(self) -> dict[str, Any]:
        """Return the stable JSON form."""
        e = self.expectation
        return {"cell": self.cell, "pattern": e.cells, "bound": e.bound, "limit": e.limit, "tolerance": e.tolerance,
                "answer": self.answer, "value": self.value, "reason": self.reason}  # fmt: skip


def read(path: Path) -> list[Expectation]:
    """Return the expectations of a TOML file.

    Raises:
        UsageError: unreadable, or a key or value that is none (file, table and key are named).
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read the expectations {path}: {error}") from None
    common = _tolerance(data.get("tolerance", TOLERANCE), f"{path}")
    rows = data.get("expect")
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{path}: it needs at least one [[expect]] table with 'cells' and a bound")
    unknown = next((key for key in data if key not in ("tolerance", "expect", "made_from")), None)
    if unknown:
        raise UsageError(f"{path}: {unknown_name('key', unknown, ('tolerance', 'expect', 'made_from'))}")
    found: list[Expectation] = []
    for number, row in enumerate(rows, start=1):
        found += _expect(row, common, f"{path}, [[expect]] {number}")
    return found


def _expect(row: Any, common: float, where: str) -> list[Expectation]:
    if not isinstance(row, Mapping) or not isinstance(row.get("cells"), str):
        raise UsageError(f"{where}: 'cells' must be a pattern such as 'allreduce/8/*/default'")
    for key in row:
        if key not in (*BOUNDS, "cells", "tolerance"):
            raise UsageError(f"{where}: {unknown_name('key', key, (*BOUNDS, 'cells', 'tolerance'))}")
    tolerance = _tolerance(row.get("tolerance", common), where)
    found = []
    for bound, factor in BOUNDS.items():
        if bound in row:
            value = row[bound]
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise UsageError(f"{where}: {bound} is {value!r}, which is no number above 0")
            found.append(Expectation(row["cells"], bound, value * factor, tolerance))
    if not found:
        raise UsageError(f"{where}: it states no bound: give one of {', '.join(BOUNDS)}")
    return found


def _tolerance(value: Any, where: str) -> float:
    share = parse_percent(value) if isinstance(value, str) else value
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise UsageError(f"{where}: tolerance {value!r} is not a share from 0 to below 1")
    return float(share)


def check(run: Run, expectations: Sequence[Expectation]) -> list[Finding]:
    """Return a finding per expectation and matching cell; what was not measured never passes."""
    cells = _cells(run)
    failed = {sides.cell_id(key, CASE_COLUMNS): reason for key, reason in sides.failures(run)}
    agreed = [sides.cell_id(key, CASE_COLUMNS) for key in sides.agreed(run, CASE_COLUMNS)]
    found: list[Finding] = []
    for expectation in expectations:
        names = [
            n
            for n in (*cells, *(f for f in failed if f not in cells))
            if sides.matches(n, [expectation.cells])
        ]
        if not names:
            why = "no cell of this name was measured"
            if any(sides.matches(name, [expectation.cells]) for name in agreed):
                why = "left out as its neighbours agree: measure with 'collbench run --no-refine'"
            found.append(Finding(expectation.cells, expectation, UNMEASURED, None, why))
        for name in names:
            if name in failed:
                found.append(Finding(name, expectation, UNMEASURED, None, f"failed: {failed[name]}"))
            else:
                found.append(_judge(name, expectation, *cells[name]))
    return found


def _cells(run: Run) -> dict[str, tuple[dict[str, Any], float]]:
    """Return cell name → its columns and the median of its launch medians, seconds."""
    times: dict[str, list[float]] = {}
    facts: dict[str, dict[str, Any]] = {}
    for row in frame(run).astype(object).where(lambda x: x.notna(), None).to_dict("records"):
        name = sides.cell_id(tuple(row[n] for n in CASE_COLUMNS), CASE_COLUMNS)
        times.setdefault(name, []).append(float(row["time_s"]))
        facts[name] = {str(k): v for k, v in row.items()}
    return {name: (facts[name], median(values)) for name, values in times.items()}


def _judge(name: str, expectation: Expectation, fact: Mapping[str, Any], time_s: float) -> Finding:
    if expectation.bound == "max_time_us":
        good = time_s <= expectation.limit * (1 + expectation.tolerance)
        return Finding(name, expectation, PASS if good else FAIL, time_s)
    value = fact["nbytes"] / time_s
    if expectation.bound == "min_busbw_gbs":
        bus = busbw(fact["collective"], fact["ranks"], fact["nbytes"], time_s)
        if bus is None:
            return Finding(name, expectation, UNMEASURED, None, f"{fact['collective']} has no busbw")
        value = bus
    good = value >= expectation.limit * (1 - expectation.tolerance)
    return Finding(name, expectation, PASS if good else FAIL, value)


def status(findings: Sequence[Finding]) -> int:
    """Return 1 when a cell fails, 3 when something was not measured, else 0."""
    answers = {f.answer for f in findings}
    return EXIT_NO if FAIL in answers else EXIT_OK if answers == {PASS} else EXIT_UNANSWERED


def write(run: Run, tolerance: float = TOLERANCE) -> str:
    """Return the TOML text that a run which was good passes.

    Small messages get a ceiling for the time, larger ones a floor for busbw (where the collective has one).

    Raises:
        UsageError: the run holds no cell, or has failed ones (it was not good).
    """
    cells = _cells(run)
    if not cells or run.failed:
        raise UsageError(f"{run.name} holds {len(cells)} measured and {len(run.failed)} failed cells: "
                         "expectations are made from a run that was good")  # fmt: skip
    lines = [f"made_from = {json.dumps(run.name)}", f"tolerance = {tolerance}"]
    for name, (fact, time_s) in cells.items():
        bus = busbw(fact["collective"], fact["ranks"], fact["nbytes"], time_s)
        lines += ["", "[[expect]]", f"cells = {json.dumps(_literal(name), ensure_ascii=False)}"]
        if bus is None or fact["nbytes"] <= LATENCY_LIMIT:
            lines.append(f"max_time_us = {time_s * 1e6:.4g}")
        else:
            lines.append(f"min_busbw_gbs = {bus / 1e9:.4g}")
    return "\n".join(lines) + "\n"


def _literal(name: str) -> str:
    """Return the pattern that matches just this name: brackets of parameters are no character class."""
    return name.replace("[", "[[]")
