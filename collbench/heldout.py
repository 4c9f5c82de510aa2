"""Honest quality of a decision: regret on cells that it did not see, beside simple rules and the bound."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from collbench import algorithms, candidates, pool
from collbench.candidates import Series
from collbench.decision import Policy, decide
from collbench.pool import Pool
from collbench.ruling import rules_of

Floats = npt.NDArray[np.float64]
Score = Callable[[Pool, int], Floats]

TREES = ("binomial_tree", "double_tree", "binary_tree", "knomial")


@dataclass(frozen=True, slots=True)
class Quality:
    """Regret of one way to decide: t(chosen)/t(best) − 1 over cells.

    Attributes:
        held_out: nothing (seen), ranks, sizes or launch.
        method: who decides.
        cells: number of cells.
        mean: geometric mean.
        p95: 95th percentile.
        worst: largest.
        rules: number of rules; None where it means nothing.
    """

    held_out: str
    method: str
    cells: int
    mean: float
    p95: float
    worst: float
    rules: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return the object of ``recommend --evaluate --json``."""
        return {
            "held_out": self.held_out, "method": self.method, "cells": self.cells, "mean": self.mean,
            "p95": self.p95, "worst": self.worst, "rules": self.rules,
        }  # fmt: skip


def summarise(
    held_out: str, method: str, losses: Sequence[float], rules: int | None = None
) -> Quality | None:
    """Return the summary of log losses; None where there is no cell."""
    values = np.asarray(losses, np.float64)
    if not len(values):
        return None
    mean, p95, worst = np.expm1([values.mean(), np.quantile(values, 0.95), values.max()])
    return Quality(held_out, method, len(values), float(mean), float(p95), float(worst), rules)


def evaluate(rows: pd.DataFrame, policy: Policy, provider: str) -> list[Quality]:
    """Return the quality of decisions on screened rows, for all three ways of holding out.

    Args:
        rows: ``screening.screen(...).rows``.
        policy: margin and allowance.
        provider: whose algorithms.
    """
    series = candidates.build(rows)
    found = [*whole(series, policy), *rank_counts(series, provider), *sizes(series, policy, provider)]
    return [*found, *launches(rows, policy)]


def whole(series: Sequence[Series], policy: Policy) -> list[Quality]:
    """Return the quality of the table itself and of the per-size argmin, on the cells they were made from."""
    ours: list[float] = []
    default: list[float] = []
    own_rules = argmin_rules = 0
    for one, chosen in zip(series, decide(series, policy), strict=True):
        loss = pool.losses(one.log_time)
        for first, last, column in chosen:
            ours += loss[first : last + 1, column].tolist()
        if one.default is not None:
            default += [v for v in loss[:, one.default].tolist() if np.isfinite(v)]
        best = np.nanargmin(one.log_time, axis=1)
        own_rules += len(chosen)
        argmin_rules += 1 + int((best[1:] != best[:-1]).sum())
    found = [
        summarise("nothing", "this table", ours, own_rules),
        summarise("nothing", "per-size argmin", [0.0] * len(ours), argmin_rules),
        summarise("nothing", "default", default),
    ]
    return [q for q in found if q is not None]


def rank_counts(series: Sequence[Series], provider: str) -> list[Quality]:
    """Return the quality where each rank count in turn is decided from the others."""
    methods: dict[str, Score] = {
        "this table": pool.expected_loss,
        "nearest rank count": nearest,
        "one table for all": one_table,
        "default": _only(lambda _c, name: name == "default"),
        "ring always": _only(lambda c, name: algorithms.family(provider, c, name) == "ring"),
        "tree always": _only(lambda c, name: algorithms.family(provider, c, name) in TREES),
    }
    losses: dict[str, list[float]] = {name: [] for name in methods}
    bound: list[float] = []
    for group in pool.shapes(series):
        if len({one.ranks for one in group}) < max(2, len(group)):
            continue
        aligned = pool.align(group)
        for index, ranks in enumerate(aligned.ranks):
            rest, actual = aligned.without(index), aligned.actual(index)
            known = np.asarray(~np.isnan(actual).all(axis=1) & ~np.isnan(rest.log_time).all(axis=(0, 2)))
            for name, score in methods.items():
                losses[name] += _apply(score(rest, int(ranks)), actual, aligned.default, known)
            bound += _bound(rest, actual, known)
    found = [summarise("ranks", name, values) for name, values in losses.items()]
    found.append(summarise("ranks", "bound: best of the algorithms that won elsewhere", bound))
    return [q for q in found if q is not None]


def _apply(score: Floats, actual: Floats, default: int | None, known: npt.NDArray[np.bool_]) -> list[float]:
    """Return the losses of the least score in each known cell; the default stands in where a choice cannot run."""
    out = []
    for row in np.flatnonzero(known):
        usable = np.where(np.isnan(actual[row]), np.inf, score[row])
        if np.isfinite(usable).any():
            out.append(float(actual[row, int(np.argmin(usable))]))
        elif default is not None and np.isfinite(actual[row, default]):
            out.append(float(actual[row, default]))
    return out


