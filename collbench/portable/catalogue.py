"""From the name of a portable algorithm and a shape to its schedule."""

from collections.abc import Mapping, Sequence

import numpy as np

from collbench.algorithms import find
from collbench.collectives import COLLECTIVES, Collective, collective
from collbench.errors import unknown_name
from collbench.portable.schedule import INPUT, OUTPUT, Schedule, ShapeError
from collbench.portable.shape import Built, Shape
from collbench.registry import Registry

BUILDERS = Registry(
    "collective with portable algorithms",
    {
        name: f"collbench.portable.{name}:BUILDERS"
        for name in (
            "allgather", "allreduce", "alltoall", "barrier", "bcast", "reduce", "reduce_scatter", "sendrecv",
        )
    },
)  # fmt: skip
"""Collective → algorithm → function of a Shape that returns what is built."""

ALIASES = {"tree": "binomial"}
OWN_BLOCK = {"allgather": INPUT, "reduce_scatter": OUTPUT}
"""The buffer that holds one block only, for collectives where it does."""


def schedule(
    collective_name: str,
    algorithm: str,
    ranks: int,
    nbytes: int,
    itemsize: int,
    *,
    node_of: Sequence[int] | None = None,
    params: Mapping[str, int | str] | Sequence[tuple[str, int | str]] | None = None,
    root: int = 0,
    in_place: bool = False,
) -> Schedule:
    """Return the schedule of one algorithm for one shape.

    Args:
        collective_name: name or alias.
        algorithm: a name of the table ``algorithms/portable.py``, or ``tree``.
        ranks: number of ranks, 1 or more.
        nbytes: total bytes S; 0 is possible.
        itemsize: bytes of one element.
        node_of: node index of each rank; None = one node.
        params: parameters that differ from the row's defaults.
        root: root of rooted collectives.
        in_place: the input is in OUTPUT.

    Raises:
        UsageError: no such collective, algorithm or parameter.
        ShapeError: the algorithm does not exist for this shape; the message is the reason.
    """
    row, name = _named(collective_name, algorithm)
    _fits(row, ranks, nbytes, itemsize, root, node_of)
    shape = Shape(
        ranks=ranks,
        elements=nbytes // itemsize,
        itemsize=itemsize,
        root=root if row.rooted else 0,
        in_place=in_place,
        nodes=tuple(node_of) if node_of is not None else (0,) * ranks,
        params=_params(row.name, name, dict(params or {})),
    )
    built: Built = BUILDERS[row.name][name](shape)
    return Schedule(
        row.name, name, ranks, nbytes, itemsize,
        built.starts.astype(np.int64), built.sizes.astype(np.int64), built.phases,
        root=shape.root, in_place=in_place, keep_empty=row.name in ("barrier", "sendrecv"),
        own_block=frozenset({OWN_BLOCK[row.name]}) if row.name in OWN_BLOCK else frozenset(),
    )  # fmt: skip


def _named(collective_name: str, algorithm: str) -> tuple[Collective, str]:
    """Return the collective's row and the algorithm's own name."""
    row = collective(collective_name)
    name = ALIASES.get(algorithm, algorithm)
    if name not in BUILDERS[row.name]:
        raise unknown_name(f"portable {row.name} algorithm", algorithm, BUILDERS[row.name])
    return row, name


def _fits(
    row: Collective, ranks: int, nbytes: int, itemsize: int, root: int, nodes: Sequence[int] | None
) -> None:
    """Refuse a root, nodes or a size that do not fit the ranks."""
    if not 0 <= root < ranks or (nodes is not None and len(nodes) != ranks):
        raise ShapeError(f"root {root} or a node list of {len(nodes or ())} do not fit {ranks} ranks")
    unit = itemsize * ranks if row.per_rank else itemsize
    if nbytes % unit or nbytes < 0:
        raise ShapeError(f"{row.name} of {nbytes} B is no whole number of {unit} B on {ranks} ranks")


def _params(name: str, algorithm: str, given: Mapping[str, int | str]) -> dict[str, int | str]:
    """Return the row's parameters with the given ones in their place."""
    known = dict(find("portable", name, algorithm).params)
    for key in given:
        if key not in known:
            raise unknown_name(f"parameter of {name} {algorithm}", key, known or ("(none)",))
    return {**known, **given}


def every_algorithm() -> list[tuple[str, str]]:
    """Return all (collective, algorithm) pairs in order of the collectives' table."""
    names = set(BUILDERS)
    return [(c, a) for c in COLLECTIVES if c in names for a in BUILDERS[c]]
