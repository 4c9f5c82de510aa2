"""Rows of an nccl-tests table: which column is what, do the numbers agree, and putting split rows together."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from collbench.importers.model import MAX_TIME_S

TYPES = {
    "int8": "int8", "char": "int8", "uint8": "uint8", "int32": "int32", "int": "int32", "uint32": "uint32",
    "int64": "int64", "uint64": "uint64", "half": "float16", "float16": "float16", "bfloat16": "bfloat16",
    "float": "float32", "float32": "float32", "double": "float64", "float64": "float64", "f8e4m3": "float8e4m3",
    "fp8_e4m3": "float8e4m3", "f8e5m2": "float8e5m2", "fp8_e5m2": "float8e5m2",
}  # fmt: skip
"""nccl-tests' and rccl-tests' type names → ours."""

_DATE = re.compile(r"\d{4}-\d\d-\d\d$")
_TIME = {"time", "cputime"}
_UNCHECKED = frozenset(("N/A", "n/a", "-"))
_INF = math.inf
_LONGEST_US = MAX_TIME_S * 1e6


class Half(NamedTuple):
    """One half (out-of-place or in-place) of a row: µs, GB/s, GB/s, count of wrong elements or error measure."""

    time_us: float
    algbw: float
    busbw: float
    wrong: float | None
    stats: tuple[tuple[str, float], ...] = ()


class RawRow(NamedTuple):
    """One row as printed; ``out`` or ``inside`` is None where the tool left that half blank."""

    line: int
    size: int
    elements: int
    dtype: str
    redop: str | None
    root: int | None
    out: Half | None
    inside: Half | None


@dataclass(frozen=True, slots=True)
class Columns:
    """Positions in a row of one width; halves as (time, algbw, busbw, wrong, ((name, position), …))."""

    redop: int | None
    root: int | None
    halves: tuple[tuple[int, int, int, int, tuple[tuple[str, int], ...]] | None, ...]


class BadRowError(ValueError):
    """The line looks like a row and is none; the text says why."""


def columns_of(header: Sequence[str]) -> dict[int, Columns]:
    """Return the layouts that rows under this header line may have, by number of words.

    Besides the header's own width: without ``redop`` where a first-generation alltoall leaves it blank, and with
    the in-place half alone where the tool prints no other.
    """
    names = [n for n in header if n not in ("timestamp", "date")]
    starts = [i for i, n in enumerate(names) if n in _TIME]
    ends = [*starts[1:], len(names)]
    whole = all("busbw" in names[s : s + 3] and e - s >= 4 for s, e in zip(starts, ends, strict=False))
    if len(starts) not in (1, 2) or starts[0] < 3 or not whole:
        return {}
    redop = names.index("redop") if "redop" in names[: starts[0]] else None
    root = names.index("root") if "root" in names[: starts[0]] else None
    halves = tuple(_half(names, s, e) for s, e in zip(starts, ends, strict=True))
    found = {len(names): Columns(redop, root, halves)}
    if redop is not None and root is None:
        found[len(names) - 1] = Columns(None, None, tuple(_shift(h, -1) for h in halves))
    if len(starts) == 2:
        gone = starts[1] - starts[0]
        found[len(names) - gone] = Columns(redop, root, (None, _shift(halves[1], -gone)))
    return found


def _half(
    names: Sequence[str], start: int, end: int
) -> tuple[int, int, int, int, tuple[tuple[str, int], ...]]:
    extra = tuple((names[i], i) for i in range(start + 4, end) if names[i].startswith("i_"))
    return (start, start + 1, start + 2, start + 3, extra)


def _shift(
    half: tuple[int, int, int, int, tuple[tuple[str, int], ...]], by: int
) -> tuple[int, int, int, int, tuple[tuple[str, int], ...]]:
    time, algbw, busbw, wrong, extra = half
    return (time + by, algbw + by, busbw + by, wrong + by, tuple((n, i + by) for n, i in extra))


def columns_from_right(tokens: Sequence[str]) -> Columns | None:
    """Return the layout of a row that has no header; None when its width fits none."""
    width = len(tokens)
    extra: tuple[str, ...] = ()
    if width in (11, 12, 13):
        left, each = width - 8, 4
    elif width in (19, 20, 21):
        left, each = width - 16, 8
        extra = ("i_min", "i_max", "i_p99", "i_cv%")
    else:
        return None
    redop = root = None
    if left == 5:
        redop, root = 3, 4
    elif left == 4:
        redop, root = (None, 3) if tokens[3].lstrip("-").isdigit() else (3, None)
    halves = tuple(
        (s, s + 1, s + 2, s + 3, tuple((n, s + 4 + i) for i, n in enumerate(extra)))
        for s in (left, left + each)
    )
    return Columns(redop, root, halves)


def without_stamp(tokens: list[str]) -> list[str]:
    """Return the words without the time stamp that ``-S`` appends."""
    if len(tokens) > 11 and _DATE.match(tokens[-2]) and ":" in tokens[-1]:
        return tokens[:-2]
    return tokens


def looks_like_row(tokens: Sequence[str]) -> bool:
    """Say whether the words begin as a row does: size, count, type."""
    return (
        len(tokens) > 4
        and tokens[0].isdecimal()
        and tokens[1].isdecimal()
        and (tokens[2] in TYPES or (tokens[2].isalnum() and not tokens[2].isdecimal() and len(tokens) > 10))
    )


def read_row(line: int, tokens: Sequence[str], columns: Columns) -> RawRow:
    """Return the row.

    Raises:
        BadRowError: a word is no number, or size, time and algbw do not agree.
    """
    try:
        size, count = int(tokens[0]), int(tokens[1])
    except ValueError:
        raise BadRowError("size or count is no whole number") from None
    if tokens[2] not in TYPES:
        raise BadRowError(f"unknown element type {tokens[2]!r}")
    if size < 0 or count < 0 or size >= 1 << 62:
        raise BadRowError("size out of range")
    root = _root(tokens[columns.root]) if columns.root is not None else None
    halves = columns.halves
    first = _read_half(tokens, halves[0], size) if halves[0] is not None else None
    second = _read_half(tokens, halves[1], size) if len(halves) == 2 and halves[1] is not None else None
    redop = tokens[columns.redop] if columns.redop is not None else None
    return RawRow(line, size, count, TYPES[tokens[2]], redop, root, first, second)


def fits(tokens: Sequence[str], columns: Columns) -> bool:
    """Say whether the words are a whole row of a layout that is not the header's own width.

    Where they are not, the row may as well be the beginning of one that was split or cut off.
    """
    try:
        read_row(0, tokens, columns)
    except BadRowError:
        return False
    return True


def _root(word: str) -> int:
    if word == "-1":
        return -1
    try:
        root = int(word)
    except ValueError:
        raise BadRowError(f"root {word!r} is no number") from None
    if root < -1:
        raise BadRowError(f"root {root} is no rank")
    return root


def _read_half(
    tokens: Sequence[str], half: tuple[int, int, int, int, tuple[tuple[str, int], ...]], size: int
) -> Half:
    at_time, at_algbw, at_busbw, at_wrong, extra = half
    try:
        time_us, algbw, busbw = float(tokens[at_time]), float(tokens[at_algbw]), float(tokens[at_busbw])
        word = tokens[at_wrong]
        wrong = 0.0 if word == "0" else (None if word in _UNCHECKED else float(word))
        stats = tuple([(name, float(tokens[i])) for name, i in extra]) if extra else ()
    except ValueError:
        raise BadRowError("a word in a column of numbers is none") from None
    if not (0 < time_us < _LONGEST_US and 0 <= algbw < _INF and 0 <= busbw < _INF):
        raise BadRowError("time or bandwidth is not a positive number in range")
    # algbw is size/time, printed with two decimals or less: half a unit in the last place of both may be lost.
    expected = size / time_us / 1e3
    if abs(expected - algbw) > 0.0051 + 0.001 * expected:
        allowed = half_unit(tokens[at_algbw]) + expected * half_unit(tokens[at_time]) / time_us
        if abs(expected - algbw) > 1.05 * allowed:
            raise BadRowError(
                f"size, time and algbw do not agree: {size} B in {time_us:g} µs is {expected:.2f} GB/s"
            )
    return Half(time_us, algbw, busbw, wrong, stats)


def half_unit(word: str) -> float:
    """Return half a unit in the last printed place of a number (``12.34`` → 0.005, ``1.2e+06`` → 50000)."""
    mantissa, _, exponent = word.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.5 * 10.0 ** max(-300, min(300, int(exponent or 0) - decimals))
