"""Rank counts of one collective as spans that cover 0 … ∞, with nothing where nothing was decided."""

from collections.abc import Sequence

from collbench.errors import UnansweredError
from collbench.records import Rule

Span = tuple[int, int | None, list[Rule]]
"""(first rank count, last rank count or None, rules in order of size; empty = leave the library alone)."""


def communicators(rules: Sequence[Rule]) -> list[Span]:
    """Return spans of rank counts, ascending and without a hole.

    Raises:
        UnansweredError: one rank count was measured with several numbers of ranks per node.
    """
    shapes: dict[int, set[int | None]] = {}
    for rule in rules:
        shapes.setdefault(rule.ranks, set()).add(rule.ranks_per_node)
    mixed = sorted(ranks for ranks, per_node in shapes.items() if len(per_node) > 1)
    if mixed:
        raise UnansweredError(
            f"{rules[0].collective} at {mixed[0]} ranks was measured with several ranks per node, which this format "
            "cannot tell apart: choose one with --ranks-per-node"
        )
    spans: list[Span] = []
    following = 0
    for ranks in sorted(shapes):
        own = sorted((r for r in rules if r.ranks == ranks), key=lambda r: r.min_bytes)
        if ranks > following:
            spans.append((following, ranks - 1, []))
        last = own[0].ranks_max or ranks
        spans.append((ranks, last, own))
        following = last + 1
    spans.append((following, None, []))
    return spans
