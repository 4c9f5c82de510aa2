"""From measured rows to rules: the fewest that lose little, leaving the default only for a gain beyond noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from collbench import candidates, screening, segments
from collbench.candidates import Choice, Series
from collbench.collectives import COLLECTIVES
from collbench.errors import UnansweredError
from collbench.records import Rule, Selection
from collbench.results import Run, frame

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MARGIN = 0.02
"""A rule departs from the default only for at least this gain (facts: timing-and-statistics §9)."""
ALLOWANCE = 0.005
"""Mean relative loss per size that a smaller table may cost, against the best decision for each size."""


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
        anchor: the choice may open or close a rule here: faster than the default beyond noise and margin.
        harmless: the choice may lie inside a rule here: not shown to be slower than the default.
    """

    loss: Floats
    anchor: Bools
    harmless: Bools


def judge(series: Series, policy: Policy) -> Verdict:
    """Return loss, anchors and harmless entries of a series.

    Where the default was not measured at a size, all measured choices compete on their times alone.
    """
    gain, half, time = series.gain, np.nan_to_num(series.half), series.log_time
    measured = np.isfinite(time)
    margin = np.log1p(policy.margin)
    compared = np.isfinite(gain)
    anchor = np.where(compared, (gain >= margin) & (gain - half > 0), measured)
    harmless = np.where(compared, gain + np.where(half > 0, half, margin) >= 0, measured)
    if series.default is not None:
        usable = measured[:, series.default] & policy.keep_default
        anchor[:, series.default] = harmless[:, series.default] = usable
        if not policy.keep_default:
            forced = measured.copy()
            forced[:, series.default] = False
            anchor = harmless = forced
    certain = np.isnan(series.half) & measured
    eligible = measured & (anchor | (certain & harmless))
    reference = np.min(np.where(eligible, time, np.inf), axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        loss = np.where(measured, np.maximum(time - reference, 0.0), np.inf)
    return Verdict(loss, anchor & measured, harmless & measured)


def permitted(series: Series, verdict: Verdict, policy: Policy) -> Bools:
    """Return shape (sizes, sizes, choices): whether a choice may serve all sizes i … j as one rule.

    A rule other than the default opens and closes where it beats the default, is nowhere shown to be slower, and its
    mean gain has an interval above zero and exceeds the margin.
    """
    n, _ = series.log_time.shape
    allowed: Bools = verdict.anchor[:, None, :] & verdict.anchor[None, :, :]
    harm = np.cumsum(~verdict.harmless, axis=0)
    allowed &= _span_sum(~verdict.harmless, harm) == 0
    if series.default is None or not policy.keep_default:
        return allowed
    known = np.isfinite(series.gain)
    gain = np.where(known, series.gain, 0.0)
    half = np.where(known, np.nan_to_num(series.half), 0.0)
    count = np.maximum(_span_sum(known, np.cumsum(known, axis=0)), 1)
    mean_gain = _span_sum(gain, np.cumsum(gain, axis=0)) / count
    mean_half = _span_sum(half, np.cumsum(half, axis=0)) / count
    any_known = _span_sum(known, np.cumsum(known, axis=0)) > 0
    worth = (mean_gain >= np.log1p(policy.margin) - 1e-12) & (mean_gain - mean_half > 0)
    worth[:, :, series.default] = True
    return allowed & (worth | ~any_known)


def _span_sum(values: Any, running: Any) -> Any:
    """Return shape (n, n, k): the sum over i … j, from running sums over the first axis."""
    return running[None, :, :] - running[:, None, :] + np.asarray(values, running.dtype)[:, None, :]


def decide(series: Series, policy: Policy) -> list[segments.Segment]:
    """Return the segments (first size, last size, choice) of one series."""
    verdict = judge(series, policy)
    allowed = permitted(series, verdict, policy)
    budget = np.log1p(policy.allowance) * len(series.sizes)
    return segments.choose(verdict.loss, allowed, budget)


def rules_of(series: Series, policy: Policy, provider: str) -> list[Rule]:
    """Return the rules of one series: every size from 0 up exactly once, boundaries where the curves cross."""
    chosen = decide(series, policy)
    rules: list[Rule] = []
    start = 0
    for number, (first, last, column) in enumerate(chosen):
        end: int | None = None
        if number + 1 < len(chosen):
            below, above = column, chosen[number + 1][2]
            pair = (int(series.sizes[last]), int(series.sizes[last + 1]))
            rows = series.log_time[last : last + 2]
            end = segments.boundary(pair, rows[:, below].tolist(), rows[:, above].tolist()) - 1
        rules.append(_rule(series, provider, (first, last, column), start, end))
        start = (end or 0) + 1
    return _with_tail(series, policy, rules)


def _rule(series: Series, provider: str, segment: segments.Segment, start: int, end: int | None) -> Rule:
    first, last, column = segment
    choice = series.choices[column]
    inside = slice(first, last + 1)
    gain, half = series.gain[inside, column], series.half[inside, column]
    known = np.isfinite(gain)
    mean = float(gain[known].mean()) if known.any() and choice.algorithm != "default" else None
    spread = float(half[known].mean()) if known.any() and np.isfinite(half[known]).all() else None
    bounded = mean is not None and spread is not None
    notes = []
    if choice.algorithm != "default" and not known.any():
        notes.append("the default was not measured")
    elif mean is not None and not bounded:
        notes.append("one repetition: no interval")
    return Rule(
        collective=series.collective, ranks=series.ranks, ranks_per_node=series.ranks_per_node,
        min_bytes=start, max_bytes=end, provider=provider, algorithm=choice.algorithm,
        component=choice.component, params=choice.params, basis="measured",
        gain=None if mean is None else float(np.expm1(mean)),
        gain_low=float(np.expm1(mean - spread)) if mean is not None and spread is not None else None,
        gain_high=float(np.expm1(mean + spread)) if mean is not None and spread is not None else None,
        sizes=last - first + 1, launches=int(series.launches[inside, column].min()), note="; ".join(notes),
    )  # fmt: skip


def _with_tail(series: Series, policy: Policy, rules: list[Rule]) -> list[Rule]:
    """Leave sizes above the largest measured one to the library, where that is possible."""
    last = rules[-1]
    if last.algorithm == "default" or not COLLECTIVES[series.collective].sized:
        return rules
    largest = int(series.sizes[-1])
    if series.default is None or not policy.keep_default:
        note = f"above {largest} B extended from the largest measured size"
        return [*rules[:-1], replace(last, note="; ".join(filter(None, (last.note, note))))]
    tail = Rule(
        collective=series.collective, ranks=series.ranks, ranks_per_node=series.ranks_per_node,
        min_bytes=largest + 1, max_bytes=None, provider=last.provider, algorithm="default",
        basis="unmeasured", note="larger than any measured size: left to the library",
    )  # fmt: skip
    return [*rules[:-1], replace(last, max_bytes=largest), tail]


def select(
    table: pd.DataFrame,
    *,
    provider: str | None = None,
    policy: Policy | None = None,
    failed: Sequence[Mapping[str, Any]] = (),
    context: Mapping[str, Any] | None = None,
) -> Selection:
    """Return the decision for one library.

    Args:
        table: ``results.frame`` of one or more runs.
        provider: the library; None = the one with most rows.
        policy: margin and allowance; None = the defaults.
        failed: ``failed`` lines of the same runs.
        context: further facts for the header of tables (settings, hosts …).

    Raises:
        UnansweredError: nothing measured for this provider.
    """
    policy = policy or Policy()
    screened = screening.screen(table, provider, failed)
    series = candidates.build(screened.rows)
    rules = [rule for one in series for rule in rules_of(one, policy, screened.provider)]
    exclusions = [*screened.exclusions, *_without_default(series)]
    facts = {**describe(screened.rows, policy), "warnings": list(screened.warnings), **(context or {})}
    return Selection(
        rules=tuple(rules),
        provider=screened.provider,
        context=facts,
        exclusions=tuple(exclusions),
        demonstration=demonstration(screened.rows),
    )


def from_runs(runs: Sequence[Run], *, provider: str | None = None, policy: Policy | None = None) -> Selection:
    """Return the decision from run files, with their failed cells and launch settings.

    Raises:
        UnansweredError: nothing measured.
    """
    table = frame(runs)
    if table.empty:
        names = ", ".join(run.name for run in runs)
        raise UnansweredError(f"nothing to decide: no finished cell in {names}; measure with 'collbench run'")
    return select(
        table,
        provider=provider,
        policy=policy,
        failed=screening.failed_lines(runs),
        context={"settings": settings(runs)},
    )


def settings(runs: Sequence[Run]) -> dict[str, str]:
    """Return the settings that every launch of the runs was made with (they belong to the table)."""
    common: dict[str, str] | None = None
    for run in runs:
        for launch in run.launches.values():
            own = {str(k): str(v) for k, v in (launch.get("settings") or {}).items()}
            common = own if common is None else {k: v for k, v in common.items() if own.get(k) == v}
    return common or {}


def _without_default(series: Sequence[Series]) -> list[str]:
    names = sorted({s.collective for s in series if s.default is None})
    return [f"{name}: the default was not measured; decided among what was" for name in names]


def describe(rows: pd.DataFrame, policy: Policy) -> dict[str, Any]:
    """Return what the rows came from, for table headers and JSON."""

    def values(column: str) -> list[Any]:
        return sorted({v for v in rows[column].tolist() if not pd.isna(v)}, key=str)

    return {
        "runs": values("run"),
        "library": next(iter(values("library")), None),
        "library_version": next(iter(values("library_version")), None),
        "thread_level": next(iter(values("thread_level")), None),
        "memory": values("memory"),
        "dtype": values("dtype"),
        "nodes": [int(n) for n in values("nodes")],
        "ranks": [int(n) for n in values("ranks")],
        "ranks_per_node": [int(n) for n in values("ranks_per_node")],
        "rank_reduction": next(iter(values("rank_reduction")), None),
        "sync": next(iter(values("sync")), None),
        "margin": policy.margin,
        "allowance": policy.allowance,
    }


def demonstration(rows: pd.DataFrame) -> str:
    """Return why the rows give only a demonstration; empty for a real machine."""
    reasons = []
    crowded = sorted(rows.loc[rows["oversubscribed"].astype(bool), "ranks"].unique().tolist())
    if crowded:
        reasons.append(f"more ranks than cores at {', '.join(map(str, crowded))} ranks")
    if rows["emulated"].astype(bool).any():
        reasons.append("emulated nodes")
    return "; ".join(reasons)


def choice_of(rule: Rule) -> Choice:
    """Return what a rule chooses."""
    return Choice(rule.algorithm, rule.component, rule.params)
