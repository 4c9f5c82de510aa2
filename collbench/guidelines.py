"""Self-consistency rules: a collective should not cost more than a composition a user could write instead.

Source of the rules: Träff, Gropp, Thakur, Self-Consistent MPI Performance Guidelines (2010).
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats as distributions

from collbench.stats import MAD_TO_SIGMA, MEDIAN_EFFICIENCY
from collbench.units import format_bytes
from collbench.violations import Violation

__all__ = ["COMPOSITIONS", "MARGIN", "Violation", "best_chunks", "check", "sentences"]

MARGIN = 0.05
"""A loss below this share is no violation, however certain."""
_Z = 1.96

COMPOSITIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("allreduce", ("reduce", "bcast")),
    ("allreduce", ("reduce_scatter", "allgather")),
    ("allgather", ("gather", "bcast")),
    ("bcast", ("scatter", "allgather")),
    ("reduce", ("allreduce",)),
)
"""Collective → what, one after the other, has the same result at the same total size."""

_REDUCING = ("allreduce", "reduce", "reduce_scatter")
_METHOD = (
    "rank_reduction",
    "sync",
    "rotation",
    "timer",
    "thread_level",
    "library",
    "library_version",
    "source",
    "memory",
    "groups",
)


@dataclass(frozen=True, slots=True)
class _Cell:
    """One measured case: launch → (median, relative standard error of it or None)."""

    row: Mapping[str, Any]
    launches: Mapping[tuple[str, int], tuple[float, float | None]]

    @property
    def time_s(self) -> float:
        return float(np.median([t for t, _ in self.launches.values()]))


_Index = dict[tuple[Any, ...], _Cell]


def check(frame: pd.DataFrame, margin: float = MARGIN) -> list[Violation]:
    """Return the violations in measured rows, the largest loss first.

    Only the library's default is judged. A violation must exceed the margin and its 95 % interval must lie above 0;
    where no interval can be given there is none. Launches are paired; from three launches on they alone make the
    interval (Student's t of log-ratios), below that the spread of the blocks does.

    Args:
        frame: from ``results.frame``.
        margin: least loss that counts, as a share.
    """
    found: list[Violation] = []
    for _, rows in frame.groupby(list(_METHOD), dropna=False, sort=False) if len(frame) else ():
        index = _index(rows)
        for key, cell in index.items():
            if cell.row["algorithm"] == "default":
                for rule, words, names, parts in _alternatives(key, index):
                    violation = _judge(rule, words, names, cell, parts, margin)
                    if violation:
                        found.append(violation)
    return sorted(found, key=lambda v: -v.loss)


def best_chunks(frame: pd.DataFrame, margin: float = MARGIN) -> list[Violation]:
    """Return, for each pipelined algorithm measured in one piece and in chunks, what one piece loses to the best chunk.

    Args:
        frame: from ``results.frame``; rows with ``chunk_bytes`` among their parameters are looked at.
        margin: least loss that counts, as a share.
    """
    found: list[Violation] = []
    for _, rows in frame.groupby(list(_METHOD), dropna=False, sort=False) if len(frame) else ():
        index = _index(rows)
        for key, cell in index.items():
            params = json.loads(key[9])
            if params.get("chunk_bytes") != 0:
                continue
            same = [c for k, c in index.items() if k[:9] == key[:9] and _chunk(k) and _rest(k) == _rest(key)]
            best = min(same, key=lambda c: c.time_s, default=None)
            if best:
                words = f"chunk_bytes={json.loads(best.row['params'])['chunk_bytes']}"
                violation = _judge("chunk", words, (f"{key[8]}[{words}]",), cell, [best], margin)
                found += [violation] if violation else []
    return sorted(found, key=lambda v: -v.loss)


def _chunk(key: tuple[Any, ...]) -> int:
    return int(json.loads(key[9]).get("chunk_bytes", 0))


def _rest(key: tuple[Any, ...]) -> dict[str, Any]:
    return {name: value for name, value in json.loads(key[9]).items() if name != "chunk_bytes"}


def _index(rows: pd.DataFrame) -> _Index:
    """Return the cells by (collective, ranks, ranks_per_node, nbytes, dtype, op, in_place, provider, algorithm)."""
    gathered: dict[
        tuple[Any, ...], tuple[Mapping[str, Any], dict[tuple[str, int], tuple[float, float | None]]]
    ] = {}
    for row in rows.to_dict("records"):
        per_node = None if pd.isna(row["ranks_per_node"]) else int(row["ranks_per_node"])
        op = row["op"] if isinstance(row["op"], str) else None
        key = (
            row["collective"], int(row["ranks"]), per_node, int(row["nbytes"]), row["dtype"], op,
            bool(row["in_place"]), row["provider"], row["algorithm"], row["params"],
        )  # fmt: skip
        facts: dict[str, Any] = {**{str(k): v for k, v in row.items()}, "ranks_per_node": per_node, "op": op}
        entry = gathered.setdefault(key, (facts, {}))
        entry[1][(str(row["run"]), int(row["launch"]))] = (float(row["time_s"]), _error(row["blocks_s"]))
    return {key: _Cell(facts, launches) for key, (facts, launches) in gathered.items()}


def _error(blocks: Sequence[float]) -> float | None:
    """Return the relative standard error of the median of a launch's blocks; None with fewer than three."""
    if len(blocks) < 3:
        return None
    values = np.asarray(blocks, float)
    centre = float(np.median(values))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(values - centre)))
    return MEDIAN_EFFICIENCY * spread / centre / math.sqrt(len(values))


