"""The header of a table: what it came from, how it is activated, what it cannot say."""

from collections.abc import Sequence

from collbench import __version__
from collbench.records import Selection


def lines(selection: Selection, unit: str, cannot: Sequence[str] = ()) -> list[str]:
    """Return the header's lines without comment signs.

    Args:
        selection: the decision.
        unit: one sentence on what the format's sizes count.
        cannot: what the format cannot express.
    """
    context = selection.context
    library = " ".join(str(v) for v in (context.get("library"), context.get("library_version")) if v)
    facts = [
        f"collbench {__version__} table for {library or selection.provider}",
        f"from: {_join(context.get('runs'))}",
        f"thread level {_join(context.get('thread_level'))}, memory {_join(context.get('memory'))}",
        f"dtype {_join(context.get('dtype'))}, nodes {_join(context.get('nodes'))}",
        f"ranks {_join(context.get('ranks'))}, ranks per node {_join(context.get('ranks_per_node'))}",
        f"measured under: {_settings(context.get('settings'))}",
        f"needs beside it: {_settings(context.get('needs'))}",
        f"margin over the default {context.get('margin', 0):.1%}, allowance {context.get('allowance', 0):.1%}",
        f"sizes: {unit}",
    ]
    if selection.demonstration:
        facts.append(f"DEMONSTRATION ONLY: {selection.demonstration}")
    facts.extend(f"cannot say: {what}" for what in cannot)
    return [_one_line(fact) for fact in facts]


def _join(value: object) -> str:
    if value is None or value == []:
        return "unknown"
    return ", ".join(str(v) for v in value) if isinstance(value, list | tuple) else str(value)


def _settings(value: object) -> str:
    if not isinstance(value, dict) or not value:
        return "none"
    return " ".join(f"{k}={v}" for k, v in sorted(value.items()))


def _one_line(text: str) -> str:
    """Return the text as one printable line, so that no value can open a line of its own in a table."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
