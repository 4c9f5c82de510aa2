"""Tables of algorithms, one file a provider. An algorithm is a row."""

from collections.abc import Mapping
from dataclasses import dataclass

from collbench.errors import unknown_name
from collbench.records import ITEMSIZE, Cell, Params
from collbench.registry import Registry

Version = tuple[int, ...]

FAMILIES = (
    "default", "flat", "binomial_tree", "double_tree", "chain", "recursive_doubling", "rabenseifner", "ring",
    "hierarchical", "bruck", "pairwise", "neighbor_exchange", "scatter_allgather", "dissemination", "knomial",
    "binary_tree", "reduce_bcast", "shared_memory", "other",
)  # fmt: skip
"""The textbook idea an algorithm belongs to."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One algorithm of one provider for one collective.

    Attributes:
        provider: openmpi, mpich, intelmpi, nccl, portable.
        collective: name in ``collectives.COLLECTIVES``.
        name: the provider's own word, unique within (provider, collective).
        native_id: the number the library knows it by; None where it goes by name only.
        family: one of FAMILIES.
        component: who serves it (tuned, han, mpir …); None = not applicable.
        since: first library version that has it; None = all supported.
        until: first version that no longer has it; None = still there.
        limits: names of LIMITS that must hold.
        params: parameters it takes with their default, sorted; empty = none.
        same_trace_as: algorithms that no proof can tell from this one (evidence "not_separable").
        source: where the row comes from.
    """

    provider: str
    collective: str
    name: str
    native_id: int | None
    family: str
    component: str | None = None
    since: Version | None = None
    until: Version | None = None
    limits: tuple[str, ...] = ()
    params: Params = ()
    same_trace_as: tuple[str, ...] = ()
    source: str = ""

    def in_version(self, version: Version | None) -> bool:
        """Say whether the library version has it (an unknown version: yes)."""
        if version is None:
            return True
        return not ((self.since and version < self.since) or (self.until and version >= self.until))

    def impossible(self, cell: Cell) -> str | None:
        """Return the reason why it cannot run in ``cell``; None when it can."""
        for limit in self.limits:
            reason = LIMITS[limit](cell)
            if reason:
                return reason
        return None


def _two_ranks(cell: Cell) -> str | None:
    return None if cell.ranks == 2 else "needs exactly two ranks"


def _even(cell: Cell) -> str | None:
    return None if cell.ranks % 2 == 0 else "needs an even number of ranks"


def _power_of_two(cell: Cell) -> str | None:
    return None if cell.ranks & (cell.ranks - 1) == 0 else "needs a power of two"


def _elements(cell: Cell) -> int:
    return cell.nbytes // ITEMSIZE[cell.dtype]


def _count_at_least_ranks(cell: Cell) -> str | None:
    return None if _elements(cell) >= cell.ranks else "needs at least one element per rank"


def _count_at_least_pow2(cell: Cell) -> str | None:
    pow2 = 1 << (cell.ranks.bit_length() - 1)
    return (
        None
        if _elements(cell) >= pow2
        else "needs a count of at least the largest power of two up to the ranks"
    )


def _not_in_place(cell: Cell) -> str | None:
    return "cannot run in place" if cell.in_place else None


def _only_in_place(cell: Cell) -> str | None:
    return None if cell.in_place else "runs in place only"


def _several_nodes(cell: Cell) -> str | None:
    one = cell.ranks_per_node is not None and cell.ranks_per_node >= cell.ranks
    return "needs more than one node" if one else None


def _one_node(cell: Cell) -> str | None:
    one = cell.ranks_per_node is None or cell.ranks_per_node >= cell.ranks
    return None if one else "needs a single node"


def _portable_reduction(cell: Cell) -> str | None:
    if cell.dtype in ("int32", "int64", "float32", "float64") and cell.op in (
        None,
        "sum",
        "max",
        "min",
        "prod",
    ):
        return None
    return "combines int32, int64, float32 and float64 by sum, max, min and prod only"


LIMITS = {
    "two_ranks": _two_ranks,
    "even_ranks": _even,
    "power_of_two": _power_of_two,
    "count_at_least_ranks": _count_at_least_ranks,
    "count_at_least_pow2": _count_at_least_pow2,
    "not_in_place": _not_in_place,
    "only_in_place": _only_in_place,
    "several_nodes": _several_nodes,
    "one_node": _one_node,
    "portable_reduction": _portable_reduction,
}
"""Limit name → function of a cell that returns the reason for "impossible", or None."""

TABLES = Registry(
    "provider",
    {
        "openmpi": "collbench.algorithms.openmpi:ALGORITHMS",
        "mpich": "collbench.algorithms.mpich:ALGORITHMS",
        "intelmpi": "collbench.algorithms.intelmpi:ALGORITHMS",
        "nccl": "collbench.algorithms.nccl:ALGORITHMS",
        "portable": "collbench.algorithms.portable:ALGORITHMS",
    },
)
"""Provider → its rows (``tuple[Algorithm, ...]``)."""


def algorithms(
    provider: str, collective: str | None = None, version: Version | None = None
) -> list[Algorithm]:
    """Return a provider's rows, for one collective and library version if given, in table order.

    A provider without a table (an unknown or derived library) has no rows.
    """
    if provider not in TABLES:
        return []
    return [
        row
        for row in TABLES[provider]
        if (collective is None or row.collective == collective) and row.in_version(version)
    ]


def find(provider: str, collective: str, name: str) -> Algorithm:
    """Return one row; raises UsageError with the nearest names."""
    rows: Mapping[str, Algorithm] = {row.name: row for row in algorithms(provider, collective)}
    if name not in rows:
        raise unknown_name(f"{provider} {collective} algorithm", name, [*rows, "default"])
    return rows[name]


def family(provider: str, collective: str, name: str) -> str:
    """Return the family of an algorithm; ``default`` for the default, ``other`` when the table has no such row."""
    if name == "default":
        return "default"
    for row in algorithms(provider, collective):
        if row.name == name:
            return row.family
    return "other"
