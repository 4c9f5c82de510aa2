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


@dataclass(frozen=True, slots=True)
class Policy:
    """How a decision is made.

    Attributes:
        margin: smallest gain over the default that is worth a rule, as a share.
        allowance: mean relative loss per size for which rules are saved.
        keep_default: whether "leave the library alone" is possible; False where the table's settings disable the
            untouched stack (Open MPI on several nodes).
    """

    margin: float = MARGIN
    allowance: float = ALLOWANCE
    keep_default: bool = True


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
    fronts, choices = [], []
    for series in many:
        verdict = judge(series, policy)
        cost, choice = segments.interval_costs(verdict.loss, permitted(series, verdict, policy))
        fronts.append(segments.frontier(cost))
        choices.append(choice)
    budget = float(np.log1p(policy.allowance)) * sum(len(series.sizes) for series in many)
    counts = segments.share(fronts, budget)
    return [
        [(i, j, int(choice[i, j])) for i, j in front.spans(count)]
        for front, choice, count in zip(fronts, choices, counts, strict=True)
    ]
