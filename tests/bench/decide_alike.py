"""Whether two runs of one machine decide alike.

Usage: python tests/bench/decide_alike.py RUN_A RUN_B  (measure both with 'collbench run quick --launches 3').
At each size that both runs measured, the fastest algorithm of each run is its winner. Printed: at how many sizes the
winner's lead over every other algorithm exceeds its interval in one run, and at how many of those the other run has
another winner, names them; apart from that, whether the tables (which also save rules) say the same.
"""

import sys
from pathlib import Path

import numpy as np

from collbench import candidates, decision, results, screening
from collbench.candidates import Choice, Series
from collbench.decision import Policy

Key = tuple[str, int, int]


def series_of(path: Path) -> dict[Key, Series]:
    """Return the series of one run, by (collective, ranks, ranks per node)."""
    run = results.read(path)
    screened = screening.screen(results.frame([run]), None, screening.failed_lines([run]))
    return {s.key: s for s in candidates.build(screened.rows)}


def winner(series: Series, row: int) -> tuple[Choice, float, float]:
    """Return the fastest choice at a size, its log lead over the next and the half-width of that lead's interval.

    Both gains are over the default, each with its interval; their difference has at most the root of the squares' sum.
    """
    times = series.log_time[row]
    order = np.argsort(np.where(np.isnan(times), np.inf, times))
    best, second = int(order[0]), int(order[1])
    lead = float(times[second] - times[best])
    half = float(np.hypot(*np.nan_to_num(series.half[row, [best, second]])))
    return series.choices[best], lead, half


def chosen(series: Series) -> dict[int, Choice]:
    """Return what the table says at each measured size."""
    (segments,) = decision.decide([series], Policy())
    return {int(series.sizes[i]): series.choices[c] for a, b, c in segments for i in range(a, b + 1)}


def main() -> None:
    """Compare two runs."""
    first, second = (series_of(Path(p)) for p in sys.argv[1:3])
    cells = clear = other = both = apart = same_table = 0
    for key in sorted(first.keys() & second.keys()):
        a, b = first[key], second[key]
        tables = chosen(a), chosen(b)
        for nbytes in np.intersect1d(a.sizes, b.sizes).tolist():
            rows = [int(np.searchsorted(s.sizes, nbytes)) for s in (a, b)]
            if min(int(np.isfinite(s.log_time[r]).sum()) for s, r in zip((a, b), rows, strict=True)) < 2:
                continue
            found = [winner(s, r) for s, r in zip((a, b), rows, strict=True)]
            cells += 1
            same_table += tables[0][nbytes] == tables[1][nbytes]
            leads = [lead > half for _, lead, half in found]
            clear += any(leads)
            both += all(leads)
            apart += all(leads) and found[0][0] != found[1][0]
            if any(leads) and found[0][0] != found[1][0]:
                other += 1
                print(
                    f"differs: {key[0]} {key[1]} ranks {nbytes} B: "
                    + ", ".join(f"{c.label} leads by {lead:.1%} (± {half:.1%})" for c, lead, half in found)
                )
    print(f"{cells} sizes in both runs; the winner leads beyond its interval in at least one run at {clear}, "
          f"and at {other} of them the other run has another winner ({other / max(1, clear):.1%})")  # fmt: skip
    print(f"in both runs the winner leads beyond its interval at {both}; there the winners differ at {apart}")
    print(f"the tables say the same at {same_table} of {cells} sizes ({same_table / max(1, cells):.1%})")


if __name__ == "__main__":
    main()
