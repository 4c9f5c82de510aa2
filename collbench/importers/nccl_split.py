"""Rows that debug output has cut into pieces: finding the cuts, and trusting only what adds up."""

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from collbench.importers.nccl_rows import BadRowError, Columns, RawRow, read_row, without_stamp

_TRIES = 400
LONGEST = 600
"""No row is longer, so no part of one is."""
MAX_PIECES = 8
"""A split row has its two halves and their marks: more parts than this are something else."""


class Piece(NamedTuple):
    """Part of a split row: the text before a log line, and the word that the log line's host name is glued to."""

    text: str
    glued: str


def stitch(
    line: int, pieces: Sequence[Piece], layouts: Mapping[int, Columns], hosts: Collection[str]
) -> RawRow | None:
    """Return the row that the pieces make when joined without a blank; None if no way of cutting gives one.

    Where a host name is glued to a number its true start is unknown: every cut is tried, the one that belongs to a
    host seen elsewhere first, and only a row whose size, time and algbw agree counts. If the out-of-place ``#wrong``
    is lost it stays None.
    """
    if not layouts:
        return None
    full = max(layouts)
    columns = layouts[full]
    texts = list(itertools.islice(_joined(pieces, hosts), _TRIES))
    for text in texts:
        row = _try(line, without_stamp(text.split()), columns, full)
        if row is not None:
            return row
    first = columns.halves[0]
    for text in texts:
        tokens = without_stamp(text.split())
        if first is not None and len(tokens) == full - 1:
            tokens.insert(first[3], "N/A")
            row = _try(line, tokens, columns, full)
            if row is not None:
                return row
    return None


def _try(line: int, tokens: Sequence[str], columns: Columns, width: int) -> RawRow | None:
    if len(tokens) != width:
        return None
    try:
        return read_row(line, tokens, columns)
    except BadRowError:
        return None


def _joined(pieces: Sequence[Piece], hosts: Collection[str]) -> Iterator[str]:
    for heads in itertools.product(*(_cuts(piece.glued, hosts) for piece in pieces)):
        yield "".join(piece.text + head for piece, head in zip(pieces, heads, strict=True))


def _cuts(glued: str, hosts: Collection[str]) -> list[str]:
    if not glued:
        return [""]
    known = [glued[: -len(h)] for h in hosts if glued.endswith(h)]
    if known:
        return [min(known, key=len)]
    numeric = re.match(r"(?:N/A|[-+0-9.e]*)", glued)
    length = len(numeric[0]) if numeric else 0
    return [glued[:n] for n in range(min(length, 16) + 1)]


@dataclass(slots=True)
class Split:
    """A row whose beginning was seen and whose end was not.

    Attributes:
        line: where it begins.
        pieces: its parts so far.
    """

    line: int
    pieces: list[Piece] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The parts, for a message."""
        return " ".join(piece.text.strip() for piece in self.pieces)

    @property
    def hopeless(self) -> bool:
        """Whether it has more parts than a row can have."""
        return len(self.pieces) >= MAX_PIECES
