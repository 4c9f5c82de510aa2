"""Open MPI's classic rules file, right for 4.1 and 5.0.

Grammar: whitespace-separated integers, ``#`` comments: number of collectives; for each its id and number of communicator
sizes; for each of those the size and number of message rules; for each of those ``bytes algorithm fanout segment``. An
entry holds from its communicator size up to the next entry; the first message rule starts at 0; algorithm 0 is the
built-in decision. Source: coll_tuned_dynamic_file.c of 4.1 and 5.0. A broken file is ignored without a message, hence
``parse``, with which every rendered text is read again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from collbench import algorithms
from collbench.algorithms.openmpi import RULES_FILE_IDS
from collbench.errors import UnansweredError, UsageError
from collbench.records import Rule, Selection
from collbench.tables import Format, header
from collbench.tables.coverage import communicators

SMALLEST = 2
"""Smallest communicator worth an entry."""
FIRST_JSON = 6
"""First version that shifts classic files by one row and so needs the JSON format."""
UNIT = (
    "bytes as coll_tuned counts them: the vector for allreduce, bcast, reduce; per-rank block x ranks for allgather, "
    "reduce_scatter_block, alltoall, gather, scatter"
)
CANNOT = (
    "ranks per node or placement: the table is right for the shape above only",
    "thread level, memory kind, data type",
    "in-place calls: allgather and alltoall then count as 0 bytes where the send count is 0",
    "gather, scatter by size: ranks take it from their own send counts, which need not agree, and could choose differently",
)
UNIFORM = frozenset({"gather", "scatter"})
"""Collectives whose size coll_tuned takes from arguments that count at one rank only: the send count of scatter (ignored
by MPI at all ranks but the root), that of gather with MPI_IN_PLACE at the root. Source: the dec_dynamic functions of 4.1,
5.0 and 6.0; scatter of an mpi4py program under a file with two algorithms corrupts memory on 4.1.4 and 5.0.11."""


@dataclass(frozen=True, slots=True)
class MessageRule:
    """One line of a rules file: from ``nbytes`` on algorithm ``number`` with fan-out and segment size."""

    nbytes: int
    number: int
    fanout: int = 0
    segment: int = 0
    comment: str = ""


def render(selection: Selection) -> str:
    """Return the file.

    Raises:
        UnansweredError: for Open MPI 6 and later, or where one rank count was measured with several shapes.
    """
    version = str(selection.context.get("library_version") or "")
    if version.split(".", maxsplit=1)[0].isdigit() and int(version.partition(".")[0]) >= FIRST_JSON:
        raise UnansweredError(
            f"Open MPI {version} reads classic rules files shifted by one row: use --format openmpi-json"
        )
    blocks = {
        name: _communicators([r for r in selection.rules if r.collective == name])
        for name in dict.fromkeys(r.collective for r in selection.rules)
        if name in RULES_FILE_IDS
    }
    out = [f"# {line}" for line in header.lines(selection, UNIT, CANNOT)]
    out.append(f"{len(blocks)}  # collectives")
    for name, entries in sorted(blocks.items(), key=lambda item: RULES_FILE_IDS[item[0]]):
        out.append(f"{RULES_FILE_IDS[name]}  # {name}")
        out.append(f"{len(entries)}  # communicator sizes")
        for ranks, rows in entries:
            out.append(f"{ranks} {len(rows)}  # {ranks} ranks and more, {len(rows)} message rules")
            out.extend(f"{r.nbytes} {r.number} {r.fanout} {r.segment}  # {r.comment}" for r in rows)
    text = "\n".join(out) + "\n"
    parse(text)
    return text


def _communicators(rules: Sequence[Rule]) -> list[tuple[int, list[MessageRule]]]:
    """Return (communicator size, message rules), with built-in entries where nothing was decided."""
    builtin = [MessageRule(0, 0, comment="built-in: not measured")]
    spans = [span for span in communicators(rules) if span[1] is None or span[1] >= SMALLEST]
    return [(max(first, SMALLEST), _messages(own) or builtin) for first, _last, own in spans]


def _messages(rules: Sequence[Rule]) -> list[MessageRule]:
    """Return the lines of one rank count."""
    if rules:
        check_uniform(rules[0].collective, rules)
    return [_message(rule) for rule in rules]


def _message(rule: Rule) -> MessageRule:
    if rule.algorithm == "default":
        return MessageRule(rule.min_bytes, 0, comment=f"built-in ({rule.basis})")
    row = algorithms.find("openmpi", rule.collective, rule.algorithm)
    assert row.native_id is not None
    params = dict(rule.params)
    segment, fanout = params.pop("segment_bytes", 0), params.pop("fanout", 0)
    if params:
        raise UnansweredError(
            f"{rule.collective} {rule.algorithm}: a classic rules file cannot hold {', '.join(sorted(params))}"
        )
    gain = "" if rule.gain is None else f" {rule.gain:+.1%} over the default"
    return MessageRule(
        rule.min_bytes,
        row.native_id,
        int(fanout),
        int(segment),
        f"{rule.algorithm} ({rule.basis}){gain}",
    )


def check_uniform(name: str, rules: Sequence[Rule]) -> None:
    """Refuse rules of one rank count that would let ranks choose differently.

    Raises:
        UnansweredError: several algorithms for a collective of ``UNIFORM``.
    """
    if name in UNIFORM and len({(r.algorithm, r.component, r.params) for r in rules}) > 1:
        raise UnansweredError(
            f"{name} at {rules[0].ranks} ranks has several algorithms, by size: Open MPI's ranks could choose differently "
            "and hang, so one must serve all sizes"
        )


def parse(text: str) -> dict[int, list[tuple[int, list[MessageRule]]]]:
    """Return collective id → (communicator size, message rules), read as strictly as the library does.

    Raises:
        UsageError: counts that do not fit the rows, a first message size other than 0, or sizes not ascending.
    """
    numbers = iter([word for line in text.splitlines() for word in line.split("#")[0].split()])

    def number(what: str) -> int:
        word = next(numbers, None)
        if word is None or not word.isdigit():
            raise UsageError(f"not an Open MPI rules file: {word!r} where the {what} should stand")
        return int(word)

    table: dict[int, list[tuple[int, list[MessageRule]]]] = {}
    for _ in range(number("number of collectives")):
        collective = number("collective id")
        entries = []
        for _ in range(number("number of communicator sizes")):
            size = number("communicator size")
            rows = [
                MessageRule(
                    number("message size"), number("algorithm"), number("fan-out"), number("segment size")
                )
                for _ in range(number("number of message rules"))
            ]
            sizes = [row.nbytes for row in rows]
            if not rows or sizes[0] != 0 or sizes != sorted(set(sizes)):
                raise UsageError(
                    f"an Open MPI rules file must list sizes ascending from 0, not {sizes} "
                    f"(collective {collective}, {size} ranks): Open MPI would ignore the whole file"
                )
            entries.append((size, rows))
        if [size for size, _ in entries] != sorted({size for size, _ in entries}):
            raise UsageError(f"communicator sizes of collective {collective} are not ascending")
        table[collective] = entries
    if next(numbers, None) is not None:
        raise UsageError("an Open MPI rules file must end with its last rule: more numbers follow")
    return table


def lookup(text: str, collective: str, ranks: int, nbytes: int) -> MessageRule | None:
    """Return the rule the library applies, with ``nbytes`` in the library's unit; None for the built-in decision."""
    entries = parse(text).get(RULES_FILE_IDS[collective], [])
    if not entries:
        return None
    rows = next((rows for size, rows in reversed(entries) if size <= ranks), entries[0][1])
    row = next(r for r in reversed(rows) if r.nbytes <= nbytes)
    return row if row.number else None


def activation(path: str, selection: Selection) -> dict[str, str]:
    """Return the environment that makes Open MPI read the file when it starts, with the settings it needs."""
    return {
        **selection.context.get("needs", {}),
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_dynamic_rules_filename": path,
    }


FORMAT = Format(
    name="openmpi",
    suffix=".conf",
    provider="openmpi",
    render=render,
    activation=activation,
    cannot=CANNOT,
    uniform=UNIFORM,
    summary="Open MPI 4.1 and 5.0: classic rules file",
)
