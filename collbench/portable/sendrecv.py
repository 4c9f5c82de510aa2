"""Point-to-point between pairs of ranks: latency, bandwidth one way and both ways, message rate.

One call of a schedule is: pingpong, there and back (2 messages); bandwidth and message_rate, ``window`` messages in
flight one way and an empty answer; bidirectional_bandwidth, ``window`` messages each way. ``messages`` says how many
messages one after the other a call's time stands for, so that time per message = time of the call / messages.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from collbench.portable.patterns import joined
from collbench.portable.schedule import (
    INPUT,
    OUTPUT,
    WORK,
    Longs,
    Phase,
    Round,
    ShapeError,
    Transfers,
    transfers,
)
from collbench.portable.shape import Built, Shape
from collbench.portable.topology import node_groups

WINDOW_BYTES = 64 << 20
"""Messages in flight arrive in different places; this much memory limits the window of large ones."""
PAIRS = ("auto", "intra_node", "inter_node")


def pairs(nodes: Sequence[int], which: str, *, everyone: bool = False) -> tuple[Longs, Longs]:
    """Return the first and second ranks of the pairs.

    Args:
        nodes: node index of each rank.
        which: intra_node, inter_node, or auto: inter_node where there are several nodes.
        everyone: as many pairs as there are (message rate); otherwise one.

    Raises:
        ShapeError: there is no such pair here, with the reason.
    """
    if which not in PAIRS:
        raise ShapeError(f"pair={which!r} is not possible: choose from {', '.join(PAIRS)}")
    groups = node_groups(nodes)
    count = groups.size.size
    if which == "inter_node" and count < 2:
        raise ShapeError("an inter_node pair needs more than one node: use pair=intra_node, or virtual nodes")
    if which == "intra_node" and groups.size.max() < 2:
        raise ShapeError("an intra_node pair needs two ranks on one node: use pair=inter_node")
    if which == "intra_node" or (which == "auto" and count < 2):
        first = np.flatnonzero((groups.position % 2 == 0) & (groups.position + 1 < groups.group_size))
        a, b = groups.members[first], groups.members[first + 1]
    else:
        node = np.repeat(np.arange(count), groups.size)
        partner_size = np.append(groups.size[1:], 0)
        use = (node % 2 == 0) & (groups.position < partner_size[node])
        first = np.flatnonzero(use)
        a, b = groups.members[first], groups.members[groups.begin[node[first] + 1] + groups.position[first]]
    return (a, b) if everyone else (a[:1], b[:1])


def pingpong(shape: Shape) -> Built:
    """There and back: twice the latency of one message."""
    a, b = _pairs(shape)
    there = transfers(a, b, 0, read_buf=INPUT, write_buf=OUTPUT)
    back = transfers(b, a, 0, read_buf=INPUT, write_buf=OUTPUT)
    return Built(*shape.blocks(1), joined([Phase((Round((there,)), Round((back,))))]))


def bandwidth(shape: Shape) -> Built:
    """A window of messages one way, then an empty answer."""
    return _windowed(shape, *_pairs(shape))


def bidirectional_bandwidth(shape: Shape) -> Built:
    """A window of messages each way at once."""
    a, b = _pairs(shape)
    count = window(shape.elements * shape.itemsize, shape.params)
    both = Round((_flight(a, b, count), _flight(b, a, count)))
    return Built(*_places(shape, count), joined([Phase((both,))]))


def message_rate(shape: Shape) -> Built:
    """As bandwidth, on all pairs of the level at once."""
    return _windowed(shape, *_pairs(shape, everyone=True))


def window(nbytes: int, params: Mapping[str, int | str]) -> int:
    """Return the messages in flight: ``window`` (default 64), fewer where they would fill WINDOW_BYTES."""
    asked = int(params.get("window", 64))
    if asked < 1:
        raise ShapeError(f"window={asked} is not possible: give 1 or more")
    return max(1, min(asked, WINDOW_BYTES // max(1, nbytes)))


def messages(algorithm: str, nbytes: int, params: Mapping[str, int | str]) -> int:
    """Return how many messages one after the other a call's time stands for."""
    return 2 if algorithm == "pingpong" else window(nbytes, params)


def source_of(rank: int, algorithm: str, nodes: Sequence[int], params: Mapping[str, int | str]) -> int | None:
    """Return the rank whose data ``rank`` receives; None where it receives nothing."""
    a, b = pairs(nodes, str(params.get("pair", "auto")), everyone=algorithm == "message_rate")
    at = np.flatnonzero(b == rank)
    if at.size:
        return int(a[at[0]])
    at = np.flatnonzero(a == rank)
    if at.size and algorithm in ("pingpong", "bidirectional_bandwidth"):
        return int(b[at[0]])
    return None


def _pairs(shape: Shape, *, everyone: bool = False) -> tuple[Longs, Longs]:
    if shape.ranks < 2:
        raise ShapeError("sendrecv needs two ranks")
    return pairs(shape.nodes, str(shape.params["pair"]), everyone=everyone)


def _places(shape: Shape, count: int) -> tuple[Longs, Longs]:
    """Pieces 0 … count − 1 hold a message each; one more is empty."""
    nbytes = shape.elements * shape.itemsize
    sizes = np.append(np.full(count, nbytes), 0)
    return np.cumsum(sizes) - sizes, sizes


def _flight(a: Longs, b: Longs, count: int) -> Transfers:
    """``count`` messages; the first arrives in OUTPUT, the others in WORK."""
    index = np.tile(np.arange(count), a.size)
    target = np.where(index == 0, OUTPUT, WORK)
    return transfers(np.repeat(a, count), np.repeat(b, count), 0, index, read_buf=INPUT, write_buf=target)


def _windowed(shape: Shape, a: Longs, b: Longs) -> Built:
    count = window(shape.elements * shape.itemsize, shape.params)
    answer = transfers(b, a, count, read_buf=WORK, write_buf=WORK)
    rounds = (Round((_flight(a, b, count),)), Round((answer,)))
    return Built(*_places(shape, count), joined([Phase(rounds)]))


BUILDERS = {
    "pingpong": pingpong,
    "bandwidth": bandwidth,
    "bidirectional_bandwidth": bidirectional_bandwidth,
    "message_rate": message_rate,
}
