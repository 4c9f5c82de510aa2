"""The frozen records that flow through collbench. SI units; the unit is in the name."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Params = tuple[tuple[str, int | str], ...]

ITEMSIZE: dict[str, int] = {
    "int8": 1, "uint8": 1, "float16": 2, "bfloat16": 2, "float8e4m3": 1, "float8e5m2": 1,
    "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "float32": 4, "float64": 8,
}  # fmt: skip
"""Bytes of one element of each dtype."""

RANK_REDUCTION = "max"
NO_ROTATION = "none"
"""What a table's ``rotation`` says where buffers and root are the same in every call (a row then says nothing)."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Where ranks sit.

    Attributes:
        ranks: number of ranks p.
        nodes: number of nodes N; None when unknown (imported).
        ranks_per_node: p/N where even, else the largest; None when unknown.
        node_sizes: ranks of each node, in node order; empty when unknown.
    """

    ranks: int
    nodes: int | None = None
    ranks_per_node: int | None = None
    node_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured, whoever implements it.

    Attributes:
        collective: name in ``collectives.COLLECTIVES``.
        ranks: number of ranks.
        ranks_per_node: ranks on one node; None when unknown (imported).
        nbytes: total bytes S (DESIGN §2); 0 for a barrier.
        dtype: element type, a key of ITEMSIZE.
        op: reduction operator; None where nothing is reduced.
        in_place: MPI_IN_PLACE or NCCL's same-buffer form.
        memory: host, pinned, cuda or rocm.
        groups: communicators of this shape that run at once.
    """

    collective: str
    ranks: int
    ranks_per_node: int | None
    nbytes: int
    dtype: str = "float32"
    op: str | None = None
    in_place: bool = False
    memory: str = "host"
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Case:
    """A cell and the algorithm that is to run in it.

    Attributes:
        cell: what is measured.
        provider: openmpi, mpich, intelmpi, nccl, portable, or a derived library's exact name.
        algorithm: the provider's own word; ``default`` = the user's untouched stack.
        component: serving component where a library has several (tuned, han …); None = not applicable.
        params: sorted (name, value) pairs: segment_bytes, chunk_bytes, radix, protocol, channels.
    """

    cell: Cell
    provider: str
    algorithm: str
    component: str | None = None
    params: Params = ()

    def to_json(self) -> dict[str, Any]:
        """Return the flat ``case`` object of a run file."""
        c = self.cell
        flat: dict[str, Any] = {
            "collective": c.collective, "ranks": c.ranks, "ranks_per_node": c.ranks_per_node, "nbytes": c.nbytes,
            "dtype": c.dtype, "op": c.op, "in_place": c.in_place, "memory": c.memory,
            "provider": self.provider, "algorithm": self.algorithm, "component": self.component,
            "params": dict(self.params),
        }  # fmt: skip
        if c.groups != 1:
            flat["groups"] = c.groups
        return flat

    @classmethod
    def from_json(cls, flat: Mapping[str, Any]) -> "Case":
        """Return the case of a run file's ``case`` object; KeyError when an indispensable field is missing."""
        cell = Cell(
            collective=flat["collective"], ranks=flat["ranks"], ranks_per_node=flat.get("ranks_per_node"),
            nbytes=flat["nbytes"], dtype=flat.get("dtype") or "float32", op=flat.get("op"),
            in_place=bool(flat.get("in_place", False)), memory=flat.get("memory") or "host",
            groups=flat.get("groups", 1),
        )  # fmt: skip
        return cls(
            cell=cell,
            provider=flat["provider"],
            algorithm=flat["algorithm"],
            component=flat.get("component"),
            params=tuple(sorted((flat.get("params") or {}).items())),
        )

    def with_algorithm(self, algorithm: str, params: Params = ()) -> "Case":
        """Return the same cell with another algorithm of the same provider."""
        return replace(self, algorithm=algorithm, params=params)

    @property
    def label(self) -> str:
        """The algorithm with its parameters in one word: ``pipeline[segment_bytes=16384]``."""
        return algorithm_label(self.algorithm, self.params)


def algorithm_label(algorithm: str, params: Params) -> str:
    """Return ``ring`` or ``ring[channels=8,protocol=ll]``."""
    if not params:
        return algorithm
    return f"{algorithm}[{','.join(f'{k}={v}' for k, v in params)}]"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows which algorithm ran.

    Attributes:
        status: proven, not_separable, unknown or contradicted.
        by: operator_trace, message_counts, float_bits, selection_log, tuning_log, own_code …; None when unknown.
        effective: the algorithm shown to have run; None when unknown. For not_separable: one of ``candidates``.
        candidates: algorithms that this proof cannot tell apart (not_separable).
        detail: one short sentence with the finding.
        component: the library's component that serves the call (tuned, han, posix …); None when unknown.
    """

    status: str = "unknown"
    by: str | None = None
    effective: str | None = None
    candidates: tuple[str, ...] = ()
    detail: str = ""
    component: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the ``evidence`` object of a run file (``effective`` stands beside it in the cell line)."""
        out: dict[str, Any] = {"status": self.status, "by": self.by}
        if self.component:
            out["component"] = self.component
        if self.candidates:
            out["candidates"] = list(self.candidates)
        if self.detail:
            out["detail"] = self.detail
        return out


