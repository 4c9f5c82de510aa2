"""UCC's tune string: ``coll:range:memory:[team]:score:@algorithm`` joined by ``#``, for TL/UCP.

One token that UCC does not take drops the whole string, with an ERROR line and exit status 0: so names, sizes and teams are
checked here. With score ``inf`` both ends of a range are inclusive, a shared border goes to the upper one, and
a range needs two different ends. Run on 1.8.0 with host memory; source: coll_score/, tl_ucp_coll.c, ucc_coll_utils.c of it.
"""

import re
from collections.abc import Sequence

from collbench.errors import UnansweredError
from collbench.records import Rule, Selection
from collbench.tables import Format, header
from collbench.tables.coverage import communicators

NAMES: dict[str, tuple[str, ...]] = {
    "allreduce": ("knomial", "sra_knomial", "sliding_window", "dbt", "ring"),
    "bcast": ("knomial", "sag_knomial", "dbt"),
    "reduce": ("knomial", "dbt", "srg"),
    "allgather": ("knomial", "ring", "neighbor", "bruck", "sparbit", "linear", "batched"),
    "allgatherv": ("ring", "knomial"),
    "alltoall": ("pairwise", "bruck", "onesided"),
    "alltoallv": ("pairwise", "hybrid", "onesided"),
    "reduce_scatter": ("ring", "knomial"),
    "reduce_scatter_v": ("ring",),
}
"""Collective → algorithms that a tune string can name (``ucc_info -A``; for others a token is an error)."""
WORDS = {"reduce_scatter_v": "reduce_scatterv"}
MEMORIES = {"host": "host", "pinned": "host", "cuda": "cuda", "managed": "cuda_managed", "rocm": "rocm"}
UNIFORM = frozenset({"alltoallv"})
"""Its size is unknown to UCC and looked up as 0."""
TOKEN = re.compile(r"([a-z_]+):(\d+)-(\d+|inf):(?:host|cuda|cuda_managed|rocm):\[\d+-\d+\]:inf:@[a-z0-9_]+")
UNIT = (
    "bytes as UCC counts them: the vector for allreduce, bcast, reduce; per-rank block x ranks for allgather, alltoall, "
    "reduce_scatter_v; the block of one rank for reduce_scatter"
)
CANNOT = (
    "ranks per node, placement, data type, in-place calls (reduce_scatter then counts all blocks)",
    "what UCC declines when it runs: it falls back silently (allreduce ring where the ranks do not divide the count)",
    "whether it was taken: UCC drops the whole string on one wrong token; look with UCC_LOG_LEVEL=debug",
)


def tokens(selection: Selection) -> list[str]:
    """Return the tokens of all rules other than the default.

    Raises:
        UnansweredError: something that UCC would drop the whole string for, or read as something else.
    """
    memory = _memory(selection)
    found: list[str] = []
    for name in dict.fromkeys(r.collective for r in selection.rules if r.algorithm != "default"):
        own = [r for r in selection.rules if r.collective == name]
        for first, last, rules in communicators(own):
            chosen = [r for r in rules if r.algorithm != "default"]
            _check(name, rules, chosen)
            for rule in chosen:
                found += _tokens(rule, first, last or first, memory)
    return found


def _memory(selection: Selection) -> str:
    kinds = [str(kind) for kind in selection.context.get("memory") or ["host"]]
    if len(kinds) > 1 or kinds[0] not in MEMORIES:
        raise UnansweredError(
            f"a UCC tune string is for one kind of memory it knows, not for {', '.join(kinds)}"
        )
    return MEMORIES[kinds[0]]


def _check(name: str, rules: Sequence[Rule], chosen: Sequence[Rule]) -> None:
    for rule in chosen:
        if rule.algorithm not in NAMES.get(name, ()):
            known = ", ".join(NAMES.get(name, ())) or "none at all"
            raise UnansweredError(
                f"a UCC tune string cannot ask for {name} by {rule.algorithm} (it knows {known}): UCC would drop the whole "
                "string; choose others with --collectives"
            )
        if rule.params:
            raise UnansweredError(f"{name} {rule.algorithm}: a UCC tune string cannot hold parameters")
    if name in UNIFORM and chosen and len({r.algorithm for r in rules}) > 1:
        raise UnansweredError(f"UCC does not know the size of an {name}: one algorithm must serve all sizes")


def _tokens(rule: Rule, first: int, last: int, memory: str) -> list[str]:
    """Return the tokens of one rule: one, or one for each rank count where the block is what counts."""
    word = WORDS.get(rule.collective, rule.collective)
    return [
        f"{word}:{sizes}:{memory}:[{low}-{high}]:inf:@{rule.algorithm}"
        for low, high, sizes in _spans(rule, first, last)
    ]


def _spans(rule: Rule, first: int, last: int) -> list[tuple[int, int, str]]:
    """Return (first rank count, last, sizes)."""
    if rule.collective in UNIFORM:
        return [(first, last, _range(0, None))]
    if rule.collective != "reduce_scatter":
        return [(first, last, _range(rule.min_bytes, rule.max_bytes))]
    blocks = (
        (ranks, -(-rule.min_bytes // ranks), None if rule.max_bytes is None else rule.max_bytes // ranks)
        for ranks in range(first, last + 1)
    )
    return [(ranks, ranks, _range(low, high)) for ranks, low, high in blocks if high is None or low <= high]


def _range(low: int, high: int | None) -> str:
    """Return both ends; a range of one size takes the next one in, which a range that starts there takes back."""
    return f"{low}-inf" if high is None else f"{low}-{max(high, low + 1)}"


def render(selection: Selection) -> str:
    """Return a file with one export line."""
    out = [f"# {line}" for line in header.lines(selection, UNIT, CANNOT)]
    return "\n".join([*out, f"export UCC_TL_UCP_TUNE='{'#'.join(tokens(selection))}'"]) + "\n"


def activation(_path: str, selection: Selection) -> dict[str, str]:
    """Return the variable itself."""
    return {"UCC_TL_UCP_TUNE": "#".join(tokens(selection))}


FORMAT = Format(
    name="ucc", suffix=".sh", provider="ucc", render=render, activation=activation, cannot=CANNOT, uniform=UNIFORM,
    summary="UCC: tune string for TL/UCP",
)  # fmt: skip
