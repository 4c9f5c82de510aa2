"""Which algorithm really ran: asked for, shown, how far it is proven and by what."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from collbench.records import Case
from collbench.reports.samples import Filter
from collbench.results import Run
from collbench.units import format_bytes

_STYLES = {"proven": "green", "not_separable": "cyan", "unknown": "dim", "contradicted": "bold red"}


@dataclass(frozen=True, slots=True)
class Proof:
    """One finding for a range of sizes.

    Attributes:
        library: name and version; ``unknown`` when the run does not say.
        collective: name.
        ranks: rank count.
        requested: algorithm asked for, with parameters.
        effective: algorithm shown to have run; None when unknown.
        status: proven, not_separable, unknown or contradicted.
        by: what shows it; None when nothing does.
        min_bytes: smallest size with this finding.
        max_bytes: largest size with this finding.
        detail: a short sentence, empty if none.
        component: the library's component that serves the calls; None when unknown.
    """

    library: str
    collective: str
    ranks: int
    requested: str
    effective: str | None
    status: str
    by: str | None
    min_bytes: int
    max_bytes: int
    detail: str = ""
    component: str | None = None


def proofs(run: Run, only: Filter) -> list[Proof]:
    """Return the findings of a run; neighbouring sizes with the same finding are one row."""
    series: dict[tuple[str, str, int, str], dict[int, tuple[Any, ...]]] = {}
    for line in _lines(run):
        try:
            case = Case.from_json(line["case"])
        except (KeyError, TypeError, AttributeError):
            continue
        if only.wants(case):
            key = (_library(run, line), case.cell.collective, case.cell.ranks, _requested(case))
            series.setdefault(key, {})[case.cell.nbytes] = _finding(line)
    return [proof for key in sorted(series) for proof in _merged(key, series[key])]


def _lines(run: Run) -> Iterator[Mapping[str, Any]]:
    """Return proof lines, then cell lines: where both speak of a size, the measured row has the last word."""
    yield from run.proofs
    yield from run.cells


def _library(run: Run, line: Mapping[str, Any]) -> str:
    library = run.launches.get(line.get("launch", 0), {}).get("library") or {}
    return " ".join(str(library[key]) for key in ("name", "version") if library.get(key)) or "unknown"


def _requested(case: Case) -> str:
    return case.label if case.provider != "portable" else f"portable:{case.label}"


def _finding(line: Mapping[str, Any]) -> tuple[Any, ...]:
    evidence = line.get("evidence") or {}
    effective = line.get("effective")
    if evidence.get("status") == "not_separable" and evidence.get("candidates"):
        effective = " or ".join(evidence["candidates"])
    return (
        effective,
        str(evidence.get("status", "unknown")),
        evidence.get("by"),
        evidence.get("component"),
        str(evidence.get("detail") or ""),
    )


def _merged(key: tuple[str, str, int, str], found: Mapping[int, tuple[Any, ...]]) -> Iterator[Proof]:
    sizes = sorted(found)
    start = 0
    for end in range(1, len(sizes) + 1):
        if end == len(sizes) or found[sizes[end]][:4] != found[sizes[start]][:4]:
            effective, status, by, component, detail = found[sizes[start]]
            yield Proof(*key, effective, status, by, sizes[start], sizes[end - 1], detail, component)
            start = end


def evidence_table(found: Iterable[Proof]) -> Group:
    """Return the findings as one table per library, collective and rank count, and their count by status."""
    rows = list(found)
    parts: list[Any] = []
    for key in dict.fromkeys((row.library, row.collective, row.ranks) for row in rows):
        parts += [*_table([r for r in rows if (r.library, r.collective, r.ranks) == key]), Text()]
    counted = Counter(row.status for row in rows)
    words = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counted.most_common())
    return Group(
        *parts, Text(f"{len(rows)} findings: {words}" if rows else "no evidence in this run", style="dim")
    )


def _table(rows: list[Proof]) -> list[Any]:
    """Return title, table and footnotes; sets of algorithms that one proof fits are footnotes, (a), (b)."""
    first = rows[0]
    title = Text(f"{first.collective} on {first.ranks} ranks, {first.library}: what ran", style="bold")
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name in ("requested", "sizes", "ran", "status", "by"):
        table.add_column(name, no_wrap=name != "requested", overflow="fold")
    letters: dict[str, str] = {}
    for row in rows:
        ran = row.effective or "?"
        if " or " in ran:
            ran = f"one of ({letters.setdefault(ran, chr(ord('a') + len(letters) % 26))})"
        ran += f" ({row.component})" if row.component and row.component != row.effective else ""
        status = Text(row.status.replace("_", " "), style=_STYLES.get(row.status, ""))
        table.add_row(row.requested, _sizes(row), ran, status, (row.by or "–").replace("_", " "))
    notes = [
        f"({letter}) {alike.replace(' or ', ', ')}: this proof cannot tell them apart"
        for alike, letter in letters.items()
    ]
    return [title, table, *(Padding(Text(text, style="dim"), (0, 0, 0, 2)) for text in notes)]


def _sizes(row: Proof) -> str:
    if not row.max_bytes:
        return "–"
    low, high = format_bytes(row.min_bytes), format_bytes(row.max_bytes)
    return low if low == high else f"{low}…{high}"
