"""What a builder of a schedule is given."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collbench.portable.pieces import partition
from collbench.portable.schedule import OUTPUT, WORK, Longs, Phase, ShapeError
from collbench.portable.topology import Groups, node_groups


@dataclass(frozen=True)
class Shape:
    """One question to a builder.

    Attributes:
        ranks: number of ranks.
        elements: S in elements.
        itemsize: bytes of one element.
        root: root of rooted collectives.
        in_place: INPUT is OUTPUT.
        nodes: node index of each rank.
        params: the algorithm's parameters, defaults filled in.
    """

    ranks: int
    elements: int
    itemsize: int
    root: int
    in_place: bool
    nodes: tuple[int, ...]
    params: Mapping[str, int | str]

    def blocks(self, parts: int | None = None) -> tuple[Longs, Longs]:
        """Return first bytes and sizes of one piece per rank (or of ``parts`` pieces)."""
        return partition(self.elements, parts or self.ranks, self.itemsize)

    def groups(self) -> Groups:
        """Return the nodes, the root's first and led by it."""
        return node_groups(self.nodes, self.root)

    def number(self, name: str) -> int:
        """Return a whole-number parameter; raises ShapeError when it is none."""
        value = self.params[name]
        if not isinstance(value, int) or value < 0:
            raise ShapeError(f"{name}={value!r} is not possible: give a whole number, 0 or more")
        return value

    @property
    def collector(self) -> int:
        """The buffer in which a reduce-scatter may combine: OUTPUT, unless that overlies the input."""
        return WORK if self.in_place else OUTPUT


@dataclass(frozen=True)
class Built:
    """What a builder returns: pieces and phases.

    Attributes:
        starts: first byte of each piece.
        sizes: bytes of each piece.
        phases: what is done.
    """

    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    phases: tuple[Phase, ...]