def nearest(rest: Pool, ranks: int) -> Floats:
    """Score by the times at the nearest measured rank count that has the size."""
    order = np.argsort(np.abs(np.log(rest.ranks) - np.log(ranks)), kind="stable")
    score = np.full(rest.log_time.shape[1:], np.inf)
    for index in order[::-1]:
        own = rest.log_time[index]
        has = ~np.isnan(own).all(axis=1)
        score[has] = np.where(np.isnan(own[has]), np.inf, own[has])
    return score


def one_table(rest: Pool, _ranks: int) -> Floats:
    """Score by the mean loss over all measured rank counts."""
    loss = pool.losses(rest.log_time)
    count = np.isfinite(loss).sum(axis=0)
    total = np.where(np.isfinite(loss), loss, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.inf)


def _only(member: Callable[[str, str], bool]) -> Score:
    def score(rest: Pool, _ranks: int) -> Floats:
        mask = np.array([member(rest.collective, c.algorithm) for c in rest.choices])
        return np.where(mask[None, :], one_table(rest, _ranks), np.inf)

    return score


def _bound(rest: Pool, actual: Floats, known: npt.NDArray[np.bool_]) -> list[float]:
    loss = pool.losses(rest.log_time)
    winners = np.asarray((loss <= 0).any(axis=(0, 1)))
    best = np.min(np.where(winners[None, :] & np.isfinite(actual), actual, np.inf), axis=1)
    return [float(v) for v in best[known & np.isfinite(best)]]


def sizes(series: Sequence[Series], policy: Policy, provider: str) -> list[Quality]:
    """Return the quality where each inner size in turn is left out and served by the rules of the others."""
    ours: list[float] = []
    neighbour: list[float] = []
    for one in series:
        loss = pool.losses(one.log_time)
        for row in range(1, len(one.sizes) - 1):
            keep = np.arange(len(one.sizes)) != row
            rest = replace(
                one, sizes=one.sizes[keep], log_time=one.log_time[keep], gain=one.gain[keep],
                half=one.half[keep], launches=one.launches[keep],
            )  # fmt: skip
            rules = rules_of(rest, decide([rest], policy)[0], policy, provider)
            nbytes = int(one.sizes[row])
            rule = next(r for r in rules if r.max_bytes is None or nbytes <= r.max_bytes)
            column = next(
                i
                for i, c in enumerate(one.choices)
                if (c.algorithm, c.component, c.params) == (rule.algorithm, rule.component, rule.params)
            )
            below = int(np.nanargmin(one.log_time[row - 1]))
            if np.isfinite(loss[row, column]) and np.isfinite(loss[row, below]):
                ours.append(float(loss[row, column]))
                neighbour.append(float(loss[row, below]))
    found = [
        summarise("sizes", "this table", ours),
        summarise("sizes", "argmin of the next smaller size", neighbour),
    ]
    return [q for q in found if q is not None]


def launches(rows: pd.DataFrame, policy: Policy) -> list[Quality]:
    """Return the quality where each launch in turn is decided from the others, beside the argmin of their mean."""
    rows = rows[rows["source"] == "collbench"]
    if rows.empty:
        return []
    repeats = rows.groupby(["collective", "ranks", "ranks_per_node"], dropna=False)
    position = repeats["launch"].transform(lambda launch: pd.factorize(launch, sort=True)[0])
    count = int(position.max()) + 1
    ours: list[float] = []
    mean: list[float] = []
    for held in range(count if count > 1 else 0):
        train, test = rows[position != held], rows[position == held]
        keys = ["collective", "ranks", "ranks_per_node"]
        shared = train[keys].drop_duplicates().merge(test[keys].drop_duplicates(), on=keys)
        if shared.empty:
            continue
        seen = candidates.build(train.merge(shared, on=keys))
        truth = {one.key: one for one in candidates.build(test.merge(shared, on=keys))}
        for one, chosen in zip(seen, decide(seen, policy), strict=True):
            _score_launch(one, chosen, truth[one.key], ours, mean)
    found = [
        summarise("launch", "this table", ours),
        summarise("launch", "per-size argmin of the mean", mean),
    ]
    return [q for q in found if q is not None]


def _score_launch(
    one: Series, chosen: Sequence[tuple[int, int, int]], truth: Series, ours: list[float], mean: list[float]
) -> None:
    aligned = pool.align([one, replace(truth, ranks=one.ranks + 1)])
    actual = aligned.actual(1)
    trained = aligned.log_time[0]
    for first, last, column in chosen:
        for row in range(first, last + 1):
            at = int(np.searchsorted(aligned.sizes, one.sizes[row]))
            loss = actual[at, aligned.choices.index(one.choices[column])]
            best = actual[at, int(np.nanargmin(trained[at]))]
            if np.isfinite(loss) and np.isfinite(best):
                ours.append(float(loss))
                mean.append(float(best))
