"""Tables for people and programs, not for a library: csv, json, markdown; and env, the settings alone."""

import csv
import io
import json

from collbench import units
from collbench.records import Rule, Selection, algorithm_label
from collbench.tables import Format, header

FIELDS = ("collective", "ranks", "ranks_max", "ranks_per_node", "min_bytes", "max_bytes", "provider", "algorithm",
          "component", "params", "basis", "gain", "gain_low", "gain_high", "sizes", "launches", "note")  # fmt: skip


def render_csv(selection: Selection) -> str:
    """Return one line a rule; an empty max_bytes means no upper end."""
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
    writer.writeheader()
    for rule in selection.rules:
        flat = rule.to_json()
        flat["params"] = json.dumps(flat["params"], sort_keys=True) if flat["params"] else ""
        writer.writerow({k: flat[k] for k in FIELDS})
    return out.getvalue()


def to_json(selection: Selection) -> dict[str, object]:
    """Return the stable JSON form of a selection."""
    return {
        "provider": selection.provider,
        "demonstration": selection.demonstration,
        "context": dict(selection.context),
        "exclusions": list(selection.exclusions),
        "rules": [rule.to_json() for rule in selection.rules],
    }


def render_json(selection: Selection) -> str:
    """Return the selection as indented JSON."""
    return json.dumps(to_json(selection), indent=1, ensure_ascii=False) + "\n"


def render_markdown(selection: Selection) -> str:
    """Return header and rules as Markdown."""
    out = [f"- {line}" for line in header.lines(selection, "total bytes")]
    out += [
        "",
        "| collective | ranks | from | to | use | over default | basis |",
        "|---|---|---|---|---|---|---|",
    ]
    out += [f"| {' | '.join(cells(rule))} |" for rule in selection.rules]
    return "\n".join(out) + "\n"


def cells(rule: Rule) -> tuple[str, ...]:
    """Return the words of one rule: collective, ranks, from, to, use, gain, basis."""
    gain = "" if rule.gain is None else units.format_percent(rule.gain, sign=True)
    if rule.gain_low is not None and rule.gain_high is not None:
        gain += f" ({rule.gain_low * 100:.0f} … {rule.gain_high * 100:.0f})"
    several = rule.ranks_max is not None and rule.ranks_max > rule.ranks
    ranks = f"{rule.ranks}–{rule.ranks_max}" if several else str(rule.ranks)
    upper = "∞" if rule.max_bytes is None else units.format_bytes(rule.max_bytes)
    label = algorithm_label(rule.algorithm, rule.params)
    return (rule.collective, ranks, units.format_bytes(rule.min_bytes), upper, label, gain, rule.basis)


def render_env(selection: Selection) -> str:
    """Return the settings that the rows were measured under as export lines."""
    out = [f"# {line}" for line in header.lines(selection, "total bytes")]
    settings = {**selection.context.get("settings", {}), **selection.context.get("needs", {})}
    return "\n".join([*out, *(f"export {k}='{v}'" for k, v in sorted(settings.items()))]) + "\n"


CSV = Format("csv", ".csv", None, render_csv, summary="the rules as CSV, for programs")
JSON = Format("json", ".json", None, render_json, summary="the rules as JSON, for programs")
MARKDOWN = Format("markdown", ".md", None, render_markdown, summary="the rules as Markdown, for people")
ENV = Format("env", ".sh", None, render_env, summary="the settings the rows were measured under")
