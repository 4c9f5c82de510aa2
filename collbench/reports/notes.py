"""What a reader must know beside the numbers: what failed, what was left out, what spoils a time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collbench.records import Case
from collbench.refinement import AGREE
from collbench.reports import doubts
from collbench.reports.samples import Filter, Sample, Samples
from collbench.results import Run
from collbench.units import format_bytes

SHOWN = 3
"""Cases named in a group before the rest is only counted."""


@dataclass(frozen=True, slots=True)
class Group:
    """Lines that share a reason.

    Attributes:
        reason: why they have no number.
        count: how many lines.
        cases: collective, algorithm and rank counts, one phrase each, most frequent first.
        detail: the first line's detail; empty when there is none.
    """

    reason: str
    count: int
    cases: tuple[str, ...]
    detail: str = ""

    def sentence(self) -> str:
        """Return ``12 × timeout: allreduce ring on 8 ranks, …``."""
        named = "; ".join(self.cases[:SHOWN])
        more = f"; and {len(self.cases) - SHOWN} more" if len(self.cases) > SHOWN else ""
        return f"{self.count} × {self.reason}: {named}{more}{f' ({self.detail})' if self.detail else ''}"


def grouped(lines: Iterable[Mapping[str, Any]], only: Filter) -> list[Group]:
    """Group failed or skipped lines by reason, the largest group first; lines without a readable case too."""
    found: dict[str, list[tuple[Case | None, str]]] = {}
    for line in lines:
        try:
            case = Case.from_json(line["case"])
        except (KeyError, TypeError, AttributeError):
            case = None
        if case is None or only.wants(case):
            reason = str(line.get("reason") or "no reason given").replace("_", " ")
            found.setdefault(reason, []).append((case, str(line.get("detail") or "")))
    groups = [
        Group(reason, len(rows), _phrases(case for case, _ in rows), _shortened(rows[0][1]))
        for reason, rows in found.items()
    ]
    return sorted(groups, key=lambda group: -group.count)


def skipped(run: Run) -> list[Mapping[str, Any]]:
    """Return the skipped lines of cases that no launch measured, each case once (a resumed run says it again).

    What was left out as the neighbouring sizes agree is no loss and not among them.
    """
    return [line for line in _unmeasured(run) if line.get("reason") != AGREE]


def agreed(run: Run, only: Filter) -> int:
    """Return in how many cells (sizes of one collective and rank count …) cases were left out, since neighbours agree."""
    cases = [Case.from_json(line["case"]) for line in _unmeasured(run) if line.get("reason") == AGREE]
    return len({case.cell for case in cases if only.wants(case)})


def _unmeasured(run: Run) -> list[Mapping[str, Any]]:
    measured = {_identity(line) for line in run.cells}
    left = {_identity(line): line for line in run.skipped}
    return [line for case, line in left.items() if case not in measured]


def _agreed(run: Run, only: Filter) -> list[str]:
    count = agreed(run, only)
    return (
        [f"at {counted(count, 'size')} not every algorithm was measured: neighbours agree"] if count else []
    )


def _repeated(run: Run) -> list[str]:
    """Say which times of disturbed launches are not shown, and which disturbed launches are."""
    if not run.replaced:
        return []
    count = len({line["launch"] for line in run.replaced})
    was = "was" if count == 1 else "were"
    changed = f"{counted(count, 'launch')} ran while the machine's state changed and {was} measured again"
    return [
        f"repeated: {changed}; {counted(len(run.replaced), 'cell time')} of the more disturbed tries not used"
    ]


def _identity(line: Mapping[str, Any]) -> Case | int:
    """Return the case without the node shape, which only a launch knows; an unreadable line stands for itself."""
    try:
        case = Case.from_json(line["case"])
        return replace(case, cell=replace(case.cell, ranks_per_node=None))
    except (KeyError, TypeError, AttributeError):
        return id(line)


def _phrases(cases: Iterable[Case | None]) -> tuple[str, ...]:
    ranks: dict[tuple[str, str], dict[int, None]] = {}
    sizes: dict[tuple[str, str], list[int]] = {}
    for case in cases:
        if case is not None:
            key = (case.cell.collective, case.label)
            ranks.setdefault(key, {})[case.cell.ranks] = None
            sizes.setdefault(key, []).append(case.cell.nbytes)
    order = sorted(ranks, key=lambda key: -len(sizes[key]))
    return tuple(f"{c} {a} on {_list(sorted(ranks[c, a]))} ranks{_at(sizes[c, a])}" for c, a in order)


def _at(sizes: Sequence[int]) -> str:
    low, high = min(sizes), max(sizes)
    if not high:
        return ""
    return f" at {format_bytes(low)}" if low == high else f" at {format_bytes(low)} … {format_bytes(high)}"


def _list(numbers: Sequence[int]) -> str:
    words = [str(n) for n in numbers]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def counted(number: int, noun: str) -> str:
    """Return ``1 cell``, ``3 cells``, ``2 launches``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"


