"""Regret of tables by a reference, and the printed result of ``time_to_table.py``."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from collbench import results, selection
from collbench.records import Case

ALONE, TOGETHER = "alone", "together"
TARGETS = {ALONE: 15, TOGETHER: 40}
"""Brute force must take at least this many times the race's wall time."""
REGRET = 0.01
"""Largest mean regret of the race with three launches."""

Cell = tuple[str, int, int]  # collective, ranks, total bytes
Table = Mapping[Cell, str]


def runs(bench, prefix: str) -> list[tuple[results.Run, dict[str, float]]]:
    """Return the finished collbench runs of one kind with their figures."""
    paths = sorted(bench.folder.glob(f"{prefix}-?.json"))
    return [(results.read(p.with_suffix(".jsonl")), json.loads(p.read_text())) for p in paths]


def times(frame: pd.DataFrame) -> pd.DataFrame:
    """Return seconds, median over launches: rows are cells, columns algorithms."""
    keys = ["collective", "ranks", "nbytes", "algorithm"]
    return frame.groupby(keys)["time_s"].median().unstack("algorithm")  # noqa: PD010 - keys are unique


def argmin(table: pd.DataFrame, reference: pd.DataFrame) -> Table:
    """Return the fastest algorithm of each cell among those that the reference has a time for.

    A size that was not measured (the race leaves out sizes whose neighbours agree) takes the next smaller one's.
    """
    known = table.where(reference.reindex(index=table.index, columns=table.columns).notna()).dropna(how="all")
    named = known.idxmin(axis=1).reindex(reference.index)
    return named.groupby(level=[0, 1]).ffill().groupby(level=[0, 1]).bfill().dropna().to_dict()


def recommended(run: results.Run, reference: pd.DataFrame) -> Table:
    """Return the algorithm that the rules of ``collbench recommend`` name for each cell of the reference."""
    rules = [r for r in selection.from_runs([run]).rules if r.ranks_max is None]
    return {
        (name, ranks, nbytes): next(
            r.algorithm
            for r in rules
            if (r.collective, r.ranks) == (name, ranks)
            and r.min_bytes <= nbytes
            and (r.max_bytes is None or nbytes <= r.max_bytes)
        )
        for name, ranks, nbytes in reference.index
    }


def losses(table: Table, reference: pd.DataFrame) -> pd.Series:
    """Return log t(chosen)/t(best) of each cell in which the reference has timed the choice."""
    found = {
        cell: float(np.log(reference.loc[cell, name] / reference.loc[cell].min()))
        for cell, name in table.items()
        if cell in reference.index and name in reference.columns
    }
    if not found:
        return pd.Series(dtype=float)
    index = pd.MultiIndex.from_tuples(found, names=reference.index.names)
    return pd.Series(list(found.values()), index).dropna()


@dataclass
class Row:
    """One line of the result: a method, its wall times and the losses of its tables."""

    method: str
    walls: list[float]
    startups: list[float]
    launches: int
    losses: list[pd.Series]

    def __post_init__(self) -> None:
        self.losses = [x for x in self.losses if len(x)]

    def regret(self) -> float | None:
        """Return the mean regret over all tables; None where there is none."""
        return float(np.expm1(np.mean([x.mean() for x in self.losses]))) if self.losses else None

    def print(self, unit_s: float | None) -> None:
        """Print the line; ``unit_s`` is the wall time of the race with one launch."""
        wall = statistics.median(self.walls) if self.walls else 0.0
        span = f"{min(self.walls):.1f}–{max(self.walls):.1f}" if len(self.walls) > 1 else ""
        ratio = f"{wall / unit_s:.1f}" if unit_s and wall else ""
        startup = f"{statistics.median(self.startups):.1f}" if self.startups else ""
        text = f"{self.method:<44}{wall:>8.1f} {span:>13}{startup:>10}{self.launches:>9}{ratio:>8}"
        if self.losses:
            worst = np.expm1(max(x.max() for x in self.losses))
            above = np.mean([(x > np.log(1.05)).sum() for x in self.losses])
            by_ranks = np.expm1(pd.concat(self.losses).groupby(level="ranks").mean())
            text += f"{self.regret():>9.2%}{worst:>8.0%}{f'{above:.1f} of {len(self.losses[0])}':>14}   "
            text += " / ".join(f"{100 * value:.1f}" for value in by_ranks)
        print(text)


def race_rows(bench, scope: str, launches: int, reference: pd.DataFrame) -> list[Row]:
    """Return the race's lines: by recommend, by argmin, and its wall time without the proof."""
    found = runs(bench, f"race-{scope}-{launches}")
    if not found:
        return []
    word = f"race, {launches} launch{'es' if launches > 1 else ''}"
    figures = [f for _, f in found]
    walls, startups = [f["wall_s"] for f in figures], [f["startup_s"] for f in figures]
    number = int(figures[0]["launches"])
    ours = [losses(recommended(run, reference), reference) for run, _ in found]
    plain = [losses(argmin(times(results.frame(run)), reference), reference) for run, _ in found]
    rows = [
        Row(f"{word}, collbench recommend", walls, startups, number, ours),
        Row(f"{word}, argmin", walls, startups, number, plain),
    ]
    if any(f["proof_s"] for f in figures):
        bare = [f["wall_s"] - f["proof_s"] for f in figures]
        starts = [f["startup_without_proof_s"] for f in figures]
        rows.append(Row(f"{word}, without its proof", bare, starts, number - len(bench.options.ranks), []))
    return rows


