"""The ``[nccl]`` table of a profile."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collbench.algorithms import Version
from collbench.backends.nccl_model import Hardware
from collbench.errors import UsageError, unknown_name

_KEYS = ("version", "protocols", "channels", "prune", "timings", "node_gbs", "network_gbs", "memory_gib", "start_s",
         "communicator_s")  # fmt: skip
TIMINGS = ("host", "events", "graph")


@dataclass(frozen=True, slots=True)
class Request:
    """What the ``[nccl]`` table of a profile says.

    Attributes:
        version: NCCL version to plan for; None = the live one, else the newest known.
        protocols: protocols to try.
        channels: numbers of channels to try beside NCCL's own.
        prune: leave out LL and LL128 where they cannot win.
        timings: ways of timing: host (back to back), events (each call), graph (CUDA graph).
        hardware: assumptions of the estimates.
    """

    version: Version | None
    protocols: tuple[str, ...]
    channels: tuple[int, ...]
    prune: bool
    timings: tuple[str, ...]
    hardware: Hardware


def read_request(table: Mapping[str, Any]) -> Request:
    """Return the ``[nccl]`` table of a profile, checked.

    Raises:
        UsageError: an unknown key or a bad value, by name.
    """
    for key in table:
        if key not in _KEYS:
            raise unknown_name("key of [nccl]", key, _KEYS)
    names = _list(table, "protocols", ("ll", "ll128", "simple"))
    timings = _list(table, "timings", ("host",))
    channels = _list(table, "channels", ())
    for word, valid, kind in (*((n, ("ll", "ll128", "simple"), "protocol") for n in names),
                              *((t, TIMINGS, "timing") for t in timings)):  # fmt: skip
        if word not in valid:
            raise unknown_name(kind, str(word), valid)
    if not all(isinstance(c, int) and 1 <= c <= 64 for c in channels):
        raise UsageError(f"[nccl] channels {list(channels)!r}: give numbers from 1 to 64")
    standard = Hardware()
    hardware = Hardware(
        node_bytes_per_s=_number(table, "node_gbs", standard.node_bytes_per_s / 1e9) * 1e9,
        network_bytes_per_s=_number(table, "network_gbs", standard.network_bytes_per_s / 1e9) * 1e9,
        memory_bytes=int(_number(table, "memory_gib", standard.memory_bytes / 2**30) * 2**30),
        start_s=_number(table, "start_s", standard.start_s),
        communicator_s=_number(table, "communicator_s", standard.communicator_s),
    )
    prune = table.get("prune", True)
    if not isinstance(prune, bool):
        raise UsageError(f"[nccl] prune {prune!r} is not true or false")
    return Request(parse_version(table.get("version")), names, channels, prune, timings, hardware)


def parse_version(value: object) -> Version | None:
    """Return (2, 30, 7) for ``"2.30.7"``; None for None.

    Raises:
        UsageError: not a version.
    """
    if value is None:
        return None
    words = str(value).split(".")
    if not 2 <= len(words) <= 3 or not all(w.isascii() and w.isdigit() for w in words):
        raise UsageError(f"{value!r} is not an NCCL version: write for example 2.30.7")
    return tuple(int(w) for w in words)


def _list(table: Mapping[str, Any], key: str, default: tuple[Any, ...]) -> tuple[Any, ...]:
    value = table.get(key, default)
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _number(table: Mapping[str, Any], key: str, default: float) -> float:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise UsageError(f"[nccl] {key} {value!r} is not a number above 0")
    return float(value)
