"""What a table shows: one panel per collective and rank count, with the fastest algorithm of each size."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scipy.special import stdtrit

from collbench.algorithms import algorithms
from collbench.collectives import COLLECTIVES, busbw
from collbench.decision import MARGIN
from collbench.records import Case
from collbench.reports.samples import Sample
from collbench.stats import Ratio, paired_log_median

LAUNCHES_FOR_PAIRING = 3
"""From this many common launches on the launch is the unit; below, interleaved blocks are paired."""


@dataclass(frozen=True, slots=True)
class Key:
    """What all rows of a panel share; rows that differ in any of it are never set side by side.

    Attributes:
        collective: name.
        ranks: rank count.
        ranks_per_node: None when unknown.
        dtype: element type.
        op: reduction operator; None where nothing is reduced.
        in_place: in place or not.
        memory: host, pinned, cuda, rocm.
        groups: communicators at once.
        variant: name of an ``ab`` variant; None in an ordinary run.
        rank_reduction: how ranks were reduced to one time; None when unknown.
        sync: how ranks were synchronised; None when unknown.
        timer: c, mpi4py, or an imported tool's name; None when unknown.
        thread_level: as the library provided it; None when unknown.
        library: name and version of the library; empty when unknown.
        rotation: what goes round from call to call; None = nothing does, or unknown.
    """

    collective: str
    ranks: int
    ranks_per_node: int | None
    dtype: str
    op: str | None
    in_place: bool
    memory: str
    groups: int
    variant: str | None
    rank_reduction: str | None
    sync: str | None
    timer: str | None
    thread_level: str | None
    library: str
    rotation: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One algorithm at one size.

    Attributes:
        case: what ran.
        time_s: median of the launch medians.
        launches: launches behind it.
        blocks: blocks behind it; 0 when imported.
        low_s: smallest launch median; None with one launch.
        high_s: largest launch median; None with one launch.
        fastest: it is the fastest of its size, of two or more.
        tied: it cannot be told from the fastest (95 % interval of the paired ratio covers 1).
    """

    case: Case
    time_s: float
    launches: int
    blocks: int
    low_s: float | None
    high_s: float | None
    fastest: bool = False
    tied: bool = False

    @property
    def algbw(self) -> float | None:
        """Message size over time, bytes per second; None where there is no size."""
        nbytes = self.case.cell.nbytes
        return nbytes / self.time_s if nbytes else None

    @property
    def busbw(self) -> float | None:
        """Bus bandwidth, bytes per second; None where the collective has none or is not ours."""
        cell = self.case.cell
        known = cell.collective in COLLECTIVES
        return busbw(cell.collective, cell.ranks, cell.nbytes, self.time_s) if known else None


@dataclass(frozen=True, slots=True)
class Panel:
    """One table: sizes × algorithms.

    Attributes:
        key: what all its rows share.
        sizes: ascending message sizes in bytes.
        labels: column names, ``default`` first.
        entries: (size, label) → entry.
        launches: launch numbers behind it, ascending.
        left_out: launches in another machine state, which were not pooled.
        state: machine state of its launches; None when unknown.
        apart: what tells it from panels of the same collective and shape, in words; empty when nothing must.
    """

    key: Key
    sizes: tuple[int, ...]
    labels: tuple[str, ...]
    entries: Mapping[tuple[int, str], Entry]
    launches: tuple[int, ...]
    left_out: tuple[int, ...] = ()
    state: str | None = None
    apart: tuple[str, ...] = ()

    def winner(self, nbytes: int) -> str | None:
        """Return the fastest, or ``default`` where that is as good; None where nothing was compared.

        As good: tied with it, or slower by less than the margin that ``recommend`` asks of a rule.
        """
        best = next((e for e in self._row(nbytes) if e.fastest), None)
        if best is None:
            return None
        for label in self.labels:
            entry = self.entries.get((nbytes, label))
            if entry and (entry.fastest or (entry.case.algorithm == "default" and _as_good(entry, best))):
                return label
        return None

    def gain(self, nbytes: int) -> float | None:
        """Return t(default)/t(winner) − 1; None where the default was not measured."""
        winner = self.winner(nbytes)
        default = next((e for e in self._row(nbytes) if e.case.algorithm == "default"), None)
        if winner is None or default is None:
            return None
        return default.time_s / self.entries[nbytes, winner].time_s - 1

    def _row(self, nbytes: int) -> list[Entry]:
        return [self.entries[nbytes, label] for label in self.labels if (nbytes, label) in self.entries]


def panels(usable: Iterable[Sample]) -> list[Panel]:
    """Return the panels of some samples in the order of COLLECTIVES, rank counts ascending."""
    groups: dict[Key, list[Sample]] = {}
    for sample in usable:
        groups.setdefault(_key(sample), []).append(sample)
    order = [*COLLECTIVES, *(key.collective for key in groups)]
    ranked = sorted(groups, key=lambda key: (order.index(key.collective), key.ranks))
    return [replace(_panel(key, groups[key]), apart=_apart(key, ranked)) for key in ranked]


_METHOD = ("library", "rank_reduction", "sync", "timer", "thread_level", "rotation")


def _apart(key: Key, keys: Sequence[Key]) -> tuple[str, ...]:
    """Return the method fields in which a key differs from another of the same collective and shape."""
    twins = [other for other in keys if _shape(other) == _shape(key)]
    differing = [name for name in _METHOD if len({getattr(twin, name) for twin in twins}) > 1]
    return tuple(str(getattr(key, name) or f"{name.replace('_', ' ')} unknown") for name in differing)