def _shortened(text: str, limit: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def notes(run: Run, found: Samples, only: Filter) -> list[str]:
    """Return the notes of a run, the gravest first; each is a sentence, a group's members are named within."""
    rows = [*found.usable, *found.contradicted]
    left = grouped(skipped(run), only)
    said = [
        *_groups("FAILED", grouped(run.failed, only)),
        *(
            f"NOT MEASURED {counted(g.count, 'case')}: {g.reason}; go on with --resume, or raise --budget"
            for g in left
            if "budget" in g.reason
        ),
        *_contradictions(found.contradicted),
        *_crowding(rows),
        *_groups("skipped", [group for group in left if "budget" not in group.reason]),
        *_repeated(run),
        *_agreed(run, only),
        *_evidence(found.usable),
    ]
    warnings = [warning for sample in rows for warning in sample.line.get("warnings") or ()]
    said += [f"{counted(count, 'cell')}: {text}" for text, count in doubts.grouped(warnings)]
    launch_warnings = [w for launch in run.launches.values() for w in launch.get("warnings") or ()]
    said += [f"{counted(count, 'launch')}: {text}" for text, count in doubts.grouped(launch_warnings)]
    if found.broken:
        said.append(f"{counted(found.broken, 'cell line')} without an indispensable field not shown")
    return [*said, *run.remarks]


def _groups(word: str, groups: Sequence[Group]) -> list[str]:
    return [f"{word} {group.sentence()}" for group in groups]


def _contradictions(samples: Sequence[Sample]) -> list[str]:
    """Name what ran as something else than was asked for; it is in no table."""
    pairs: dict[tuple[str, str], list[Case]] = {}
    for sample in samples:
        ran = sample.line.get("effective") or "something else"
        pairs.setdefault((sample.case.label, ran), []).append(sample.case)
    return [
        f"NOT SHOWN {counted(len(cases), 'cell')} asked for {asked} but ran as {ran}: {'; '.join(_phrases(cases)[:SHOWN])}"
        for (asked, ran), cases in pairs.items()
    ]


def _crowding(samples: Sequence[Sample]) -> list[str]:
    said = []
    crowded = sorted({s.case.cell.ranks for s in samples if s.about.get("oversubscribed")})
    if crowded:
        said.append(
            f"oversubscribed: {_list(crowded)} ranks shared fewer cores, so their times show the scheduler too; "
            "compare algorithms within a row, not with other machines"
        )
    emulated = sorted({s.case.cell.ranks for s in samples if s.about.get("emulated")})
    if emulated:
        said.append(f"emulated: the nodes of {_list(emulated)} ranks are virtual, no network was measured")
    return said


def _evidence(samples: Sequence[Sample]) -> list[str]:
    """Count what is not proven; the default and imported runs have nothing to prove beyond a remark."""
    asked = [s for s in samples if s.case.algorithm != "default"]
    unknown = [s for s in asked if (s.line.get("evidence") or {}).get("status", "unknown") == "unknown"]
    alike = [s for s in asked if (s.line.get("evidence") or {}).get("status") == "not_separable"]
    said = []
    if unknown:
        said.append(f"unproven: for {len(unknown)} of {len(asked)} cells nothing shows which algorithm ran")
    if alike:
        said.append(
            f"not separable: in {len(alike)} of {len(asked)} cells the proof fits two algorithms or more"
        )
    if said:
        said[-1] += " (--evidence)"
    return said
