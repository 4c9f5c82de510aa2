"""Does the textbook's advice hold here, from which size on, and what does following it blindly cost?"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from collbench import advice, algorithms, candidates, pool, screening
from collbench.advice import Advice
from collbench.candidates import Series

Floats = npt.NDArray[np.float64]

HOLDS = 0.05
"""Advice holds at a size where following it costs no more than this against the best measured."""
CLASSES = (("2 to 8 ranks", 2, 8), ("9 to 63 ranks", 9, 63), ("64 ranks and more", 64, None))
SIZES = (
    ("small", 0, advice.SMALL),
    ("middle", advice.SMALL + 1, advice.LARGE - 1),
    ("large", advice.LARGE, None),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one piece of advice at one rank count.

    Attributes:
        name: key of the advice.
        text: the advice.
        ranks: rank count.
        verdict: holds, holds_from, holds_up_to, holds_partly, does_not_hold.
        from_bytes: first size from which (holds_from), or up to which (holds_up_to), it holds; None otherwise.
        cost_mean: geometric mean of t(advice)/t(best) − 1 over the sizes it speaks of.
        cost_worst: the worst of them.
        worst_bytes: size of the worst.
        gain: geometric mean of t(default)/t(advice) − 1; None where no default was measured.
        cells: sizes behind it.
        basis: measured.
    """

    name: str
    text: str
    ranks: int
    verdict: str
    from_bytes: int | None
    cost_mean: float
    cost_worst: float
    worst_bytes: int
    gain: float | None
    cells: int
    basis: str = "measured"


@dataclass(frozen=True, slots=True)
class Use:
    """What to use for a class of cluster sizes and messages.

    Attributes:
        ranks: rank count.
        collective: name.
        size_class: small, middle, large.
        choice: the choice that loses least over the class.
        provider: whose it is; not the library's own = needs application code.
        loss: its geometric mean loss against the best of each size.
        gain: its geometric mean gain over the default; None where no default was measured.
        cells: sizes behind it.
    """

    ranks: int
    collective: str
    size_class: str
    choice: str
    provider: str
    loss: float
    gain: float | None
    cells: int


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where one family overtakes another as the size grows, at one rank count.

    Attributes:
        collective: name.
        ranks: rank count.
        leader: the label that leads from ``from_bytes`` on, up to ``to_bytes``.
        from_bytes: first measured size of the band.
        to_bytes: last measured size of the band.
    """

    collective: str
    ranks: int
    leader: str
    from_bytes: int
    to_bytes: int


@dataclass(frozen=True)
class Guidance:
    """The page: verdicts on advice, what to use, bands of sizes with one leader."""

    verdicts: tuple[Verdict, ...]
    uses: tuple[Use, ...]
    bands: tuple[Crossing, ...]


def guide(table: pd.DataFrame, provider: str | None = None) -> Guidance:
    """Return the guidance that runs support, compositions and portable algorithms included.

    Args:
        table: ``results.frame``.
        provider: the library; None = the one with most rows.
    """
    library = provider or screening.main_provider(table)
    own = screening.screen(table, library).rows
    frames = [own]
    for other in screening.NOT_A_LIBRARY:
        rows = table[table["provider"] == other]
        if len(rows):
            extra = screening.screen(table, other).rows
            extra = extra[extra["algorithm"] != "default"]
            frames.append(extra.assign(algorithm=other + ":" + extra["algorithm"].astype(str)))
    series = candidates.build(pd.concat(frames))
    verdicts = [v for item in advice.ADVICE for v in _verdicts(item, series, library)]
    uses = [use for one in series for use in _uses(one, library)]
    bands = [band for one in series for band in _bands(one)]
    return Guidance(tuple(verdicts), tuple(uses), tuple(bands))


def _within(value: int, limits: tuple[int, int | None]) -> bool:
    return limits[0] <= value and (limits[1] is None or value <= limits[1])


def _verdicts(item: Advice, series: Sequence[Series], library: str) -> list[Verdict]:
    found = []
    for one in series:
        if one.collective != item.collective or not _within(one.ranks, item.ranks):
            continue
        inside = np.array([_within(int(n), item.sizes) for n in one.sizes])
        followed = _by_parts(item, one, series) if item.parts else _by_family(item, one, library)
        best = np.nanmin(one.log_time, axis=1)
        usable = inside & np.isfinite(followed)
        if usable.any():
            found.append(_judge(item, one, followed - best, usable))
    return found


def _by_family(item: Advice, one: Series, library: str) -> Floats:
    """Return the log time of following the advice: its best member, size by size; NaN where none was measured."""
    members = [
        i for i, c in enumerate(one.choices) if _family(library, one.collective, c.algorithm) in item.families
    ]
    times = np.where(np.isnan(one.log_time[:, members]), np.inf, one.log_time[:, members])
    least = times.min(axis=1) if members else np.full(len(one.sizes), np.inf)
    return np.where(np.isfinite(least), least, np.nan)


def _family(library: str, collective: str, algorithm: str) -> str:
    provider, colon, name = algorithm.partition(":")
    if not colon:
        return algorithms.family(library, collective, algorithm)
    known = algorithms.family(provider, collective, name)
    return "hierarchical" if known == "other" and "hier" in name else known


def _by_parts(item: Advice, one: Series, series: Sequence[Series]) -> Floats:
    """Return the log of the added times of the parts' best choices at the same total size; NaN where one lacks."""
    total = np.zeros(len(one.sizes))
    for name in item.parts:
        part = next((s for s in series if (s.collective, s.ranks, s.ranks_per_node)
                     == (name, one.ranks, one.ranks_per_node)), None)  # fmt: skip
        if part is None:
            return np.full(len(one.sizes), np.nan)
        best = dict(zip(part.sizes.tolist(), np.nanmin(part.log_time, axis=1).tolist(), strict=True))
        total += np.array([np.exp(best.get(int(n), np.nan)) for n in one.sizes])
    return np.log(total)


