"""Proof that a table helps: the live library with it against the untouched stack, in interleaved launches."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import t as student

from collbench import forcing
from collbench.collectives import COLLECTIVES, round_nbytes
from collbench.errors import UnansweredError
from collbench.installation import Installation
from collbench.plan import Group, Launch, Plan
from collbench.records import ITEMSIZE, Case, Cell
from collbench.tables.reading import DTYPE, INFINITY, LoadedTable, Stretch

UNTOUCHED, WITH_TABLE = "untouched", "table"
LAUNCHES = 6
"""Launches a side."""
FORCED_LAUNCHES = 2
"""Launches that measure every algorithm, for the regret. They are apart from both sides: what an algorithm leaves behind in
its process (glibc's thresholds for large allocations, say) would otherwise reach one side only."""
MARGIN = 0.02
NOISE = 0.25
"""A cell whose interval is wider than this on both sides says nothing."""
BEYOND = 4
"""How many times its start an open stretch is tried up to."""
SIZES_EACH = 4
"""Stretches of one (collective, ranks) that are tried, those with a rule first."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """One cell's ratio of times, untouched / with the table, over paired launches.

    Attributes:
        cell: what was measured.
        algorithm: what the table asks for there.
        ratio: geometric mean; above 1 = the table is faster.
        low: lower end of the 95 % interval.
        high: upper end.
        pairs: launches a side.
        regret: t(with table)/t(best algorithm) − 1; None where no algorithm was measured.
    """

    cell: Cell
    algorithm: str | None
    ratio: float
    low: float
    high: float
    pairs: int
    regret: float | None = None

    @property
    def slower(self) -> bool:
        """Whether the table is slower beyond noise and margin."""
        return self.high < 1 / (1 + MARGIN)

    @property
    def says_nothing(self) -> bool:
        """Whether the interval is too wide to exclude a gain or a loss of NOISE."""
        return self.low < 1 - NOISE and self.high > 1 + NOISE

    def to_json(self) -> dict[str, object]:
        """Return the object of ``verify --json``."""
        return {
            "collective": self.cell.collective, "ranks": self.cell.ranks, "nbytes": self.cell.nbytes,
            "algorithm": self.algorithm, "speedup": self.ratio, "low": self.low, "high": self.high,
            "pairs": self.pairs, "regret": self.regret,
        }  # fmt: skip


def cells(
    table: LoadedTable,
    *,
    ranks: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
    collectives: Sequence[str] | None = None,
    most_ranks: int = 64,
) -> list[tuple[Cell, str | None]]:
    """Return the cells to try and what the table asks for there.

    Sizes lie inside the table's stretches, so mostly between those that were measured; rank counts are the table's own,
    interpolated ones included.

    Args:
        table: what to prove.
        ranks: only these; None = the table's own up to ``most_ranks``.
        sizes: these total bytes; None = one inside each stretch.
        collectives: only these.
        most_ranks: largest rank count taken from the table.

    Raises:
        UnansweredError: nothing is left to try.
    """
    found: dict[Cell, str | None] = {}
    names = dict.fromkeys(s.collective for s in table.stretches)
    for name in names:
        if collectives is not None and name not in collectives:
            continue
        own = [s for s in table.stretches if s.collective == name]
        tuned = {s.ranks for s in own if s.algorithm != "default" and s.ranks <= most_ranks}
        counts = ranks or sorted(tuned)
        for count in counts:
            for nbytes, algorithm in _tries(own, count, sizes):
                found[_cell(name, count, nbytes)] = algorithm
    if not found:
        raise UnansweredError(
            f"{table.path} changes nothing for the ranks and collectives at hand: there is nothing to prove"
        )
    return list(found.items())


def _tries(own: Sequence[Stretch], ranks: int, sizes: Sequence[int] | None) -> list[tuple[int, str | None]]:
    entry = max((s.ranks for s in own if s.ranks <= ranks), default=None)
    stretches = [s for s in own if s.ranks == entry]
    if sizes is not None:
        return [
            (n, next((s.algorithm for s in stretches if s.first <= n <= s.last), "default")) for n in sizes
        ]
    chosen = sorted(stretches, key=lambda s: s.algorithm == "default")[:SIZES_EACH]
    return [(_inside(s), s.algorithm) for s in chosen]


def _inside(stretch: Stretch) -> int:
    """Return the geometric middle of a stretch; an open one is tried near its start."""
    first = max(stretch.first, 8)
    last = stretch.last if stretch.last < INFINITY else first * BEYOND
    return int(np.sqrt(first * max(last, first)))


def _cell(name: str, ranks: int, nbytes: int) -> Cell:
    row = COLLECTIVES[name]
    unit = ITEMSIZE[DTYPE]
    rounded = max(round_nbytes(name, nbytes, ranks, unit), unit * (ranks if row.per_rank else 1))
    return Cell(name, ranks, ranks, rounded if row.sized else 0, DTYPE, op="sum" if row.reduces else None)


def proof_plan(
    wanted: Sequence[tuple[Cell, str | None]], found: Installation, environment: Mapping[str, str]
) -> Plan:
    """Return untimed launches that show what ``default`` runs under an environment."""
    settings = forcing.proof_settings(found.library, found.version)
    launches = [
        Launch(
            ranks, 0, "proof",
            {**forcing.common_settings(found.library, found.version, None), **(settings or {}), **environment},
            tuple(Group((Case(c, found.library, "default"),)) for c, _ in wanted if c.ranks == ranks),
        )
        for ranks in sorted({c.ranks for c, _ in wanted})
    ]  # fmt: skip
    return Plan(tuple(launches))


def measure_plan(
    wanted: Sequence[tuple[Cell, str | None]],
    found: Installation,
    environment: Mapping[str, str],
    launches: int,
    *,
    first: int = 0,
) -> Plan:
    """Return interleaved launches with and without the table, the order turned each time.

    Args:
        wanted: cells.
        found: whose library.
        environment: of the table.
        launches: of each side.
        first: number of the first repetition (fresh launches follow on earlier ones).
    """
    common = forcing.common_settings(found.library, found.version, None)
    sides: dict[str, Mapping[str, str]] = {UNTOUCHED: common, WITH_TABLE: {**common, **environment}}
    planned = []
    for repetition, ranks in itertools.product(
        range(first, first + launches), sorted({c.ranks for c, _ in wanted})
    ):
        own = [c for c, _ in wanted if c.ranks == ranks]
        order = (UNTOUCHED, WITH_TABLE) if repetition % 2 == 0 else (WITH_TABLE, UNTOUCHED)
        default = tuple(Group((Case(c, found.library, "default"),)) for c in own)
        planned += [Launch(ranks, repetition, "measure", sides[side], default, side) for side in order]
    return Plan(tuple(planned))


def rivals_plan(rivals: Mapping[Cell, Sequence[Case]], found: Installation, first: int = 0) -> Plan:
    """Return launches that measure every algorithm beside the default, for the regret; they are those of a plain run.

    Args:
        rivals: cell → forced algorithms.
        found: whose library.
        first: number of the first repetition.
    """
    common = forcing.common_settings(found.library, found.version, None)
    planned = [
        Launch(
            ranks, repetition, "measure", common,
            tuple(Group((Case(c, found.library, "default"), *own)) for c, own in rivals.items() if c.ranks == ranks),
        )
        for repetition in range(first, first + FORCED_LAUNCHES)
        for ranks in sorted({c.ranks for c in rivals})
    ]  # fmt: skip
    return Plan(tuple(planned))


def synchronisation(table: LoadedTable) -> str:
    """Return how ranks start together on both sides: after a barrier of collbench's own where the table changes MPI_Barrier.

    Else the table's barrier would be part of what every other collective is measured with (see ``mpi.gate``).
    """
    changed = any(s.collective == "barrier" and s.algorithm != "default" for s in table.stretches)
    return "dissemination" if changed else "barrier"


def judge(
    rows: pd.DataFrame,
    variants: Mapping[int, str],
    wanted: Sequence[tuple[Cell, str | None]],
    repetitions: Mapping[int, int],
    first: int = 0,
    *,
    suspects: int = 1,
) -> list[Speedup]:
    """Return the speed-up of every cell with at least two pairs.

    Args:
        rows: ``results.frame`` of the verification's run file.
        variants: launch number → side; launches of no side measured the algorithms.
        wanted: cells and what the table asks for.
        repetitions: launch number → repetition; sides of one repetition are a pair.
        first: only repetitions from here on.
        suspects: cells that are judged together on these launches: their intervals share the 5 % (Bonferroni).
    """
    rows = rows.assign(side=rows["launch"].map(variants), pair=rows["launch"].map(repetitions))
    rows = rows[rows["pair"] >= first]
    found = []
    for cell, algorithm in wanted:
        own = rows[
            (rows["collective"] == cell.collective)
            & (rows["ranks"] == cell.ranks)
            & (rows["nbytes"] == cell.nbytes)
        ]
        plain = own[own["side"].notna()]
        table = plain.pivot_table(index="pair", columns="side", values="time_s", aggfunc="median").dropna()
        if len(table) < 2 or table.shape[1] < 2:
            continue
        logs = np.log(table[UNTOUCHED].to_numpy() / table[WITH_TABLE].to_numpy())
        half = float(student.ppf(1 - 0.025 / suspects, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs)))
        mean = float(logs.mean())
        found.append(
            Speedup(
                cell, algorithm, float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half)),
                len(logs), _regret(own, mean),
            )
        )  # fmt: skip
    return found


def _regret(own: pd.DataFrame, gain: float) -> float | None:
    """Return t(with the table)/t(best algorithm) − 1, both against the untouched default beside them.

    Ratios inside one launch are compared, so neither the machine's state nor another way to synchronise matters.

    Args:
        own: rows of one cell; those without a side measured the algorithms.
        gain: log t(untouched) − log t(with the table).
    """
    forced = own[own["side"].isna()]
    times = forced.pivot_table(
        index="launch", columns=["algorithm", "params"], values="time_s", aggfunc="median"
    )
    default = ("default", "{}")
    if times.shape[1] < 2 or default not in times.columns:
        return None
    best = float(times.rdiv(times[default], axis=0).median().max())
    return best / float(np.exp(gain)) - 1


def overall(found: Sequence[Speedup]) -> tuple[float, float, float]:
    """Return the geometric mean speed-up over cells with the interval that its cells' spread gives."""
    logs = np.log([s.ratio for s in found])
    spread = np.array([np.log(s.high / s.low) / 2 for s in found])
    half = float(np.sqrt((spread**2).sum()) / len(found))
    mean = float(logs.mean())
    return float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half))
