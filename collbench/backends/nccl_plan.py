"""Which NCCL cases a profile asks for, which of them cannot run or win, and what they cost. Needs no NCCL, no GPU."""

import itertools
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from collbench.algorithms import Version, algorithms
from collbench.algorithms.nccl import MEASURABLE, NATIVE_NAMES, NEWEST, PER_CALL_SINCE, impossible, protocols
from collbench.backends.nccl_model import Hardware, buffer_bytes, call_s, cannot_win
from collbench.backends.nccl_request import Request, read_request
from collbench.collectives import COLLECTIVES, round_nbytes
from collbench.errors import UsageError, unknown_name
from collbench.profile import Profile, Sweep
from collbench.records import ITEMSIZE, Case, Cell, Params
from collbench.request import RunOptions
from collbench.units import format_bytes
from collbench.words import split_params

COMPOSED = ("reduce_scatter_allgather", "hierarchical_sharded")
"""collbench's own allreduce over NCCL's calls (provider ``portable``): reduce-scatter then all-gather; the same inside
the node around one allreduce for each rail. They need application code: no table can select them."""
_FORWARDED = ("NCCL_", "RCCL_", "UCX_", "FI_", "COLLBENCH_NCCL_TABLE")
WORDS = ("default", "library", "portable", "all")
WARMUP, ITERATIONS, BLOCK_TARGET_S = 5, 20, 0.05
RACE_FACTOR = 2
"""A race that does not settle takes this many times the calls; estimates count them."""


@dataclass(frozen=True, slots=True)
class NcclPlan:
    """Cases of every rank count in the order to measure, and what is left out and why.

    Attributes:
        groups: cells in shuffled order, each with its cases in shuffled order.
        skipped: (case, reason).
        version: NCCL version planned for.
        assumed: the version was not read from a library.
        launches: repetitions of everything.
        request: the profile's NCCL table.
    """

    groups: tuple[tuple[Case, ...], ...]
    skipped: tuple[tuple[Case, str], ...]
    version: Version
    assumed: bool
    launches: int
    request: Request

    @property
    def ranks(self) -> tuple[int, ...]:
        """All rank counts, ascending."""
        return tuple(sorted({g[0].cell.ranks for g in self.groups}))

    def of(self, ranks: int) -> tuple[Case, ...]:
        """Return the cases of one rank count in order."""
        return tuple(case for group in self.groups for case in group if case.cell.ranks == ranks)


def make_plan(
    profile: Profile, options: RunOptions, live: Version | None = None, *, external: bool = False,
    provider: str = "nccl",
) -> NcclPlan:  # fmt: skip
    """Return the plan of a profile.

    Args:
        profile: with the options already applied.
        options: seed and ranks per node.
        live: version of the library that will run; None = not known yet.
        external: for nccl-tests, which can neither compose calls nor ask for symmetric kernels.
        provider: nccl, or rccl (AMD's library, which has NCCL's algorithms and variables).

    Raises:
        UsageError: an unknown algorithm, collective or key; nothing left to measure.
    """
    request = read_request(profile.extra.get("nccl", {}))
    version = live or request.version or NEWEST
    _check_words(profile, version)
    groups: dict[Cell, dict[tuple[str, str, Params], Case]] = {}
    skipped: dict[Case, str] = {}
    for sweep in profile.sweeps:
        for cell in _cells(sweep, profile.ranks_per_node):
            found = groups.setdefault(cell, {})
            for case in _cases(cell, sweep, request, version, provider):
                reason = _reason(case, request, version, external=external)
                if reason:
                    skipped[case] = reason
                else:
                    found[case.provider, case.algorithm, case.params] = case
    shuffle = random.Random(options.seed)  # noqa: S311 - an order, not a secret
    kept = [list(cases.values()) for cases in groups.values() if cases]
    if not kept:
        raise UsageError("nothing is left to measure: widen --collectives, --ranks, --sizes or --algorithms")
    shuffle.shuffle(kept)
    for cases in kept:
        shuffle.shuffle(cases)
    kept.sort(key=lambda g: g[0].cell.ranks)
    return NcclPlan(tuple(tuple(g) for g in kept), tuple(skipped.items()), version, live is None and
                    request.version is None, profile.launches, request)  # fmt: skip


