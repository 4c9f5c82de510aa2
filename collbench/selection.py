"""From measured rows to rules: the fewest that lose little, leaving the default only for a gain beyond noise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from collbench import candidates, interpolation, pool, screening, stacks
from collbench.candidates import Series
from collbench.decision import CAP, Policy, decide
from collbench.errors import UnansweredError
from collbench.records import Rule, Selection
from collbench.results import Run, frame
from collbench.ruling import rules_of


def decide_rules(
    series: Sequence[Series], policy: Policy, provider: str, replaces: str = ""
) -> tuple[list[Rule], dict[str, str], list[str]]:
    """Return the rules for all measured series and for rank counts between them, settings they need, remarks.

    Args:
        series: of one provider.
        policy: how to decide.
        provider: whose algorithms.
        replaces: what leaving the default in one place takes away elsewhere: "" nothing, "collective" or "everything"
            (see ``stacks``).
    """
    needs: dict[str, str] = {}
    remarks: list[str] = []
    if not replaces:
        return _ordered(_rules(series, policy, provider)), needs, remarks
    names = sorted({one.collective for one in series})
    scopes = [[name] for name in names] if replaces == "collective" else [names]
    rules: list[Rule] = []
    for scope in scopes:
        own = [one for one in series if one.collective in scope]
        free = _rules(own, policy, provider)
        forced = stacks.forced(own)
        anew = _rules(forced, replace(policy, keep_default=False), provider) if forced else []
        gain = stacks.expected_gain(anew, forced)
        loss, where = stacks.worst_loss(anew, forced)
        departs = any(r.algorithm != "default" and r.basis == "measured" for r in free)
        # One collective can be left to the library without the others: then nowhere does harm. All together cannot.
        bearable = np.log1p(policy.margin if replaces == "collective" else CAP)
        if departs and anew and gain >= policy.margin and loss <= bearable:
            rules += anew
            needs |= stacks.settings(provider, scope)
            remarks.append(
                f"{', '.join(scope)}: decided anew for every size, the table switches the default off"
            )
            continue
        if departs:
            why = f"makes {where} as slow" if gain >= policy.margin and where else "costs what the rules gain"
            remarks.append(f"{', '.join(scope)}: left to the library; switching its own layer off {why}")
        rules += stacks.only_default(own, provider)
    return _ordered(rules), needs, remarks


def _ordered(rules: Sequence[Rule]) -> list[Rule]:
    return sorted(rules, key=lambda r: (r.collective, r.ranks, r.ranks_per_node or 0, r.min_bytes))


def _rules(series: Sequence[Series], policy: Policy, provider: str) -> list[Rule]:
    rules = [
        rule
        for one, chosen in zip(series, decide(series, policy), strict=True)
        for rule in rules_of(one, chosen, policy, provider)
    ]
    for group in pool.shapes(series):
        rules += interpolated(group, policy, provider)
    return rules


def interpolated(group: Sequence[Series], policy: Policy, provider: str) -> list[Rule]:
    """Return rules for the rank counts between those of a group of series of one shape."""
    if len({one.ranks for one in group}) < max(2, len(group)):
        return []
    aligned = pool.align(group)
    found = interpolation.trust(aligned)
    shapes = {one.ranks_per_node for one in group}
    per_node = shapes.pop() if len(shapes) == 1 else None
    rules: list[Rule] = []
    for span in interpolation.gaps(aligned.ranks.tolist()):
        predicted = interpolation.series_for(aligned, span, provider, found.error)
        if predicted is None:
            continue
        own = rules_of(predicted, decide([predicted], policy)[0], policy, provider)
        marked = interpolation.mark(own, span, per_node, found)
        rules = _join_spans(rules, marked)
    return rules


def _join_spans(rules: list[Rule], following: list[Rule]) -> list[Rule]:
    """Append rules of the next span, or widen the last span where it says the same."""
    last = [r for r in rules if r.ranks_max is not None and r.ranks_max + 1 == following[0].ranks]

    def what(rule: Rule) -> tuple[Any, ...]:
        return (rule.min_bytes, rule.max_bytes, rule.algorithm, rule.component, rule.params)

    if last and [what(r) for r in last] == [what(r) for r in following]:
        kept = [r for r in rules if r not in last]
        return kept + [replace(r, ranks_max=following[0].ranks_max) for r in last]
    return rules + following


def select(
    table: pd.DataFrame,
    *,
    provider: str | None = None,
    policy: Policy | None = None,
    failed: Sequence[Mapping[str, Any]] = (),
    context: Mapping[str, Any] | None = None,
    ranks_per_node: int | None = None,
    rates: Mapping[tuple[str, int], float] | None = None,
) -> Selection:
    """Return the decision for one library.

    Args:
        table: ``results.frame`` of one or more runs.
        provider: the library; None = the one with most rows.
        policy: margin and allowance; None = the defaults.
        failed: ``failed`` lines of the same runs.
        context: further facts for the header of tables (settings, hosts …).
        ranks_per_node: only rows of this shape; None = all.
        rates: ``screening.copy_rates`` of the same runs; None = bandwidths are not judged.

    Raises:
        UnansweredError: nothing measured for this provider.
    """
    policy = policy or Policy()
    if ranks_per_node is not None:
        table = table[table["ranks_per_node"] == ranks_per_node]
    screened = screening.screen(table, provider, failed)
    series = candidates.build(screened.rows)
    replaces = stacks.replaces(screened.provider, screened.rows) if policy.keep_default else ""
    series = series if policy.keep_default else stacks.forced(series)
    rules, needs, remarks = decide_rules(series, policy, screened.provider, replaces)
    exclusions = (*screened.exclusions, *_without_default(series), *remarks)
    warnings = [*screened.warnings, *screening.beyond_links(screened.rows, rates or {})]
    facts = {**describe(screened.rows, policy), "warnings": warnings, "needs": needs, **(context or {})}
    return Selection(tuple(rules), screened.provider, facts, exclusions, demonstration(screened.rows))


def from_runs(
    runs: Sequence[Run],
    *,
    provider: str | None = None,
    policy: Policy | None = None,
    ranks_per_node: int | None = None,
) -> Selection:
    """Return the decision from run files, with their failed cells and launch settings.

    Raises:
        UnansweredError: nothing measured.
    """
    runs, foreign = screening.first_environments(runs)
    table = frame(runs)
    if table.empty:
        names = ", ".join(run.name for run in runs)
        raise UnansweredError(f"nothing to decide: no finished cell in {names}; measure with 'collbench run'")
    decided = select(
        table,
        provider=provider,
        policy=policy,
        failed=screening.failed_lines(runs),
        context={"settings": settings(runs), "hosts": hosts(runs)},
        ranks_per_node=ranks_per_node,
        rates=screening.copy_rates(runs),
    )
    return replace(decided, exclusions=(*foreign, *decided.exclusions))


def settings(runs: Sequence[Run]) -> dict[str, str]:
    """Return the settings that every launch of the runs was made with (they belong to the table)."""
    common: dict[str, str] | None = None
    for run in runs:
        for launch in run.launches.values():
            own = {str(k): str(v) for k, v in (launch.get("settings") or {}).items()}
            common = own if common is None else {k: v for k, v in common.items() if own.get(k) == v}
    return common or {}


def hosts(runs: Sequence[Run]) -> list[str]:
    """Return the hosts of the launches, where they were recorded."""
    found = {
        str(host)
        for run in runs
        for launch in run.launches.values()
        for host in launch.get("hosts") or (launch.get("environment") or {}).get("hosts") or ()
    }
    return sorted(found)


def _without_default(series: Sequence[Series]) -> list[str]:
    names = sorted({s.collective for s in series if s.default is None})
    return [f"{name}: the default was not measured; decided among what was" for name in names]


def describe(rows: pd.DataFrame, policy: Policy) -> dict[str, Any]:
    """Return what the rows came from, for table headers and JSON."""

    def values(column: str) -> list[Any]:
        return sorted(rows[column].dropna().unique().tolist(), key=str)

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
