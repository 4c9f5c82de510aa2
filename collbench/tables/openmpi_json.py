"""Open MPI 6 and later: JSON rules, version 3. Limits inclusive, first match wins; unknown keys are ignored.

Read and run on 6.0.0a1: a collective that the reader does not know drops the whole file, or crashes MPI_Init where it
follows another one; a limit of ``null`` too. Errors are printed from ``coll_tuned_verbose`` 1 on. ``parse`` reads every
rendered text again. Source: coll_tuned_dynamic_file.c, coll_tuned_dynamic_rules.c of 6.0.
"""

import json
from typing import Any

from collbench import algorithms
from collbench.errors import UsageError
from collbench.records import Rule, Selection
from collbench.tables import Format, header
from collbench.tables.coverage import communicators
from collbench.tables.openmpi import CANNOT, UNIFORM, UNIT, activation, check_uniform

NAMES = {"reduce_scatter": "reduce_scatter_block", "reduce_scatter_v": "reduce_scatter"}
"""Collective → the reader's word where the two differ. (The published schema has other words; they do not load.)"""
WORDS = {("allgather", "bruck"): "bruck-k-fanout"}
"""(collective, algorithm) → name of the same number in 6.0."""
FANOUTS = {("allgather", "bruck"): 4}
"""Fan-out that a forced algorithm has by default; without one of at least 2 this algorithm never ends."""

LARGEST = 2**62
Message = tuple[int, int, str]
"""(first size, last, our name of the algorithm)."""
Entry = tuple[int, int, list[Message]]
"""(first communicator size, last, message rules in order)."""


def render(selection: Selection) -> str:
    """Return the file. JSON has no comments, so the header is a key of its own that the reader does not know.

    Raises:
        UnansweredError: one rank count was measured with several shapes, or rules that ranks could read differently.
    """
    collectives: dict[str, list[dict[str, Any]]] = {}
    for name in dict.fromkeys(r.collective for r in selection.rules):
        if not algorithms.algorithms("openmpi", name):
            continue
        spans = communicators([r for r in selection.rules if r.collective == name])
        entries = [_entry(first, last, own) for first, last, own in spans if own]
        collectives[NAMES.get(name, name)] = [e for e in entries if e["rules"]]
    table = {
        "rule_file_version": 3,
        "module": "tuned",
        "collectives": {k: v for k, v in collectives.items() if v},
        "comment": header.lines(selection, UNIT, CANNOT),
    }
    text = json.dumps(table, indent=1, ensure_ascii=False) + "\n"
    parse(text)
    return text


def _entry(first: int, last: int | None, rules: list[Rule]) -> dict[str, Any]:
    check_uniform(rules[0].collective, rules)
    limits = {"comm_size_min": first} if last is None else {"comm_size_min": first, "comm_size_max": last}
    return {**limits, "rules": [_message(r) for r in rules if r.algorithm != "default"]}


def _message(rule: Rule) -> dict[str, Any]:
    key, params = (rule.collective, rule.algorithm), dict(rule.params)
    entry: dict[str, Any] = {
        "msg_size_min": rule.min_bytes,
        "msg_size_max": "inf" if rule.max_bytes is None else rule.max_bytes,
        "alg": WORDS.get(key, rule.algorithm),
    }
    if "segment_bytes" in params:
        entry["seg_size"] = params["segment_bytes"]
    fanout = params.get("fanout", FANOUTS.get(key))
    if fanout is not None:
        entry["faninout"] = fanout
    return entry


def parse(text: str) -> dict[str, list[Entry]]:
    """Return collective (ours) → entries, read as strictly as is safe: what the library would drop or crash on is refused.

    Raises:
        UsageError: no JSON, a collective or a limit that the reader does not take.
    """
    try:
        table = json.loads(text)
    except ValueError as error:
        raise UsageError(f"not an Open MPI JSON rules file: {error}") from None
    ours = {native: name for name, native in NAMES.items()}
    known = {NAMES.get(row.collective, row.collective) for row in algorithms.algorithms("openmpi")}
    found: dict[str, list[Entry]] = {}
    collectives = table.get("collectives") if isinstance(table, dict) else None
    for native, entries in (collectives or {}).items():
        if native not in known:
            raise UsageError(
                f"Open MPI's reader knows no collective {native!r}: it would drop the file or crash"
            )
        name = ours.get(native, native)
        found[name] = [
            (
                _limit(entry, "comm_size_min", 0),
                _limit(entry, "comm_size_max", LARGEST),
                [_read(name, rule) for rule in entry["rules"]],
            )
            for entry in entries
        ]
    return found


def _read(collective: str, rule: dict[str, Any]) -> Message:
    back = {(c, word): name for (c, name), word in WORDS.items()}
    algorithm = back.get((collective, rule["alg"]), str(rule["alg"]))
    return _limit(rule, "msg_size_min", 0), _limit(rule, "msg_size_max", LARGEST), algorithm


def _limit(entry: dict[str, Any], key: str, missing: int) -> int:
    value = entry.get(key, missing)
    if value == "inf" and key.startswith("msg"):
        return LARGEST
    if not isinstance(value, int):
        raise UsageError(f"{key} {value!r} is no limit that Open MPI's reader takes")
    return value


FORMAT = Format(
    name="openmpi-json", suffix=".json", provider="openmpi", render=render, activation=activation, cannot=CANNOT,
    uniform=UNIFORM, summary="Open MPI 6 and later: JSON rules",
)  # fmt: skip
