"""Parsing and printing of sizes, times and rates. Inside collbench everything is SI (s, bytes, bytes/s)."""

import math
import re

from collbench.errors import UsageError

_SUFFIX = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*$", re.IGNORECASE)
_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(us|µs|ms|s|m|min|h)?\s*$", re.IGNORECASE)
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
MAX_SIZES = 1000


def parse_size(text: str) -> int:
    """Return bytes for ``8``, ``1K``, ``1KiB``, ``1M``, ``1.5G``; binary prefixes, as nccl-tests and OSU use.

    Raises:
        UsageError: not a size.
    """
    match = _SIZE.match(text)
    if match is None:
        raise UsageError(f"{text!r} is not a size: write for example 8, 1K, 1KiB or 1M")
    return int(float(match[1]) * _SUFFIX[match[2].lower()])


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return ascending sizes for a list and ranges: ``8,1K``, ``8:1M`` (doubling), ``8:1M:x4``, ``0:64:+16``.

    The end point of a range is always included. Duplicates appear once.

    Raises:
        UsageError: not a size list.
    """
    sizes: set[int] = set()
    for part in text.split(","):
        if part.strip():
            sizes.update(_parse_range(part.strip()))
    if not sizes:
        raise UsageError(f"{text!r} names no size: write for example 8:1M:x4")
    return tuple(sorted(sizes))


def _parse_range(part: str) -> list[int]:
    pieces = part.split(":")
    if len(pieces) == 1:
        return [parse_size(part)]
    if len(pieces) > 3:
        raise UsageError(f"{part!r} is not a size range: write FIRST:LAST or FIRST:LAST:xFACTOR")
    first, last = parse_size(pieces[0]), parse_size(pieces[1])
    step = pieces[2] if len(pieces) == 3 else "x2"
    if first > last:
        raise UsageError(f"the size range {part!r} ends below its start")
    sizes = []
    size = first
    while size < last:
        sizes.append(size)
        if len(sizes) > MAX_SIZES:
            raise UsageError(f"the size range {part!r} has more than {MAX_SIZES} sizes: use a larger step")
        size = _next_size(size, step, part)
    return [*sizes, last]


def _next_size(size: int, step: str, part: str) -> int:
    if step[:1] in "x*" and size == 0:
        raise UsageError(f"the size range {part!r} cannot multiply from 0: start at 1 or more")
    try:
        following = int(size * float(step[1:])) if step[:1] in "x*" else size + parse_size(step.lstrip("+"))
    except ValueError:
        following = size
    if following <= size:
        raise UsageError(f"{step!r} is not a step in {part!r}: write x2, x4 or +1K")
    return following


def parse_duration(text: str) -> float:
    """Return seconds for ``90``, ``90s``, ``10m``, ``1.5h``, ``500ms``.

    Raises:
        UsageError: not a duration.
    """
    match = _DURATION.match(text)
    if match is None:
        raise UsageError(f"{text!r} is not a duration: write for example 90s, 10m or 1.5h")
    return float(match[1]) * _SECONDS[(match[2] or "").lower()]


def parse_percent(text: str) -> float:
    """Return 0.05 for ``5%``, ``5 %`` or ``0.05``.

    Raises:
        UsageError: not a share.
    """
    stripped = text.strip()
    try:
        value = float(stripped.rstrip("% ")) / 100 if stripped.endswith("%") else float(stripped)
    except ValueError:
        raise UsageError(f"{text!r} is not a percentage: write for example 5% or 0.05") from None
    if not math.isfinite(value) or value < 0:
        raise UsageError(f"{text!r} is not a percentage: write for example 5% or 0.05")
    return value


def format_bytes(nbytes: float) -> str:
    """Return ``8 B``, ``1 KiB``, ``1.5 MiB``."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def format_time(seconds: float | None) -> str:
    """Return a time with three significant figures: ``166 ns``, ``12.3 µs``, ``1.05 ms``, ``2.5 s``; – for None."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    for scale, unit in ((1e-6, "ns"), (1e-3, "µs"), (1.0, "ms")):
        if abs(seconds) < scale * 0.9995:
            return f"{_three(seconds / scale * 1e3)} {unit}"
    return f"{_three(seconds)} s"


def format_us(seconds: float | None) -> str:
    """Return microseconds without the unit, for a column headed µs; – for None."""
    return "–" if seconds is None or not math.isfinite(seconds) else _three(seconds * 1e6)


def format_rate(bytes_per_s: float | None) -> str:
    """Return a bandwidth as ``12.3 GB/s`` or ``512 MB/s`` (decimal prefixes); – for None."""
    if bytes_per_s is None or not math.isfinite(bytes_per_s):
        return "–"
    if bytes_per_s < 1e6:
        return f"{_three(bytes_per_s / 1e3)} kB/s"
    if bytes_per_s < 1e9:
        return f"{_three(bytes_per_s / 1e6)} MB/s"
    return f"{_three(bytes_per_s / 1e9)} GB/s"


def format_gbs(bytes_per_s: float | None) -> str:
    """Return GB/s (10^9 bytes per second) without the unit, for a column headed GB/s; – for None."""
    return "–" if bytes_per_s is None or not math.isfinite(bytes_per_s) else _three(bytes_per_s / 1e9)


def format_percent(share: float | None, *, sign: bool = False) -> str:
    """Return ``12.3 %`` (with a sign if asked); – for None."""
    if share is None or not math.isfinite(share):
        return "–"
    return f"{share * 100:+.1f} %" if sign else f"{share * 100:.1f} %"


def format_duration(seconds: float) -> str:
    """Return ``45 s``, ``3 m 05 s``, ``2 h 10 m`` for waiting times."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} m"


def _three(value: float) -> str:
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    digits = 2 - math.floor(math.log10(abs(rounded)))  # 0.9999 has become 1.00
    return f"{rounded:.{max(0, min(6, digits))}f}"
