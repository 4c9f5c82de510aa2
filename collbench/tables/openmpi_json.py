"""Open MPI 6 and later: JSON rules, version 3. Limits inclusive, first match wins, checked by grammar only."""

import json
from typing import Any

from collbench import algorithms
from collbench.records import Rule, Selection
from collbench.tables import Format, header
from collbench.tables.coverage import communicators
from collbench.tables.openmpi import CANNOT, UNIT, native_bytes

NAMES = {"reduce_scatter": "reducescatterblock", "reduce_scatter_v": "reducescatter"}


def render(selection: Selection) -> str:
    """Return the file. JSON has no comments, so the header is a key of its own that the reader does not know."""
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
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"


def _entry(first: int, last: int | None, rules: list[Rule]) -> dict[str, Any]:
    chosen = [_message(r) for r in rules if r.algorithm != "default"]
    return {"comm_size_min": first, "comm_size_max": last, "rules": chosen}


def _message(rule: Rule) -> dict[str, Any]:
    params = dict(rule.params)
    entry: dict[str, Any] = {
        "msg_size_min": native_bytes(rule, rule.min_bytes),
        "msg_size_max": "inf" if rule.max_bytes is None else native_bytes(rule, rule.max_bytes + 1) - 1,
        "alg": rule.algorithm,
    }
    if "segment_bytes" in params:
        entry["seg_size"] = params["segment_bytes"]
    if "fanout" in params:
        entry["faninout"] = params["fanout"]
    return entry


def activation(path: str, _selection: Selection) -> dict[str, str]:
    """Return the environment that makes Open MPI read the file when it starts."""
    return {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_dynamic_rules_filename": path,
    }


FORMAT = Format(
    name="openmpi-json", suffix=".json", provider="openmpi", render=render, activation=activation, cannot=CANNOT,
    summary="Open MPI 6 and later: JSON rules (checked by grammar only)",
)  # fmt: skip
