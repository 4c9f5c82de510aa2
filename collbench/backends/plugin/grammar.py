"""The plugin's table as text: rendering and parsing. The C parser (``table.c``) follows the same grammar.

Grammar (docs/nccl.md)::

    collbench-nccl-table 1
    measured nccl|net|driver VERSION
    rule COLLECTIVE BYTES RANKS NODES ALGORITHM PROTOCOL CHANNELS

A range is ``N``, ``N-M`` (both ends inclusive), ``N-`` (no upper end) or ``*``. ``#`` starts a comment.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from collbench.algorithms.nccl import PROTOCOLS, TUNABLE, protocols
from collbench.errors import UsageError

FIRST_LINE = "collbench-nccl-table 1"
MEASURED = ("nccl", "net", "driver")
"""What a table may say about the machine it was measured on; the plugin warns where it differs."""
TABLE_VARIABLE = "COLLBENCH_NCCL_TABLE"
MAX_CHANNELS = 64
"""NCCL's own limit (MAXCHANNELS)."""
_LARGEST = 2**64 - 1
_VERSION = re.compile(r"[^\s#\0]{1,127}")
_BLANKS = re.compile(r"[ \t\r]+")

Range = tuple[int, int | None]
ANY: Range = (0, None)


@dataclass(frozen=True, slots=True)
class TunerRule:
    """One line of the table.

    Attributes:
        collective: allreduce, bcast, reduce, allgather or reduce_scatter.
        nbytes: first and last size (total bytes, inclusive); a last of None = no upper end.
        ranks: first and last number of ranks of the communicator.
        nodes: first and last number of nodes of the communicator.
        algorithm: NCCL's word in lower case (ring, tree, nvls …), or ``default`` = leave NCCL alone.
        protocol: ll, ll128 or simple; None with ``default``.
        channels: number of channels; None = NCCL's own choice.
    """

    collective: str
    nbytes: Range
    ranks: Range
    nodes: Range
    algorithm: str
    protocol: str | None = None
    channels: int | None = None


@dataclass(frozen=True, slots=True)
class TunerTable:
    """A whole table: its rules, and name → version of what they were measured under."""

    rules: tuple[TunerRule, ...]
    measured: Mapping[str, str] = field(default_factory=dict)


def render(
    rules: Iterable[TunerRule], measured: Mapping[str, str] | None = None, header: Iterable[str] = ()
) -> str:
    """Return the text of a table.

    Args:
        rules: in any order; no two may cover the same call.
        measured: versions it was measured under, keys of MEASURED.
        header: lines of comment.

    Raises:
        UsageError: a rule that NCCL cannot follow, an overlap, or a version with blanks in it.
    """  # fmt: skip
    kept = tuple(rules)
    lines = [FIRST_LINE, *(f"# {' '.join(line.split())}".rstrip() for line in header)]
    for name, version in sorted((measured or {}).items()):
        _check_measured(name, version, "the table")
        lines.append(f"measured {name} {version}")
    _check(kept)
    lines.extend(_line(rule) for rule in kept)
    return "\n".join(lines) + "\n"


def parse(text: str, source: str = "the table") -> TunerTable:
    """Return the table written in ``text``.

    Raises:
        UsageError: the first fault, with ``source`` and the line's number.
    """
    lines = text.split("\n")
    if _words(lines[0]) != FIRST_LINE.split():
        raise UsageError(f"{source}, line 1: a table starts with {FIRST_LINE!r}")
    rules, measured = [], {}
    for number, line in enumerate(lines[1:], start=2):
        words = _words(line)
        where = f"{source}, line {number}"
        if "\0" in line:
            raise UsageError(f"{where}: a NUL byte")
        if not words:
            continue
        if words[0] == "rule" and len(words) == 8:
            rules.append(_rule(words, where))
            _check_one(rules[-1], where)
        elif words[0] == "measured" and len(words) == 3:
            _check_measured(words[1], words[2], where)
            measured[words[1]] = words[2]
        else:
            raise UsageError(
                f"{where}: {' '.join(words)[:80]!r} is neither 'measured NAME VERSION' nor a rule of 8 words"
            )
    _check(tuple(rules), source)
    return TunerTable(tuple(rules), measured)


def find(table: TunerTable, collective: str, nbytes: int, ranks: int, nodes: int) -> TunerRule | None:
    """Return the rule for one call; None where NCCL's own choice stays."""
    for rule in table.rules:
        if rule.collective == collective and all(
            _inside(value, span)
            for value, span in ((nbytes, rule.nbytes), (ranks, rule.ranks), (nodes, rule.nodes))
        ):
            return rule
    return None


