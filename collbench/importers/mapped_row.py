"""Turning the named fields of a CSV row into a launch and a case."""

import math
from typing import Any, NamedTuple

from collbench import units
from collbench.collectives import COLLECTIVES, collective
from collbench.errors import UsageError
from collbench.importers import hints
from collbench.importers.model import Row, Table
from collbench.importers.nccl_log import ALGORITHMS
from collbench.importers.nccl_rows import TYPES
from collbench.records import ITEMSIZE

_TYPES = {**TYPES, **{name: name for name in ITEMSIZE}, "mpi_float": "float32", "mpi_double": "float64",
          "mpi_int": "int32", "mpi_char": "int8", "mpi_byte": "uint8", "fp32": "float32", "fp16": "float16",
          "bf16": "bfloat16", "fp64": "float64"}  # fmt: skip
_TRUE = ("true", "1", "yes", "in-place", "in_place", "inplace")
_FALSE = ("false", "0", "no", "out-of-place", "out_of_place", "oop")


class Group(NamedTuple):
    """What all rows of one launch share."""

    label: str | None
    provider: str
    ranks: int
    nodes: int | None
    ranks_per_node: int | None
    library: str | None
    version: str | None
    rank_reduction: str
    sync: str
    memory: str

    def table(self, file: str, line: int) -> Table:
        """Return an empty table for the launch."""
        name = self.library or self.provider
        text = f"{name} {self.version}" if self.version else name
        return Table(
            tool="csv", provider=self.provider, ranks=self.ranks, rows=[], rank_reduction=self.rank_reduction,
            sync=self.sync, timer="csv", file=file, line=line, nodes=self.nodes,
            ranks_per_node=self.ranks_per_node, memory=self.memory, label=self.label,
            library={"name": name, "version": self.version, "string": text},
        )  # fmt: skip


class Fields:
    """The named values of one row, with typed access; ValueError says what is wrong with one."""

    def __init__(self, found: dict[str, str]) -> None:
        self._found = found

    def text(self, name: str) -> str | None:
        """Return the text; None where there is none."""
        return self._found.get(name) or None

    def number(self, name: str) -> float:
        """Return a finite number."""
        text = self._found.get(name, "")
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{name} {text!r} is no number") from None
        if not math.isfinite(value):
            raise ValueError(f"{name} {text!r} is no number")
        return value

    def whole(self, name: str, most: int = 1 << 62) -> int | None:
        """Return a whole number from 0 to ``most``; None where there is none."""
        if self.text(name) is None:
            return None
        value = self.number(name)
        if value != int(value) or not 0 <= value <= most:
            raise ValueError(f"{name} {self._found[name]!r} is no whole number in range")
        return int(self._found[name]) if self._found[name].isdecimal() else int(value)

    def size(self) -> int:
        """Return ``nbytes``: a number, or with a unit as ``1KiB``."""
        text = self.text("nbytes")
        if text is None:
            raise ValueError("there is no size")
        try:
            value = self.whole("nbytes")
        except ValueError:
            try:
                value = units.parse_size(text)
            except UsageError as error:
                raise ValueError(str(error)) from None
        assert value is not None
        if not 0 <= value < 1 << 62:
            raise ValueError(f"the size {text[:30]!r} is out of range")
        return value


def convert(fields: Fields) -> tuple[Group, Row]:
    """Return the launch and the case of one row, without its time.

    Raises:
        ValueError: a field that cannot be read; the text says which.
    """
    name = _collective(fields)
    ranks = fields.whole("ranks", hints.MAX_RANKS)
    if not ranks:
        raise ValueError("there is no number of ranks")
    provider = hints.provider_named(fields.text("provider") or "unknown")
    each, nodes = fields.whole("ranks_per_node", ranks), fields.whole("nodes", ranks)
    if each is None and nodes and ranks % nodes == 0:
        each = ranks // nodes
    if nodes is None and each:
        nodes = -(-ranks // each)
    group = Group(
        fields.text("launch"), provider, ranks, nodes, each, fields.text("library"),
        fields.text("library_version"), fields.text("rank_reduction") or "unknown", fields.text("sync") or "unknown",
        fields.text("memory") or "host",
    )  # fmt: skip
    algorithm = fields.text("algorithm") or "default"
    if provider in ("nccl", "rccl"):
        algorithm = ALGORITHMS.get(algorithm.lower(), algorithm)
    row = Row(
        collective=name,
        nbytes=fields.size() if COLLECTIVES[name].sized else 0,
        time_s=None,
        in_place=_truth(fields),
        dtype=_dtype(fields),
        op=(fields.text("op") or "sum").lower() if COLLECTIVES[name].reduces else None,
        algorithm=algorithm,
        component=fields.text("component"),
        params=_params(fields),
        iterations=fields.whole("iterations"),
    )
    return group, row


def _collective(fields: Fields) -> str:
    text = fields.text("collective")
    if text is None:
        raise ValueError("there is no collective")
    try:
        return collective(text).name
    except UsageError as error:
        raise ValueError(f"{error}; translate it in [values.collective]") from None


def _dtype(fields: Fields) -> str:
    text = fields.text("dtype")
    if text is None:
        return "float32"
    if text.lower() not in _TYPES:
        raise ValueError(f"unknown element type {text!r}: translate it in [values.dtype]")
    return _TYPES[text.lower()]


def _truth(fields: Fields) -> bool:
    text = (fields.text("in_place") or "false").lower()
    if text not in _TRUE and text not in _FALSE:
        raise ValueError(f"in_place {text!r} is neither true nor false")
    return text in _TRUE


def _params(fields: Fields) -> tuple[tuple[str, Any], ...]:
    found: dict[str, Any] = {}
    for name in ("channels", "segment_bytes"):
        value = fields.whole(name)
        if value:
            found[name] = value
    protocol = fields.text("protocol")
    if protocol:
        found["protocol"] = protocol.lower()
    return tuple(sorted(found.items()))