_Alternative = tuple[str, str, tuple[str, ...], list[_Cell]]


def _alternatives(key: tuple[Any, ...], index: _Index) -> Iterator[_Alternative]:
    """Yield (rule, words, names, cells whose times add up) of everything that could be used instead."""
    name, ranks, per_node, nbytes, dtype, op, in_place, provider, algorithm, params = key

    def at(other: str, size: int = nbytes, p: int = ranks) -> _Cell | None:
        place = in_place and other not in ("bcast", "scatter")
        operator = (op or "sum") if other in _REDUCING else None
        shape = per_node if p == ranks or per_node is None or per_node < ranks else p
        return index.get((other, p, shape, size, dtype, operator, place, provider, algorithm, params))

    for target, parts in COMPOSITIONS:
        cells = [at(part) for part in parts] if target == name else []
        if cells and all(cells):
            yield "composition", " + ".join(parts), parts, [c for c in cells if c]
    best = _best_portable(key, index)
    if best:
        label = str(best.row["algorithm"])
        yield "portable", f"portable {label}", (f"portable:{label}",), [best]
    larger = _next_size(key, index)
    if larger:
        words = f"{format_bytes(larger.row['nbytes'])} instead of {format_bytes(nbytes)}"
        yield "size", words, (name,), [larger]
    above = 1 << (ranks - 1).bit_length()
    if above != ranks and ranks > 2 and (neighbour := at(name, p=above)):
        yield "ranks", f"{above} ranks instead of {ranks}", (name,), [neighbour]


def _best_portable(key: tuple[Any, ...], index: _Index) -> _Cell | None:
    same = (
        [c for k, c in index.items() if k[:7] == key[:7] and k[7] == "portable"]
        if key[0] != "sendrecv"
        else []
    )
    return min(same, key=lambda c: c.time_s, default=None)


def _next_size(key: tuple[Any, ...], index: _Index) -> _Cell | None:
    """Return the cheapest larger size of the same case."""
    larger = [c for k, c in index.items() if k[:3] == key[:3] and k[4:] == key[4:] and k[3] > key[3]]
    return min(larger, key=lambda c: c.time_s, default=None)


def _judge(
    rule: str, words: str, names: tuple[str, ...], cell: _Cell, parts: Sequence[_Cell], margin: float
) -> Violation | None:
    """Return the violation if the loss is large and certain enough."""
    common = set(cell.launches).intersection(*(p.launches for p in parts))
    pairs = [(cell.launches[k], [p.launches[k] for p in parts]) for k in sorted(common)]
    if not pairs:  # other rank counts are always other launches
        if rule != "ranks":
            return None
        pairs = list(zip(cell.launches.values(), ([v] for v in parts[0].launches.values()), strict=False))
    logs = np.array([math.log(mine[0] / sum(t for t, _ in others)) for mine, others in pairs])
    half = _half_width(logs, pairs)
    if half is None:
        return None
    centre = float(np.mean(logs))
    loss, low, high = (math.expm1(v) for v in (centre, centre - half, centre + half))
    if loss <= margin or low <= 0:
        return None
    instead = float(np.median([sum(t for t, _ in others) for _, others in pairs]))
    row = cell.row
    return Violation(
        rule=rule, collective=row["collective"], ranks=int(row["ranks"]), ranks_per_node=row["ranks_per_node"],
        nbytes=int(row["nbytes"]), dtype=row["dtype"], op=row["op"], provider=row["provider"],
        algorithm=row["algorithm"], instead=words, composition=names,
        time_s=float(np.median([mine[0] for mine, _ in pairs])), instead_s=instead,
        loss=loss, loss_low=low, loss_high=high, launches=len(pairs),
    )  # fmt: skip


_Times = tuple[float, float | None]


def _half_width(logs: Any, pairs: Sequence[tuple[_Times, list[_Times]]]) -> float | None:
    """Return the half-width of the interval of the mean log-ratio; None where the data give none."""
    n = len(logs)
    if n >= 3:
        return float(distributions.t.ppf(0.975, n - 1) * np.std(logs, ddof=1) / math.sqrt(n))
    variances = []
    for (_, error), others in pairs:
        total = sum(t for t, _ in others)
        squares = [_square(error, 1.0), *(_square(e, t / total) for t, e in others)]
        if any(s is None for s in squares):
            return None
        variances.append(sum(s for s in squares if s is not None))
    # Two launches: their difference counts too.
    between = float(np.var(logs, ddof=1)) / n if n > 1 else 0.0
    return _Z * math.sqrt(sum(variances) / n**2 + between)


def _square(error: float | None, weight: float) -> float | None:
    return None if error is None else (error * weight) ** 2


def sentences(violations: Iterable[Violation]) -> list[str]:
    """Return one sentence per violation."""
    return [v.sentence for v in violations]