def brute_rows(bench, names: Sequence[str], reference: pd.DataFrame) -> list[Row]:
    """Return brute force's lines from its complete repetitions: each alone, and all by the rank average and maximum."""
    sweeps = [s for s in bench.sweeps if s[0].cell.collective in names]
    found: list[tuple[list[dict[str, object]], list[pd.DataFrame]]] = []
    for repetition in range(bench.options.repeats):
        paths = [bench.brute_path(s, repetition) for s in sweeps]
        if all(p.exists() for p in paths):
            read = [json.loads(p.read_text()) for p in paths]
            found.append((read, [_brute_frame(sweeps, read, which) for which in (0, 1)]))
    if not found:
        return []
    walls = [sum(f["wall_s"] for f in read) for read, _ in found]
    startups = [sum(f["wall_s"] - f["sweep_s"] for f in read) for read, _ in found]
    for one in (f for read, _ in found for f in read if f["problem"]):
        print(f"brute force: a launch failed: {one['problem']}")
    rows = [Row("brute force, 1 run, mean, argmin", walls, startups, len(sweeps),
                [losses(argmin(frames[0], reference), reference) for _, frames in found])]  # fmt: skip
    for which, word in enumerate(("all ranks", "slowest rank")):
        mean = pd.concat([frames[which] for _, frames in found]).groupby(level=[0, 1, 2]).mean()
        rows.append(Row(f"brute force, mean of {len(found)}, {word}, argmin", [sum(walls)], [sum(startups)],
                        len(sweeps) * len(found), [losses(argmin(mean, reference), reference)]))  # fmt: skip
    return rows


def _brute_frame(
    sweeps: Sequence[Sequence[Case]], read: Sequence[Mapping[str, object]], which: int
) -> pd.DataFrame:
    rows = [
        (s[0].cell.collective, s[0].cell.ranks, int(nbytes), s[0].algorithm, pair[which])
        for s, found in zip(sweeps, read, strict=True)
        for nbytes, pair in found["times"].items()
    ]
    return times(pd.DataFrame(rows, columns=["collective", "ranks", "nbytes", "algorithm", "time_s"]))


def report(bench) -> None:
    """Print what the files in the folder say."""
    options = bench.options
    found = [run for run, _ in runs(bench, "reference")]
    complete = "" if len(found) == options.reference_launches else " (INCOMPLETE)"
    print(
        f"\n{bench.found.version_string}; reference: {len(found)} of {options.reference_launches} launches{complete}"
    )
    if not found:
        return
    reference = times(results.frame(found))
    if len(found) > 1:
        chosen, judge = (times(results.frame(found[start::2])) for start in (0, 1))
        floor = np.expm1(losses(argmin(chosen, judge), judge).mean())
        print(
            f"the reference's own noise: argmin of one half of its launches costs {floor:.2%} by the other half"
        )
    machine(bench)
    for scope, names in bench.scopes:
        known = reference[reference.index.get_level_values(0).isin(names)]
        print_scope(bench, scope, names, known)


def machine(bench) -> None:
    """Print between which values the probe of the machine's state moved."""
    found = [run for run, _ in runs(bench, "race-*") + runs(bench, "reference")]
    probes = [(x.get("probe") or {}).get("pingpong_ns") for run in found for x in run.launches.values()]
    seen = sorted(p for p in probes if p)
    if seen:
        print(f"a cache line between two cores: {seen[0]:.0f} … {statistics.median(seen):.0f} … {seen[-1]:.0f} ns in "
              f"{len(seen)} launches")  # fmt: skip


def print_scope(bench, scope: str, names: Sequence[str], reference: pd.DataFrame) -> None:
    """Print the table and the targets for some collectives."""
    print(f"\n{', '.join(names)}: {len(reference)} cells at {', '.join(map(str, bench.options.ranks))} ranks")
    print(f"{'method':<44}{'wall s':>8} {'(from – to)':>13}{'start-up':>10}{'launches':>9}{'× race':>8}{'regret':>9}"
          f"{'worst':>8}{'cells > 5 %':>14}   % by ranks")  # fmt: skip
    one, three = (race_rows(bench, scope, n, reference) for n in (1, 3))
    brute = brute_rows(bench, names, reference)
    unit = statistics.median(one[0].walls) if one else None
    default = Row(
        "library default", [], [], 0, [losses(dict.fromkeys(reference.index, "default"), reference)]
    )
    for row in (default, *one, *three, *brute):
        row.print(unit)
    decided = [f["decide_s"] for n in (1, 3) for _, f in runs(bench, f"race-{scope}-{n}")]
    if decided:
        print(f"not in any wall time: deciding (collbench recommend {statistics.median(decided):.1f} s)")
    judged = bool(one and brute and one[0].losses and brute[1].losses)
    if judged:
        runs_done = len(brute[0].walls)
        wall, mark = brute[1].walls[0], ""
        if runs_done < bench.options.repeats:
            wall *= bench.options.repeats / runs_done
            mark = f" (INCOMPLETE: {runs_done} of {bench.options.repeats} runs, wall time extrapolated)"
        verdict(f"brute force / race, wall time{mark}", wall / unit, TARGETS[scope], "×", least=True)
        verdict(f"regret of the race, one launch, brute force's as target{mark}",
                100 * one[0].regret(), 100 * brute[1].regret(), " %")  # fmt: skip
    if three and three[0].losses:
        verdict("regret of the race, three launches", 100 * three[0].regret(), 100 * REGRET, " %")


def verdict(what: str, value: float, target: float, unit: str, *, least: bool = False) -> None:
    """Print whether a target is met, else by how much it is missed."""
    met = value >= target if least else value <= target
    outcome = "met" if met else f"MISSED by {abs(value - target):.2f}{unit}"
    print(f"target: {what}: {value:.2f}{unit} ({'≥' if least else '≤'} {target:.2f}{unit}): {outcome}")
