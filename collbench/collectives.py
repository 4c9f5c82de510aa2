"""The table of collectives: what S means, busbw factor, rooted or reducing, aliases.

busbw factors: nccl-tests, doc/PERFORMANCE.md (busbw = factor × S/t).
"""

from collections.abc import Callable
from dataclasses import dataclass

from collbench.errors import unknown_name


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective.

    Attributes:
        name: MPI's lower-case name.
        busbw_factor: ranks → factor of busbw over algbw; None where busbw has no meaning.
        rooted: one rank is special (its role rotates or is fixed at 0).
        reduces: takes an operator.
        per_rank: S is ranks × a per-rank (or per-peer) block, so S is rounded to whole blocks.
        sized: has a message size (a barrier has none: nbytes is 0).
        nccl: nccl-tests' name without ``_perf``; None where NCCL has no such call.
        aliases: other spellings people use.
    """

    name: str
    busbw_factor: Callable[[int], float] | None
    rooted: bool = False
    reduces: bool = False
    per_rank: bool = False
    sized: bool = True
    nccl: str | None = None
    aliases: tuple[str, ...] = ()


def _one(_ranks: int) -> float:
    return 1.0


def _share(ranks: int) -> float:
    return (ranks - 1) / ranks


def _twice_share(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


_ROWS = (
    Collective("allreduce", _twice_share, reduces=True, nccl="all_reduce", aliases=("all_reduce",)),
    Collective("bcast", _one, rooted=True, nccl="broadcast", aliases=("broadcast",)),
    Collective("allgather", _share, per_rank=True, nccl="all_gather", aliases=("all_gather",)),
    Collective("reduce_scatter", _share, reduces=True, per_rank=True, nccl="reduce_scatter",
               aliases=("reducescatter", "reduce_scatter_block")),
    Collective("reduce_scatter_v", _share, reduces=True, per_rank=True),
    Collective("reduce", _one, rooted=True, reduces=True, nccl="reduce"),
    Collective("alltoall", _share, per_rank=True, nccl="alltoall", aliases=("all_to_all", "all2all")),
    Collective("alltoallv", _share, per_rank=True, nccl="alltoallv"),
    Collective("allgatherv", _share, per_rank=True),
    Collective("gather", _share, rooted=True, per_rank=True, nccl="gather"),
    Collective("scatter", _share, rooted=True, per_rank=True, nccl="scatter"),
    Collective("barrier", None, sized=False),
    Collective("sendrecv", _one, nccl="sendrecv", aliases=("pingpong",)),
)  # fmt: skip

COLLECTIVES: dict[str, Collective] = {row.name: row for row in _ROWS}
_ALIASES = {alias: row.name for row in _ROWS for alias in row.aliases}


def collective(name: str) -> Collective:
    """Return the collective called ``name`` or one of its aliases (case and hyphens do not matter).

    Raises:
        UsageError: no such collective; the message names the nearest.
    """
    key = name.strip().lower().replace("-", "_")
    key = _ALIASES.get(key, key)
    if key not in COLLECTIVES:
        raise unknown_name("collective", name, COLLECTIVES)
    return COLLECTIVES[key]


def round_nbytes(name: str, nbytes: int, ranks: int, itemsize: int) -> int:
    """Return S rounded down to whole elements per rank as nccl-tests does (0 where nothing is left).

    Args:
        name: collective.
        nbytes: total bytes asked for.
        ranks: number of ranks.
        itemsize: bytes of one element.
    """
    row = COLLECTIVES[name]
    if not row.sized:
        return 0
    unit = itemsize * ranks if row.per_rank else itemsize
    return nbytes // unit * unit


def busbw(name: str, ranks: int, nbytes: int, time_s: float) -> float | None:
    """Return the bus bandwidth in bytes per second; None where the collective has none.

    Source: nccl-tests doc/PERFORMANCE.md.
    """
    factor = COLLECTIVES[name].busbw_factor
    if factor is None or not nbytes or time_s <= 0:
        return None
    return nbytes / time_s * factor(ranks)