def _judge(item: Advice, one: Series, loss: Floats, usable: npt.NDArray[np.bool_]) -> Verdict:
    sizes, own = one.sizes[usable], loss[usable]
    good = own <= np.log1p(HOLDS)
    verdict, border = "does_not_hold", None
    first, last = int(np.argmax(good)), len(good) - 1 - int(np.argmax(good[::-1]))
    if good.all():
        verdict = "holds"
    elif good.any() and good[first:].all():
        verdict, border = "holds_from", int(sizes[first])
    elif good.any() and good[: last + 1].all():
        verdict, border = "holds_up_to", int(sizes[last])
    elif good.any():
        verdict = "holds_partly"
    gain = None
    if one.default is not None:
        gains = (one.log_time[usable, one.default] - np.nanmin(one.log_time[usable], axis=1)) - own
        gain = float(np.expm1(np.nanmean(gains))) if np.isfinite(gains).any() else None
    worst = int(np.argmax(own))
    return Verdict(
        item.name, item.text, one.ranks, verdict, border, float(np.expm1(own.mean())),
        float(np.expm1(own[worst])), int(sizes[worst]), gain, len(sizes),
    )  # fmt: skip


def _uses(one: Series, library: str) -> list[Use]:
    found = []
    for name, first, last in SIZES:
        rows = np.array([_within(int(n), (first, last)) for n in one.sizes])
        if not rows.any():
            continue
        losses = pool.losses(one.log_time[rows])
        complete = np.asarray(np.isfinite(losses).all(axis=0))
        if not complete.any():
            continue
        mean = np.where(complete, np.where(np.isfinite(losses), losses, 0.0).mean(axis=0), np.inf)
        column = int(np.argmin(mean))
        gain = None
        if one.default is not None and complete[one.default]:
            gain = float(np.expm1(mean[one.default] - mean[column]))
        choice = one.choices[column]
        prefix, colon, _ = choice.algorithm.partition(":")
        found.append(
            Use(one.ranks, one.collective, name, choice.label, prefix if colon else library,
                float(np.expm1(mean[column])), gain, int(rows.sum()))
        )  # fmt: skip
    return found


def _bands(one: Series) -> list[Crossing]:
    """Return the bands of measured sizes in which one choice leads, the default left aside."""
    others = [i for i in range(len(one.choices)) if i != one.default]
    if len(others) < 2:
        return []
    times = np.where(np.isnan(one.log_time[:, others]), np.inf, one.log_time[:, others])
    leaders = times.argmin(axis=1)
    edges = [0, *(np.flatnonzero(np.diff(leaders)) + 1).tolist(), len(leaders)]
    return [
        Crossing(one.collective, one.ranks, one.choices[others[int(leaders[a])]].label, int(one.sizes[a]),
                 int(one.sizes[b - 1]))
        for a, b in itertools.pairwise(edges)
        if np.isfinite(times[a].min())
    ]  # fmt: skip


def to_json(page: Guidance) -> list[Mapping[str, object]]:
    """Return the ``guidance`` array of ``recommend --json``."""
    kinds = (("verdict", page.verdicts), ("use", page.uses), ("band", page.bands))
    return [
        {"kind": kind, **{f: getattr(item, f) for f in item.__dataclass_fields__}}
        for kind, items in kinds
        for item in items
    ]
