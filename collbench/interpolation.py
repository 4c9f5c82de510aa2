"""Rules for rank counts between the measured ones, and how far leaving a measured one out says they can be trusted."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collbench import algorithms, pool
from collbench.candidates import Choice, Series
from collbench.pool import Pool
from collbench.records import Rule
from collbench.stats import MAD_TO_SIGMA

Floats = npt.NDArray[np.float64]
Span = tuple[int, int]

RANK_LIMITS = frozenset({"two_ranks", "even_ranks", "power_of_two"})
"""Limits of an algorithm that depend on the rank count."""


@dataclass(frozen=True, slots=True)
class Trust:
    """How predictions fared where one measured rank count was left out in turn.

    Attributes:
        error: half-width of a predicted log gain's 95 % interval, from the median absolute error of the predictions;
            NaN = could not be tried.
        regret: geometric mean of t(predicted choice)/t(best) − 1 over the cells left out; NaN = could not be tried.
        cells: cells left out.
    """

    error: float
    regret: float
    cells: int


TWO_SIGMA = 1.96
UNSUPPORTED = 10.0
"""Half-width of a log gain that no interval ever excludes zero with."""


def trust(aligned: Pool) -> Trust:
    """Return how well ``pool.expected_loss`` predicts each measured rank count from the others."""
    errors: list[float] = []
    regrets: list[float] = []
    default = aligned.default
    if len(aligned.ranks) > 1:
        for index, ranks in enumerate(aligned.ranks):
            predicted = pool.expected_loss(aligned.without(index), int(ranks))
            actual = aligned.actual(index)
            usable = np.isfinite(actual) & np.isfinite(predicted)
            score = np.where(usable, predicted, np.inf)
            chosen = score.argmin(axis=1)
            for row in np.flatnonzero(usable.any(axis=1)):
                column = chosen[row]
                regrets.append(float(actual[row, column]))
                if default is not None and usable[row, default] and column != default:
                    gain = predicted[row, default] - predicted[row, column]
                    errors.append(abs(float(actual[row, default] - actual[row, column] - gain)))
    return Trust(
        error=TWO_SIGMA * MAD_TO_SIGMA * float(np.median(errors)) if errors else float("nan"),
        regret=float(np.expm1(np.mean(regrets))) if regrets else float("nan"),
        cells=len(regrets),
    )


def gaps(measured: Sequence[int]) -> list[Span]:
    """Return the rank counts between the measured ones as spans, each gap cut at its geometric middle."""
    spans: list[Span] = []
    for low, high in itertools.pairwise(measured):
        first, last = low + 1, high - 1
        if first > last:
            continue
        middle = int(np.sqrt(low * high))
        if first <= middle < last:
            spans += [(first, middle), (middle + 1, last)]
        else:
            spans.append((first, last))
    return spans


def series_for(aligned: Pool, span: Span, provider: str, error: float) -> Series | None:
    """Return a predicted series for a span of rank counts; None where nothing can run there.

    Its times are expected losses, its intervals the 95 % error of leaving one rank count out. Algorithms that
    need a special rank count do not compete.
    """
    ranks = round(float(np.sqrt(span[0] * span[1])))
    loss = pool.expected_loss(aligned, ranks)
    free = np.array([_any_ranks(provider, aligned.collective, c, span) for c in aligned.choices])
    time = np.where(np.isfinite(loss) & free, loss, np.nan)
    rows = ~np.isnan(time).all(axis=1)
    if not rows.any():
        return None
    time = time[rows]
    default = aligned.default
    gain = np.full(time.shape, np.nan) if default is None else time[:, [default]] - time
    # What one neighbour does not show to be faster than the default is not inferred from the other.
    below = int(np.searchsorted(aligned.ranks, span[0])) - 1
    doubtful = np.asarray(aligned.doubtful[below : below + 2].any(axis=0))
    half = np.where(doubtful[rows], UNSUPPORTED, error)
    if default is not None:
        half[:, default] = 0.0
    return Series(
        collective=aligned.collective,
        ranks=span[0],
        ranks_per_node=None,
        sizes=aligned.sizes[rows],
        choices=aligned.choices,
        log_time=time,
        gain=gain,
        half=half,
        launches=np.zeros(time.shape, np.int64),
        default=default,
    )


def _any_ranks(provider: str, collective: str, choice: Choice, span: Span) -> bool:
    """Say whether an algorithm can run on every rank count of a span."""
    for row in algorithms.algorithms(provider, collective):
        if row.name == choice.algorithm:
            return not RANK_LIMITS & set(row.limits)
    return choice.algorithm == "default" or span[0] == span[1] or not algorithms.algorithms(provider)


def mark(rules: Sequence[Rule], span: Span, per_node: int | None, found: Trust) -> list[Rule]:
    """Return the rules of a predicted series marked as interpolated for a span of rank counts."""
    known = np.isfinite(found.regret)
    doubt = (
        f"leaving one rank count out costs {found.regret:.1%} on average over {found.cells} cells"
        if known
        else "uncertainty unknown: too few rank counts"
    )
    return [
        replace(
            rule, basis="interpolated" if rule.basis == "measured" else rule.basis, ranks=span[0],
            ranks_max=span[1], ranks_per_node=per_node, sizes=0, launches=0,
            note="; ".join(filter(None, (rule.note.replace("one repetition: no interval", ""), doubt))),
        )
        for rule in rules
    ]  # fmt: skip
