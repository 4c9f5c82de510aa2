"""Short words for algorithms, so that tables fit a terminal; a legend gives the full word."""

import re
from collections.abc import Iterable

_SHORT = {
    "recursive": "rec", "doubling": "dbl", "halving": "hlv", "segmented": "seg", "basic": "basic",
    "linear": "lin", "nonoverlapping": "nonovl", "non-overlapping": "nonovl", "rabenseifner": "raben",
    "allgather": "ag", "scatter": "sct", "reduce": "red", "neighbor": "neigh", "exchange": "exch",
    "binomial": "binom", "knomial": "knom", "pipeline": "pipe", "pipelined": "pipe", "binary": "bin",
    "split": "split", "double": "double", "hierarchical": "hier", "leader": "lead", "sharded": "shard",
    "dissemination": "dissem", "pairwise": "pair", "modified": "mod", "butterfly": "bfly", "in-order": "inord",
}  # fmt: skip
"""Parts of algorithm words → their short form."""

_SOFT_BREAKS = {
    "rabenseifner": ("raben-", "seifner"), "nonoverlapping": ("nonover-", "lapping"),
    "non-overlapping": ("non-over-", "lapping"), "dissemination": ("dissemi-", "nation"),
    "hierarchical": ("hierar-", "chical"), "neighborhood": ("neighbor-", "hood"),
}  # fmt: skip
"""Where long words may be broken in a column head."""

HEAD_WIDTH = 9
"""Widest line of a column head, in characters."""


def short_word(label: str) -> str:
    """Return ``rec-dbl`` for ``recursive_doubling``, ``seg-ring[1K]`` for one with a single parameter."""
    word, params = _parts(label)
    prefix, _, name = word.rpartition(":")
    short = "-".join(_SHORT.get(part, part) for part in name.split("_"))
    return f"{prefix[:4] + ':' if prefix else ''}{short}{params}"


def _parts(label: str) -> tuple[str, str]:
    """Split ``pipeline[segment_bytes=16384]`` into ``pipeline`` and ``[16K]``; no parameters, no brackets."""
    word, _, params = label.partition("[")
    if not word or not params.endswith("]"):
        return label, ""
    return word, f"[{','.join(_short_value(pair) for pair in params[:-1].split(',') if pair)}]"


def short_words(labels: Iterable[str]) -> dict[str, str]:
    """Return label → short word; a label keeps its full word where two would become the same."""
    short = {label: short_word(label) for label in labels}
    counted = list(short.values())
    return {label: word if counted.count(word) == 1 else label for label, word in short.items()}


def head_lines(label: str) -> list[str]:
    """Return a column head as lines of at most HEAD_WIDTH characters, broken where words end."""
    lines: list[str] = []
    word, params = _parts(label)
    for part in (*re.split(r"_|(?<=:)", word), *re.split(r"(?<=,)", params)):
        lines += _broken(part)
    return _packed(lines)


def _broken(part: str) -> list[str]:
    if len(part) <= HEAD_WIDTH:
        return [part] if part else []
    if part in _SOFT_BREAKS:
        return list(_SOFT_BREAKS[part])
    return [part[: HEAD_WIDTH - 1] + "-", *_broken(part[HEAD_WIDTH - 1 :])]


def _packed(parts: list[str]) -> list[str]:
    """Join short neighbours into one line, as in ``in order``."""
    lines: list[str] = []
    for part in parts:
        gap = "" if not lines or lines[-1].endswith((":", "=", ",", "-")) or part.startswith("[") else "_"
        if lines and not lines[-1].endswith("-") and len(lines[-1]) + len(gap) + len(part) <= HEAD_WIDTH:
            lines[-1] += gap + part
        else:
            lines.append(part)
    return lines


def _short_value(pair: str) -> str:
    """Return ``16K`` for ``segment_bytes=16384``, ``r4`` for ``radix=4``, ``ll`` for ``protocol=ll``."""
    name, _, value = pair.partition("=")
    if name.endswith("_bytes") and value.isdigit():
        number = int(value)
        for unit, scale in (("M", 1 << 20), ("K", 1 << 10)):
            if number >= scale and number % scale == 0:
                return f"{number // scale}{unit}"
        return value
    return f"{name[:1]}{value}" if value.isdigit() else value