@dataclass(frozen=True, slots=True)
class Measurement:
    """One case in one launch, as a ``cell`` line holds it.

    Attributes:
        case: what was asked for.
        launch: launch number within the run.
        time_s: one call's time, median over iterations of the reduction over ranks.
        blocks_s: block medians in the order measured; empty when imported.
        percentiles_s: "min" "p10" "p50" "p90" "p99" "max" → seconds; may be empty.
        iterations: timed calls.
        rank_reduction: max, avg, min, rank0 …
        sync: barrier, dissemination, window, none (back to back) …
        timer: c, mpi4py, cuda_event … or the tool's name when imported.
        evidence: which algorithm ran.
        warnings: doubts as data, each {"kind": …, numbers…}.
        extra: further fields of the line, kept as they are (rank-global span, offsets, overhead …).
    """

    case: Case
    launch: int
    time_s: float
    blocks_s: tuple[float, ...] = ()
    percentiles_s: Mapping[str, float] = field(default_factory=dict)
    iterations: int | None = None
    rank_reduction: str = RANK_REDUCTION
    sync: str = "barrier"
    timer: str = "c"
    evidence: Evidence = Evidence()
    warnings: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the ``cell`` line of a run file."""
        return {
            "kind": "cell", "launch": self.launch, "case": self.case.to_json(),
            "effective": self.evidence.effective, "evidence": self.evidence.to_json(),
            "rank_reduction": self.rank_reduction, "sync": self.sync, "time_s": self.time_s,
            "blocks_s": list(self.blocks_s), "percentiles_s": dict(self.percentiles_s),
            "iterations": self.iterations, "timer": self.timer, "warnings": [dict(w) for w in self.warnings],
            **self.extra,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """One interval of a selection: what to use for these ranks and sizes, and why.

    Attributes:
        collective: name.
        ranks: rank count the rule is for.
        ranks_per_node: None when unknown.
        min_bytes: first size (total bytes, inclusive).
        max_bytes: last size (inclusive); None = no upper end.
        provider: whose algorithm.
        algorithm: provider's word; ``default`` = leave the library alone.
        component: serving component; None = not applicable.
        params: sorted (name, value) pairs.
        basis: measured, interpolated, predicted, or unmeasured (the default, where nothing was measured).
        gain: t(default)/t(algorithm) − 1 as geometric mean over the measured sizes inside; None if no default.
        gain_low: lower end of its 95 % interval; None where there is none.
        gain_high: upper end.
        sizes: measured sizes inside the interval.
        launches: fewest launches behind any of them.
        note: a short remark, empty if none.
        ranks_max: last rank count of a rule that covers several (interpolated); None = ``ranks`` alone.
    """

    collective: str
    ranks: int
    ranks_per_node: int | None
    min_bytes: int
    max_bytes: int | None
    provider: str
    algorithm: str
    component: str | None = None
    params: Params = ()
    basis: str = "measured"
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    sizes: int = 0
    launches: int = 0
    note: str = ""
    ranks_max: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the stable JSON form (README, "JSON that programs may rely on")."""
        return {
            "collective": self.collective, "ranks": self.ranks, "ranks_per_node": self.ranks_per_node,
            "min_bytes": self.min_bytes, "max_bytes": self.max_bytes, "provider": self.provider,
            "algorithm": self.algorithm, "component": self.component, "params": dict(self.params),
            "basis": self.basis, "gain": self.gain, "gain_low": self.gain_low, "gain_high": self.gain_high,
            "sizes": self.sizes, "launches": self.launches, "note": self.note, "ranks_max": self.ranks_max,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Selection:
    """A decision: all rules, what they came from, and what was left out.

    Attributes:
        rules: ordered by collective, ranks, ranks_per_node, min_bytes; each (collective, ranks, ppn) covers 0…∞ once.
        provider: the library the table is for.
        context: run names, library, version, thread_level, memory, components, hosts … written into tables.
        exclusions: sentences on what never could win and why.
        demonstration: reason why this table is only a demonstration (oversubscribed, emulated); empty = a real one.
    """

    rules: tuple[Rule, ...]
    provider: str
    context: Mapping[str, Any] = field(default_factory=dict)
    exclusions: tuple[str, ...] = ()
    demonstration: str = ""
