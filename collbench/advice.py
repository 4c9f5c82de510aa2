"""The textbook's advice as data: for whom, what it says, and which cells decide it."""

from dataclasses import dataclass

SMALL, LARGE = 64 * 1024, 16 * 1024 * 1024
"""Message classes: small up to 64 KiB, large from 16 MiB, middle between."""

RING = ("ring",)
TREE = ("binomial_tree", "double_tree", "binary_tree", "knomial")
PIPELINE = ("chain", "scatter_allgather", "ring")
HIERARCHICAL = ("hierarchical",)
DEFAULT = ("default",)


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice.

    Attributes:
        name: short key.
        text: as a textbook says it.
        collective: whose cells decide it.
        families: what following it means: the best measured algorithm of these families.
        ranks: smallest and largest rank count it speaks of (None = no end).
        sizes: smallest and largest total bytes it speaks of (None = no end).
        parts: collectives whose times add up to a rival of ``collective`` (composition); empty = by families.
    """

    name: str
    text: str
    collective: str
    families: tuple[str, ...]
    ranks: tuple[int, int | None] = (2, None)
    sizes: tuple[int, int | None] = (0, None)
    parts: tuple[str, ...] = ()


ADVICE = (
    Advice("plain_allreduce", "up to 8 cards the library's plain allreduce suffices", "allreduce", DEFAULT, (2, 8)),
    Advice("plain_bcast", "up to 8 cards the library's plain broadcast suffices", "bcast", DEFAULT, (2, 8)),
    Advice("ring_at_scale", "from 64 cards on use a ring allreduce", "allreduce", RING, (64, None)),
    Advice("hierarchical_at_scale", "from 64 cards on use a hierarchical allreduce", "allreduce", HIERARCHICAL,
           (64, None)),
    Advice("tree_for_small", "use a tree for small messages", "allreduce", TREE, sizes=(0, SMALL)),
    Advice("ring_for_large", "use a ring for large messages", "allreduce", RING, sizes=(LARGE, None)),
    Advice("pipelined_bcast", "broadcast large tensors in pipelined chunks", "bcast", PIPELINE, sizes=(1 << 20, None)),
    Advice("tree_bcast", "broadcast small messages by a tree", "bcast", TREE, sizes=(0, SMALL)),
    Advice("sharded", "sharded training: reduce-scatter and all-gather instead of allreduce", "allreduce", (),
           parts=("reduce_scatter", "allgather")),
    Advice("only_a_shard", "reduce-scatter where a rank needs only its shard", "allreduce", (),
           parts=("reduce_scatter",)),
)  # fmt: skip

CONTEXT = (
    ("16 to 256 H100, NCCL (PICO, MareNostrum 5)",
     "ring's latency grows with the ranks and tree's hardly does; ring led only above a size that grew with the ranks"),
    ("one node of 4 to 8 GPUs (nccl-tests logs)", "within one NVLink domain the choices lie close together"),
    ("H200 vendor tuner regions (aws-ofi-nccl)", "borders are nearly straight in log size over log ranks"),
)  # fmt: skip
"""(source, finding): quoted as context, never part of a verdict."""