def _check_words(profile: Profile, version: Version) -> None:
    known = {*WORDS, *COMPOSED, *(f"portable:{n}" for n in COMPOSED), *NATIVE_NAMES}
    for sweep in profile.sweeps:
        for name in sweep.collectives:
            if name not in MEASURABLE:
                raise unknown_name("collective of NCCL", name, MEASURABLE)
        for word in sweep.algorithms:
            bare, _ = split_params(word)
            if bare not in known:
                raise unknown_name("NCCL algorithm", word, known)
            if bare in NATIVE_NAMES and not any(
                r.name == bare for c in sweep.collectives for r in algorithms("nccl", c, version)
            ):
                dotted = ".".join(str(n) for n in version)
                raise UsageError(f"no collective of the profile has the algorithm {bare!r} in NCCL {dotted}")


def _cells(sweep: Sweep, ranks_per_node: int | None) -> Iterable[Cell]:
    for name, ranks, dtype, place in itertools.product(
        sweep.collectives, sweep.ranks, sweep.dtypes, sweep.in_place
    ):
        row = COLLECTIVES[name]
        in_place = place and name not in ("alltoall", "sendrecv")
        sizes = sorted({round_nbytes(name, s, ranks, ITEMSIZE[dtype]) for s in sweep.sizes} - {0})
        for op in sweep.ops if row.reduces else (None,):
            for nbytes in sizes:
                yield Cell(
                    name, ranks, min(ranks, ranks_per_node or ranks), nbytes, dtype, op, in_place, "cuda"
                )


def _cases(cell: Cell, sweep: Sweep, request: Request, version: Version, provider: str) -> Iterable[Case]:
    yield Case(cell, provider, "default")
    rows = algorithms("nccl", cell.collective, version)
    for word in sweep.algorithms:
        bare, params = split_params(word)
        own = [r for r in rows if bare in ("library", "all", r.name)]
        for row in own:
            for chosen in _params(cell.collective, row.name, params, request):
                yield Case(cell, provider, row.name, None, chosen)
        if cell.collective == "allreduce":
            for name in COMPOSED:
                if bare in ("portable", "all", name, f"portable:{name}"):
                    yield Case(cell, "portable", name)


def _params(collective: str, algorithm: str, given: Params, request: Request) -> Iterable[Params]:
    fixed = dict(given)
    valid = protocols(collective, algorithm)
    names: list[str | None] = [p for p in valid if p in request.protocols] or ([None] if not valid else [])
    if "protocol" in fixed:
        names = [str(fixed["protocol"])]
    channels = [fixed["channels"]] if "channels" in fixed else [None, *request.channels]
    for protocol, number in itertools.product(names, channels):
        params: dict[str, int | str] = {}
        if number is not None:
            params["channels"] = number
        if protocol is not None:
            params["protocol"] = protocol
        yield tuple(sorted(params.items()))


def _reason(case: Case, request: Request, version: Version, *, external: bool) -> str | None:
    need = buffer_bytes(case.cell)
    if need > request.hardware.memory_bytes * 0.9:
        return f"needs {format_bytes(need)} of GPU memory of {format_bytes(request.hardware.memory_bytes)}"
    if case.provider == "portable":
        return _composed_reason(case, external=external)
    if case.algorithm == "default":
        return None
    protocol = dict(case.params).get("protocol")
    if protocol is not None and protocol not in protocols(case.cell.collective, case.algorithm):
        return f"NCCL has no {case.algorithm} with protocol {protocol} for {case.cell.collective}"
    if case.algorithm == "symmetric" and external:
        return "nccl-tests cannot ask for symmetric kernels call by call: use the nccl back end"
    if case.algorithm == "symmetric" and version < PER_CALL_SINCE:
        return "needs a per-call choice of algorithm: NCCL 2.31 or newer"
    row = next(r for r in algorithms("nccl", case.cell.collective) if r.name == case.algorithm)
    reason = row.impossible(case.cell) or impossible(case.cell, case.algorithm)
    return reason or (cannot_win(case, request.hardware) if request.prune else None)