def _shape(key: Key) -> Key:
    return replace(
        key, library="", rank_reduction=None, sync=None, timer=None, thread_level=None, rotation=None
    )


def _key(sample: Sample) -> Key:
    cell, line, about = sample.case.cell, sample.line, sample.about
    library = about.get("library") or {}
    return Key(
        cell.collective, cell.ranks, cell.ranks_per_node, cell.dtype, cell.op, cell.in_place, cell.memory,
        cell.groups, about.get("variant"), line.get("rank_reduction"), line.get("sync"), line.get("timer"),
        about.get("thread_level"), " ".join(str(library[k]) for k in ("name", "version") if library.get(k)),
        line.get("rotation"),
    )  # fmt: skip


def _panel(key: Key, rows: list[Sample]) -> Panel:
    state = _common_state(rows)
    pooled = [row for row in rows if row.state == state]
    labels = _labels(pooled)
    cells: dict[int, dict[str, list[Sample]]] = {}
    for row in pooled:
        cells.setdefault(row.case.cell.nbytes, {}).setdefault(labels[_who(row.case)], []).append(row)
    entries: dict[tuple[int, str], Entry] = {}
    for nbytes, by_label in cells.items():
        entries.update({(nbytes, label): entry for label, entry in _entries(by_label).items()})
    return Panel(
        key=key,
        sizes=tuple(sorted(cells)),
        labels=tuple(labels[who] for who in sorted(labels, key=lambda who: _place(key.collective, who))),
        entries=entries,
        launches=tuple(sorted({row.launch for row in pooled})),
        left_out=tuple(sorted({row.launch for row in rows if row.state != state})),
        state=state,
    )


def _common_state(rows: list[Sample]) -> str | None:
    """Return the state most launches were in (``fast`` before others): only one state is pooled."""
    states: dict[int, str | None] = {row.launch: row.state for row in rows}
    counted = list(states.values())
    return max(dict.fromkeys(counted), key=lambda state: (counted.count(state), state == "fast"))


Who = tuple[str, str, str | None, tuple[tuple[str, int | str], ...]]


def _who(case: Case) -> Who:
    return case.provider, case.algorithm, case.component, case.params


def _place(collective: str, who: Who) -> tuple[bool, str, int, str]:
    """Return where a contender stands: the default first, then in the order of its provider's table."""
    provider, algorithm, _, params = who
    names = [row.name for row in algorithms(provider, collective)]
    place = names.index(algorithm) if algorithm in names else len(names)
    return algorithm != "default", provider, place, f"{algorithm}{params}"


def _labels(rows: list[Sample]) -> dict[Who, str]:
    """Name each contender; provider and component are said only where the word alone would mislead.

    The library at hand (whose default runs, else the first that is not ours) goes without its name.
    """
    whos = {_who(row.case): row.case.label for row in rows}
    homes = (
        [who[0] for who in whos if who[1] == "default"] or [w[0] for w in whos if w[0] != "portable"] or [""]
    )
    labels = {}
    for who, label in whos.items():
        text = label if who[0] == homes[0] or len({w[0] for w in whos}) == 1 else f"{who[0]}:{label}"
        twins = [w for w in whos if w[:2] == who[:2] and w[3] == who[3]]
        labels[who] = f"{text}@{who[2] or '?'}" if len(twins) > 1 else text
    return labels


def _entries(by_label: Mapping[str, list[Sample]]) -> dict[str, Entry]:
    """Return one size's entries, with the fastest and what is tied with it marked."""
    medians = {label: statistics.median(row.time_s for row in rows) for label, rows in by_label.items()}
    best = min(medians, key=lambda label: (medians[label], label != "default"))
    entries = {}
    for label, rows in by_label.items():
        times = [row.time_s for row in rows]
        several = len({row.launch for row in rows}) > 1
        entries[label] = Entry(
            case=rows[0].case,
            time_s=medians[label],
            launches=len({row.launch for row in rows}),
            blocks=sum(len(row.blocks_s) for row in rows),
            low_s=min(times) if several else None,
            high_s=max(times) if several else None,
            fastest=label == best and len(by_label) > 1,
            tied=label != best and _is_tied(compared(rows, by_label[best])),
        )
    return entries


def _as_good(entry: Entry, best: Entry) -> bool:
    return entry.tied or entry.time_s < best.time_s * (1 + MARGIN)


def _is_tied(ratio: Ratio | None) -> bool:
    return ratio is not None and ratio.low is not None and ratio.low <= 1


def compared(rows: Sequence[Sample], others: Sequence[Sample]) -> Ratio | None:
    """Return t(rows)/t(others), paired by launch or, in fewer than three launches, by interleaved block.

    None where they share no launch.
    """
    mine, theirs = ({row.launch: row for row in side} for side in (rows, others))
    common = [launch for launch in mine if launch in theirs]
    if len(common) >= LAUNCHES_FOR_PAIRING:
        return _paired([mine[i].time_s for i in common], [theirs[i].time_s for i in common])
    numerator: list[float] = []
    denominator: list[float] = []
    for launch in common:
        count = min(len(mine[launch].blocks_s), len(theirs[launch].blocks_s))
        numerator += mine[launch].blocks_s[:count]
        denominator += theirs[launch].blocks_s[:count]
    return _paired(numerator, denominator) if numerator else None


def _paired(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """Return the paired ratio with Student's quantile for its width: a few blocks prove little."""
    return paired_log_median(numerator, denominator, float(stdtrit(max(len(numerator) - 1, 1), 0.975)))
