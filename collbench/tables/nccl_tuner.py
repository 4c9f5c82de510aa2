"""CSV of NCCL's example tuner plugin, and a strict reader that matches as the plugin documents.

``collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff``: limits inclusive, first
match wins, -1 = any. The plugin runs every call that matches no row, and every row with channels -1, on ONE channel:
so channels are explicit and every collective is covered from 0 to 2^64 - 1. Source: NCCL ext-tuner/example 2.30.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from collbench.algorithms import nccl
from collbench.errors import UnansweredError, UsageError
from collbench.records import Rule, Selection
from collbench.tables import Format, header

LARGEST = 2**64 - 1
NAMES = {
    "bcast": "broadcast", "reduce": "reduce", "allgather": "allgather", "reduce_scatter": "reducescatter",
    "allreduce": "allreduce",
}  # fmt: skip
CATCH_ALL = ("ring", "simple")
"""Valid for every collective."""
CHANNELS = 16
"""Channels of rows that were measured without stating any: the table has no way to keep NCCL's own number."""
UNIT = "bytes = element size x max(send, recv count): total over ranks for allgather and reducescatter"
CANNOT = (
    "NCCL's own choice (a call that matches no row runs on one channel), so every size has a row",
    "NCCL's own channel count: rows measured without one say 16",
)
LINE = 255
"""Longest line that the plugin reads whole."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the CSV; -1 = any."""

    collective: str
    min_bytes: int
    max_bytes: int
    algorithm: str
    protocol: str
    channels: int
    nodes: int = -1
    ranks: int = -1
    pipe_ops: int = -1
    registered: int = -1

    def line(self) -> str:
        """Return the CSV line."""
        return ",".join(
            str(v) for v in (self.collective, self.min_bytes, self.max_bytes, self.algorithm, self.protocol,
                             self.channels, self.nodes, self.ranks, self.pipe_ops, self.registered)
        )  # fmt: skip


def render(selection: Selection) -> str:
    """Return the file.

    Raises:
        UnansweredError: a rule that the plugin cannot express (default, unknown protocol).
    """
    out = [f"# {line}" for line in header.lines(selection, UNIT, CANNOT)]
    measured = {rule.collective for rule in selection.rules}
    for name, native in NAMES.items():
        own = [r for r in selection.rules if r.collective == name]
        out.extend(row.line() for row in _rows(own))
        what = "other cluster sizes" if name in measured else "not measured"
        out.append(f"# {native}: {what}: one catch-all row")
        out.append(Row(native, 0, LARGEST, *CATCH_ALL, _channels(own)).line())
    text = "\n".join(out) + "\n"
    parse(text)
    return text


def _rows(rules: Sequence[Rule]) -> list[Row]:
    """Return the rows of one collective; a ``default`` range takes the nearest chosen rule of its rank count."""
    rows: list[Row] = []
    for ranks in sorted({r.ranks for r in rules}):
        chosen = [r for r in rules if r.ranks == ranks]
        named = [r for r in chosen if r.algorithm != "default"]
        if not named:
            raise UnansweredError(
                f"{chosen[0].collective} at {ranks} ranks: NCCL's own choice stays best, which the tuner's CSV cannot "
                "express: use collbench's own plugin ('collbench plugin') or leave the table out"
            )
        if len(named) != len(chosen):
            raise UnansweredError(
                f"{chosen[0].collective} at {ranks} ranks keeps NCCL's own choice for some sizes, which the tuner's CSV "
                "cannot express: decide among forced algorithms, or use 'collbench plugin'"
            )
        for rule in named:
            rows += [_row(rule, count) for count in range(rule.ranks, (rule.ranks_max or rule.ranks) + 1)]
    return rows


def _row(rule: Rule, ranks: int) -> Row:
    params = dict(rule.params)
    protocol = str(params.get("protocol", "simple"))
    if protocol not in nccl.protocols(rule.collective, rule.algorithm):
        raise UnansweredError(f"NCCL has no {rule.collective} by {rule.algorithm} with protocol {protocol}")
    nodes = -1 if not rule.ranks_per_node else -(-ranks // rule.ranks_per_node)
    last = LARGEST if rule.max_bytes is None else rule.max_bytes
    channels = int(params.get("channels", CHANNELS))
    return Row(NAMES[rule.collective], rule.min_bytes, last, rule.algorithm, protocol, channels, nodes, ranks)


def _channels(rules: Sequence[Rule]) -> int:
    stated = [int(dict(r.params)["channels"]) for r in rules if "channels" in dict(r.params)]
    return max(stated, default=CHANNELS)


def parse(text: str) -> list[Row]:
    """Return the rows of a CSV, refusing everything that the plugin would quietly misread.

    Raises:
        UsageError: an unknown word, a missing field, channels -1, a too long line, or min above max.
    """
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            if len(line.encode()) > LINE and not line.startswith("#"):
                raise UsageError(f"line {number} is longer than {LINE} bytes")
            continue
        rows.append(_parse_line(line, number))
    return rows


def _parse_line(line: str, number: int) -> Row:
    fields = line.split(",")
    if len(line.encode()) > LINE or not 8 <= len(fields) <= 10:
        raise UsageError(f"line {number} needs 8 to 10 fields in at most {LINE} bytes: {line[:60]!r}")
    try:
        numbers = [int(f) for f in (*fields[1:3], *fields[5:])]
    except ValueError:
        raise UsageError(f"line {number} holds a word where a number should stand: {line!r}") from None
    row = Row(fields[0], numbers[0], numbers[1], fields[3], fields[4], *numbers[2:])
    ours = next((name for name, native in NAMES.items() if native == row.collective), None)
    if ours is None:
        raise UsageError(
            f"line {number}: unknown collective {row.collective!r} (the plugin would take allreduce)"
        )
    if row.protocol not in nccl.protocols(ours, row.algorithm):
        raise UsageError(
            f"line {number}: NCCL has no {row.collective} by {row.algorithm} with {row.protocol}"
        )
    if row.channels < 1:
        raise UsageError(f"line {number}: channels {row.channels} would run on one channel: state a number")
    if not 0 <= row.min_bytes <= row.max_bytes <= LARGEST:
        raise UsageError(f"line {number}: {row.min_bytes} to {row.max_bytes} is not a range of sizes")
    return row


def lookup(rows: Sequence[Row], collective: str, nbytes: int, nodes: int, ranks: int) -> Row | None:
    """Return the row that the plugin applies to a call with one pipe op and unregistered buffers; None = no match."""
    native = NAMES[collective]
    for row in rows:
        if (
            row.collective == native
            and row.min_bytes <= nbytes <= row.max_bytes
            and row.nodes in (-1, nodes)
            and row.ranks in (-1, ranks)
            and row.pipe_ops in (-1, 1)
            and row.registered in (-1, 0)
        ):
            return row
    return None


def activation(path: str, _selection: Selection) -> dict[str, str]:
    """Return the environment; the plugin itself has to be built from NCCL's sources."""
    return {"NCCL_TUNER_PLUGIN": "libnccl-tuner-example.so", "NCCL_TUNER_CONFIG_FILE": path}


FORMAT = Format(
    name="nccl-tuner-csv", suffix=".csv", provider="nccl", render=render, activation=activation, cannot=CANNOT,
    keeps_default=False, summary="NCCL: CSV of the example tuner plugin",
)  # fmt: skip
