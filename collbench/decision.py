"""Which choice serves which sizes of a series: the fewest intervals that lose little and do no harm."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collbench import segments
from collbench.candidates import Series

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MARGIN = 0.02
"""A rule departs from the default only for at least this gain (facts: timing-and-statistics §9)."""
ALLOWANCE = 0.01
"""Mean relative loss per size that a smaller table may cost, against the best decision for each size."""
CAP = 0.25
"""No single size may lose more than this for the sake of a smaller table."""
LEAST_KNOWN = 0.5
"""Share of a series' sizes at which a choice must be measured to serve all of them."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How a decision is made.

    Attributes:
        margin: smallest gain over the default that is worth a rule, as a share.
        allowance: mean relative loss per size for which rules are saved.
        keep_default: whether "leave the library alone" is possible; False where the table's settings disable the
            untouched stack (Open MPI on several nodes).
        uniform: collectives for which one choice must serve all sizes (see ``tables.Format.uniform``).
    """

    margin: float = MARGIN
    allowance: float = ALLOWANCE
    keep_default: bool = True
    uniform: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Verdict:
    """What is known of each (size, choice) of a series, before sizes are joined.

    Attributes:
        loss: log loss against the best decision for the size; inf where the choice cannot serve.
        harmless: the choice may serve here: not shown to be slower than the default.
        anchor: a rule may open or close with the choice here: it beats the default beyond noise and margin, or there is
            no interval to say. Ties at either end of a rule go to the default.
    """

    loss: Floats
    harmless: Bools
    anchor: Bools


def judge(series: Series, policy: Policy) -> Verdict:
    """Return the loss of each choice against the best decision for each size, and where it does no harm.

    The best decision is the fastest choice among the default and those that beat it beyond noise and margin; without
    intervals (one repetition) simply the fastest. Where the default was not measured at a size, all compete.
    """
    gain, half, time = series.gain, np.nan_to_num(series.half), series.log_time
    measured = np.isfinite(time)
    margin = np.log1p(policy.margin)
    compared = np.isfinite(gain)
    proven = np.where(compared, (gain >= margin) & (gain - half > 0), measured)
    harmless = np.where(compared, gain + np.where(half > 0, half, margin) >= 0, measured)
    if series.default is not None:
        usable = measured[:, series.default] & policy.keep_default
        proven[:, series.default] = harmless[:, series.default] = usable
        if not policy.keep_default:
            harmless = proven = measured & (np.arange(len(series.choices)) != series.default)
    eligible = measured & (proven | (np.isnan(series.half) & harmless))
    reference = np.min(np.where(eligible, time, np.inf), axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        loss = np.where(measured, np.maximum(time - reference, 0.0), np.inf)
    return Verdict(np.where(loss <= np.log1p(CAP), loss, np.inf), harmless & measured, eligible)


def permitted(series: Series, verdict: Verdict, policy: Policy) -> Bools:
    """Return shape (sizes, sizes, choices): whether a choice may serve all sizes i … j as one rule.

    A rule other than the default is nowhere shown to be slower, and its mean gain over the default has an interval
    above zero and reaches the margin.
    """
    ends = verdict.anchor[:, None, :] & verdict.anchor[None, :, :]
    allowed: Bools = np.asarray((_span_sum(~verdict.harmless) == 0) & ends, np.bool_)
    if series.default is None or not policy.keep_default:
        return allowed
    known = np.isfinite(series.gain)
    count = _span_sum(known)
    gain = _span_sum(np.where(known, series.gain, 0.0)) / np.maximum(count, 1)
    half = _span_sum(np.where(known, np.nan_to_num(series.half), 0.0)) / np.maximum(count, 1)
    worth: Bools = (gain >= np.log1p(policy.margin) - 1e-12) & (gain - half > 0)
    worth[:, :, series.default] = True
    return np.asarray(allowed & (worth | (count == 0)), np.bool_)


def _span_sum(values: Any) -> Any:
    """Return shape (n, n, k): the sum of ``values`` (n, k) over i … j."""
    numbers = np.asarray(values, np.float64)
    running = np.cumsum(numbers, axis=0)
    return np.round(running[None, :, :] - running[:, None, :] + numbers[:, None, :], 12)


def decide(many: Sequence[Series], policy: Policy) -> list[list[segments.Segment]]:
    """Return the segments (first size, last size, choice) of each series; all share the allowance."""
    found: dict[int, list[segments.Segment]] = {}
    fronts, choices, numbers = [], [], []
    for number, series in enumerate(many):
        if series.collective in policy.uniform:
            found[number] = [(0, len(series.sizes) - 1, one_for_all(series, policy))]
            continue
        verdict = judge(series, policy)
        cost, choice = segments.interval_costs(verdict.loss, permitted(series, verdict, policy))
        fronts.append(segments.frontier(cost))
        choices.append(choice)
        numbers.append(number)
    budget = float(np.log1p(policy.allowance)) * sum(len(many[number].sizes) for number in numbers)
    counts = segments.share(fronts, budget)
    for number, front, choice, count in zip(numbers, fronts, choices, counts, strict=True):
        found[number] = [(i, j, int(choice[i, j])) for i, j in front.spans(count)]
    return [found[number] for number in range(len(many))]


def one_for_all(series: Series, policy: Policy) -> int:
    """Return the column that serves all sizes best: the default unless another gains on the whole and harms nowhere.

    A choice must be known at both ends and at half of the sizes at least (where neighbouring sizes agree not all are
    measured). Without a default, or where it cannot be kept, it is the one with the least mean loss.
    """
    verdict = judge(series, policy)
    known = np.isfinite(series.log_time)
    spread = known[0] & known[-1] & (known.mean(axis=0) >= LEAST_KNOWN)
    if series.default is not None and policy.keep_default:
        gain, half = (np.where(known, np.nan_to_num(values), 0.0) for values in (series.gain, series.half))
        count = np.maximum(known.sum(axis=0), 1)
        mean, error = gain.sum(axis=0) / count, half.sum(axis=0) / count
        fit = spread & (verdict.harmless | ~known).all(axis=0)
        fit &= (mean >= np.log1p(policy.margin)) & (mean - error > 0)
        fit[series.default] = False
        return int(np.argmax(np.where(fit, mean, -np.inf))) if fit.any() else series.default
    others = np.arange(len(series.choices)) != series.default
    usable = spread & others if (spread & others).any() else known.any(axis=0) & others
    best = np.min(np.where(known & usable, series.log_time, np.inf), axis=1, keepdims=True)
    loss = np.where(known & np.isfinite(best), series.log_time - best, 0.0).sum(axis=0)
    return int(np.argmin(np.where(usable, loss / np.maximum(known.sum(axis=0), 1), np.inf)))
