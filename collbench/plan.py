"""The plan: which launches, with which settings, run which cases in which order."""

import itertools
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from collbench import algorithms, forcing, refinement
from collbench.algorithms import Algorithm, Version
from collbench.algorithms.portable import CHUNK_SWEEP
from collbench.collectives import COLLECTIVES, collective, round_nbytes
from collbench.errors import UsageError
from collbench.profile import Profile, Sampling, Sweep
from collbench.records import ITEMSIZE, Case, Cell, Params
from collbench.request import RunOptions
from collbench.words import canonical, check_algorithm_words, split_params


@dataclass(frozen=True, slots=True)
class Group:
    """The cases of one cell, measured interleaved.

    Attributes:
        cases: of one cell.
        level: 0 = measured in any case; above, only where coarser sizes disagree (``refinement``).
    """

    cases: tuple[Case, ...]
    level: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One process start.

    Attributes:
        ranks: world size.
        repetition: which of the run's launches, from 0.
        purpose: "measure", or "proof" (untimed: which algorithm runs?).
        settings: environment variables planned for every rank, forwarded and echoed back.
        groups: cells in the order to measure.
        variant: name of an environment under comparison; None in a plain run.
        replaces: number of the disturbed launch that this one stands in for; None = of no other.
        confirms: whether it measures winners of an earlier launch once more.
    """

    ranks: int
    repetition: int
    purpose: str
    settings: Mapping[str, str]
    groups: tuple[Group, ...]
    variant: str | None = None
    replaces: int | None = None
    confirms: bool = False

    @property
    def cases(self) -> tuple[Case, ...]:
        """All cases in order."""
        return tuple(case for group in self.groups for case in group.cases)


@dataclass(frozen=True, slots=True)
class Plan:
    """Launches in order, and what cannot run with the reason."""

    launches: tuple[Launch, ...]
    skipped: tuple[tuple[Case, str], ...] = ()
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def measuring(self) -> tuple[Launch, ...]:
        """The launches that measure, in order."""
        return tuple(launch for launch in self.launches if launch.purpose == "measure")


def make_plan(
    profile: Profile,
    options: RunOptions,
    *,
    library: str,
    version: Version | None,
    ranks_per_node: int | None = None,
    portable_reason: str | None = None,
) -> Plan:
    """Return the plan of a run over MPI.

    Args:
        profile: with the options already applied.
        options: seed, thread level, proof.
        library: provider of the live library.
        version: its version; None = unknown.
        ranks_per_node: ranks that one node takes; None = all on one node.
        portable_reason: why portable algorithms cannot run here; None = they can.

    Raises:
        UsageError: nothing is left to measure.
    """
    check_algorithm_words(profile, library, version)
    shuffle = random.Random(options.seed)  # noqa: S311 - an order, not a secret
    cells: dict[Cell, dict[tuple[str, str, Params], Case]] = {}
    skipped: dict[Case, str] = {}
    for sweep in profile.sweeps:
        for cell in _cells(sweep, ranks_per_node, options.virtual_nodes):
            found = cells.setdefault(cell, {})
            for case, reason in _cases(cell, sweep, library, version, portable_reason):
                if reason:
                    skipped[case] = reason
                else:
                    found[(case.provider, case.algorithm, case.params)] = case
    groups = [tuple(cases.values()) for cases in cells.values() if cases]
    if not groups:
        raise UsageError("nothing is left to measure: widen --collectives, --ranks, --sizes or --algorithms")
    launches: list[Launch] = []
    for repetition in range(profile.launches):
        for ranks in sorted({g[0].cell.ranks for g in groups}):
            here = [g for g in groups if g[0].cell.ranks == ranks]
            made = _measuring_launches(here, ranks, repetition, library, version, options, shuffle)
            if profile.sampling.refine:
                made = _refined(made)
                kept = {case.cell for launch in made for case in launch.cases}
                here = [g for g in here if g[0].cell in kept]
            if options.prove and repetition == 0:
                launches.extend(_proof_launches(here, ranks, library, version, options))
            launches.extend(made)
    return Plan(tuple(launches), tuple(skipped.items()), profile.sampling)


def _cells(sweep: Sweep, ranks_per_node: int | None, virtual_nodes: int | None) -> Iterable[Cell]:
    for name, ranks, dtype, place in itertools.product(
        sweep.collectives, sweep.ranks, sweep.dtypes, sweep.in_place
    ):
        row = collective(name)
        per_node = min(ranks, ranks_per_node) if ranks_per_node else ranks
        if virtual_nodes:
            per_node = -(-ranks // virtual_nodes)
        sizes = sorted({round_nbytes(name, s, ranks, ITEMSIZE[dtype]) for s in sweep.sizes})
        in_place = place and _may_be_in_place(name)
        for op in sweep.ops if row.reduces else (None,):
            for nbytes in sizes:
                if nbytes or not row.sized:
                    yield Cell(name, ranks, per_node, nbytes, dtype, op, in_place, sweep.memory)


def _may_be_in_place(name: str) -> bool:
    return name not in ("bcast", "barrier", "sendrecv")


def _cases(
    cell: Cell, sweep: Sweep, library: str, version: Version | None, portable_reason: str | None
) -> Iterable[tuple[Case, str | None]]:
    yield Case(cell, library, "default"), None
    if COLLECTIVES[cell.collective].name == "sendrecv" and cell.ranks < 2:
        return
    for word in sweep.algorithms:
        bare, params = split_params(word)
        for row in _rows(canonical(bare), cell.collective, library, version):
            reason = row.impossible(cell)
            if row.provider == "portable" and portable_reason:
                reason = portable_reason
            for chosen in [params] if params else _variants(row, cell):
                yield Case(cell, row.provider, row.name, row.component, chosen), reason


def _variants(row: Algorithm, cell: Cell) -> list[Params]:
    """Return the parameter sets worth measuring: portable broadcasts sweep their chunk, in one piece included."""
    if row.provider != "portable" or cell.collective != "bcast" or "chunk_bytes" not in dict(row.params):
        return [row.params]
    chunks = [c for c in CHUNK_SWEEP if c < cell.nbytes] or [0]
    return [tuple(sorted({**dict(row.params), "chunk_bytes": c}.items())) for c in chunks]


def _rows(word: str, name: str, library: str, version: Version | None) -> list[Algorithm]:
    own = algorithms.algorithms(library, name, version)
    portable = algorithms.algorithms("portable", name) if word in ("portable", "all") or ":" in word else []
    if word == "default":
        return []
    if word == "library":
        return own
    if word == "portable":
        return portable
    if word == "all":
        return [*own, *portable]
    if word.startswith("portable:"):
        return [row for row in portable if row.name == word.removeprefix("portable:")]
    return [row for row in own if row.name == word]


def _measuring_launches(
    groups: list[tuple[Case, ...]],
    ranks: int,
    repetition: int,
    library: str,
    version: Version | None,
    options: RunOptions,
    shuffle: random.Random,
) -> list[Launch]:
    """Split the cases by the environment they need; cells and cases of each launch in shuffled order."""
    by_settings: dict[tuple[tuple[str, str], ...], list[list[Case]]] = {}
    for group in groups:
        split: dict[tuple[tuple[str, str], ...], list[Case]] = {}
        for case in group:
            split.setdefault(forcing.settings(case, library, version), []).append(case)
        for settings, cases in split.items():
            by_settings.setdefault(settings, []).append(cases)
    launches = []
    for settings, lists in forcing.merge(by_settings).items():
        ordered = [list(cases) for cases in lists]
        shuffle.shuffle(ordered)
        for cases in ordered:
            shuffle.shuffle(cases)
        common = forcing.common_settings(library, version, options.virtual_nodes)
        launches.append(
            Launch(
                ranks,
                repetition,
                "measure",
                {**common, **dict(settings)},
                tuple(Group(tuple(c)) for c in ordered),
            )
        )
    return launches


def _refined(launches: list[Launch]) -> list[Launch]:
    """Order cells from coarse to fine sizes (the shuffled order holds within a level); finer ones may be left out.

    Where the cases of a cell need several launches, none sees them all race, so nothing can be decided there: then the
    two coarsest levels (every second size) are measured, and no other.
    """
    found = []
    for launch in launches:
        sizes: dict[Cell, set[int]] = {}
        for group in launch.groups:
            cell = group.cases[0].cell
            sizes.setdefault(refinement.series_of(cell), set()).add(cell.nbytes)
        levels = {series: refinement.levels(own) for series, own in sizes.items()}
        groups = [
            replace(g, level=levels[refinement.series_of(g.cases[0].cell)][g.cases[0].cell.nbytes])
            for g in launch.groups
        ]
        groups.sort(key=lambda g: g.level)
        if len(launches) > 1:
            groups = [Group(g.cases) for g in groups if g.level < refinement.UNDECIDED]
        found.append(replace(launch, groups=tuple(groups)))
    return found


def unplaced(case: Case) -> Case:
    """Return the case without what only a launch knows (ranks per node), to find it again."""
    return replace(case, cell=replace(case.cell, ranks_per_node=None))


def size_class(cell: Cell) -> str:
    """Return the class of sizes that one proof stands for: fewer elements than ranks, small, middle or large."""
    elements = cell.nbytes // ITEMSIZE[cell.dtype]
    if elements < cell.ranks:
        return "tiny"
    if cell.nbytes <= 4096:
        return "small"
    return "middle" if cell.nbytes <= 256 * 1024 else "large"


def proof_key(case: Case) -> str:
    """Return the key under which a proof of ``case`` is found: the default is proven at every size."""
    where = str(case.cell.nbytes) if case.algorithm == "default" else size_class(case.cell)
    place = "in_place" if case.cell.in_place else "out"
    return "|".join(
        (case.cell.collective, str(case.cell.ranks), case.provider, case.label, where, case.cell.dtype, place)
    )


def _proof_launches(
    groups: list[tuple[Case, ...]], ranks: int, library: str, version: Version | None, options: RunOptions
) -> list[Launch]:
    settings = forcing.proof_settings(library, version)
    if settings is None:
        return []
    representatives: dict[str, Case] = {}
    for group in groups:
        for case in group:
            if case.provider != "portable":
                representatives.setdefault(proof_key(case), case)
    common = forcing.common_settings(library, version, options.virtual_nodes)
    cases = tuple(Group((case,)) for case in representatives.values())
    return [Launch(ranks, 0, "proof", {**common, **settings}, cases)] if cases else []


def to_json(launch: Launch) -> dict[str, Any]:
    """Return the part of a worker's plan that this module decides."""
    return {
        "ranks": launch.ranks,
        "repetition": launch.repetition,
        "purpose": launch.purpose,
        "settings": dict(launch.settings),
        "variant": launch.variant,
        "replaces": launch.replaces,
        "groups": [[case.to_json() for case in group.cases] for group in launch.groups],
    }