def _composed_reason(case: Case, *, external: bool) -> str | None:
    cell = case.cell
    per_node = cell.ranks_per_node or cell.ranks
    if external:
        return "nccl-tests cannot compose calls: use the nccl back end"
    if cell.nbytes // ITEMSIZE[cell.dtype] % (cell.ranks if case.algorithm == COMPOSED[0] else per_node):
        return "needs a count that divides by the ranks that share it"
    if case.algorithm == COMPOSED[1] and (per_node >= cell.ranks or cell.ranks % per_node or per_node < 2):
        return "needs several nodes with the same number of ranks, at least two"
    return None


def setting(case: Case) -> tuple[str, str | None, int | None]:
    """Return (algorithm, protocol, channels): the cases of one communicator share it."""
    params = dict(case.params)
    protocol, channels = params.get("protocol"), params.get("channels")
    return (
        case.algorithm,
        None if protocol is None else str(protocol),
        None if channels is None else int(channels),
    )


def environment(case: Case) -> dict[str, str]:
    """Return the variables that make NCCL run the case; read at the creation of each communicator.

    Channels are not among them: their variables are read once per process, so the in-process back end sets them in
    the communicator's configuration; ``process_environment`` adds them for a process of its own.
    """
    if case.provider == "portable" or case.algorithm in ("default", "symmetric"):
        return {}
    algorithm, protocol, _ = setting(case)
    return {"NCCL_ALGO": NATIVE_NAMES[algorithm], "NCCL_PROTO": {"ll": "LL", "ll128": "LL128"}.get(
        str(protocol), "Simple")}  # fmt: skip


def process_environment(case: Case) -> dict[str, str]:
    """Return the variables of a process that runs nothing but this setting."""
    channels = setting(case)[2]
    own = {} if channels is None else {"NCCL_MIN_CTAS": str(channels), "NCCL_MAX_CTAS": str(channels)}
    return {**environment(case), **own}


def forwarded(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the user's own settings that ranks on other nodes need: launchers forward few variables by themselves."""
    return {n: v for n, v in environ.items() if n.startswith(_FORWARDED)}


def iterations(case: Case, hardware: Hardware, fixed: int | None) -> int:
    """Return the timed calls of a case: what was asked for, else fewer for long calls."""
    if fixed is not None:
        return fixed
    return max(5, min(ITERATIONS * 5, round(BLOCK_TARGET_S / call_s(case, hardware))))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan costs: seconds of wall time, GPU-seconds, processes' starts and communicators."""

    wall_s: float
    gpu_s: float
    launches: int
    communicators: int


def estimate(plan: NcclPlan, ranks: int, fixed: int | None = None, *, external: bool = False) -> Estimate:
    """Return the cost of one rank count, start-up and the creation of communicators included.

    Args:
        plan: the plan.
        ranks: which rank count.
        fixed: calls per case; None = by the length of a call.
        external: every setting is a process of its own (nccl-tests).
    """
    hardware = plan.request.hardware
    cases = plan.of(ranks)
    settings = {(c.provider, *setting(c), *((c.cell.collective, c.cell.dtype, c.cell.op) if external else ()))
                for c in cases}  # fmt: skip
    communicators = len(settings) + sum(2 for c in settings if c[1] == COMPOSED[1])
    launches = len(settings) if external else 1
    # Both forms of timing (measure, and the untimed proof's one call) and the check's two extra calls.
    rounds = 1 if external or fixed is not None else RACE_FACTOR
    calls = sum((WARMUP + rounds * iterations(c, hardware, fixed) + 3) * call_s(c, hardware) for c in cases)
    calls *= 2 if external else len(plan.request.timings)
    proofs = launches * hardware.start_s + communicators * hardware.communicator(ranks)
    once = launches * hardware.start_s + communicators * hardware.communicator(ranks) + calls
    wall = plan.launches * once + proofs
    return Estimate(
        wall, wall * ranks, plan.launches * launches + launches, (plan.launches + 1) * communicators
    )


def of_repetition(plan: NcclPlan, repetition: int, seed: int) -> NcclPlan:
    """Return the plan with the order of one repetition, so that drift hits all alike."""
    shuffle = random.Random(f"{seed}/{repetition}")  # noqa: S311 - an order, not a secret
    groups = [list(g) for g in plan.groups]
    shuffle.shuffle(groups)
    for group in groups:
        shuffle.shuffle(group)
    groups.sort(key=lambda g: g[0].cell.ranks)
    return replace(plan, groups=tuple(tuple(g) for g in groups))