def _words(line: str) -> list[str]:
    return [word for word in _BLANKS.split(line.split("#", maxsplit=1)[0]) if word]


def _inside(value: int, span: Range) -> bool:
    return span[0] <= value and (span[1] is None or value <= span[1])


def _line(rule: TunerRule) -> str:
    words = (_range(rule.nbytes), _range(rule.ranks), _range(rule.nodes), rule.algorithm, rule.protocol or "-",
             "-" if rule.channels is None else str(rule.channels))  # fmt: skip
    return " ".join(("rule", rule.collective, *words))


def _range(span: Range) -> str:
    first, last = span
    if last is None:
        return "*" if first == 0 else f"{first}-"
    return str(first) if first == last else f"{first}-{last}"


def _rule(words: list[str], where: str) -> TunerRule:
    _, collective, nbytes, ranks, nodes, algorithm, protocol, channels = words
    if channels != "-" and not re.fullmatch(r"[0-9]+", channels):
        raise UsageError(f"{where}: channels {channels!r} is neither a number nor '-'")
    return TunerRule(
        collective,
        _parse_range(nbytes, where),
        _parse_range(ranks, where),
        _parse_range(nodes, where),
        algorithm,
        None if protocol == "-" else protocol,
        None if channels == "-" else int(channels),
    )


def _parse_range(word: str, where: str) -> Range:
    if word == "*":
        return ANY
    match = re.fullmatch(r"([0-9]+)(?:(-)([0-9]+)?)?", word)
    if match is None:
        raise UsageError(f"{where}: {word!r} is not a range: write N, N-M, N- or *")
    first = int(match[1])
    last = first if match[2] is None else (int(match[3]) if match[3] else None)
    if first > _LARGEST or (last is not None and (last > _LARGEST or last < first)):
        raise UsageError(f"{where}: the range {word!r} ends below its start or does not fit 64 bits")
    return first, last


def _check_measured(name: str, version: str, where: str) -> None:
    if name not in MEASURED or not _VERSION.fullmatch(version):
        raise UsageError(
            f"{where}: 'measured {name} {version}' needs one of {', '.join(MEASURED)} and a version"
        )


def _check_one(rule: TunerRule, where: str) -> None:
    if rule.collective not in TUNABLE:
        raise UsageError(f"{where}: collective {rule.collective!r} is not one of {', '.join(TUNABLE)}")
    if rule.algorithm == "default":
        if rule.protocol is not None or rule.channels is not None:
            raise UsageError(f"{where}: 'default' leaves NCCL alone and takes neither protocol nor channels")
        return
    valid = protocols(rule.collective, rule.algorithm)
    if not valid:
        raise UsageError(f"{where}: NCCL has no algorithm {rule.algorithm!r} for {rule.collective}")
    if rule.protocol not in valid:
        known = rule.protocol in PROTOCOLS
        problem = "cannot run with" if known else "has no"
        raise UsageError(
            f"{where}: {rule.collective} {rule.algorithm} {problem} protocol {rule.protocol!r}: {', '.join(valid)}"
        )
    if rule.channels is not None and not 1 <= rule.channels <= MAX_CHANNELS:
        raise UsageError(f"{where}: channels {rule.channels} is not from 1 to {MAX_CHANNELS}")


def _check(rules: tuple[TunerRule, ...], source: str = "the table") -> None:
    """Refuse rules that NCCL cannot follow and rules that cover the same call."""
    groups: dict[tuple[str, Range, Range], list[TunerRule]] = {}
    for rule in rules:
        _check_one(rule, source)
        groups.setdefault((rule.collective, rule.ranks, rule.nodes), []).append(rule)
    for group in groups.values():
        group.sort(key=lambda r: r.nbytes[0])
        for one, two in itertools.pairwise(group):
            _refuse_overlap(one, two, source)
    shapes = list(groups)
    for index, shape in enumerate(shapes):
        for other in shapes[index + 1 :]:
            if shape[0] == other[0] and _meet(shape[1], other[1]) and _meet(shape[2], other[2]):
                for one in groups[shape]:
                    for two in groups[other]:
                        _refuse_overlap(one, two, source)


def _refuse_overlap(one: TunerRule, two: TunerRule, source: str) -> None:
    if _meet(one.nbytes, two.nbytes):
        raise UsageError(f"{source}: two rules cover the same call: {_line(one)!r} and {_line(two)!r}")


def _meet(one: Range, two: Range) -> bool:
    return (two[1] is None or one[0] <= two[1]) and (one[1] is None or two[0] <= one[1])
