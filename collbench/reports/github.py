"""A comparison as GitHub Actions workflow commands: an annotation per cell that needs attention.

Grammar and escapes: GitHub's "Workflow commands" page and actions/toolkit ``command.ts``.
"""

from collections.abc import Sequence

from collbench.reports.comparison import attention, sentence, summary
from collbench.verdict import ADDED, FAILED, FASTER, INCONCLUSIVE, MISSING, SLOWER, Comparison

_LEVEL = {
    SLOWER: "error",
    FAILED: "error",
    MISSING: "error",
    INCONCLUSIVE: "warning",
    FASTER: "notice",
    ADDED: "notice",
}
MAX_ANNOTATIONS = 10
"""GitHub shows ten annotations of a level per step; the rest is counted in one line."""


def render(comparisons: Sequence[Comparison]) -> str:
    """Return the commands, and the summary of each comparison as a plain last line."""
    lines = [line for comparison in comparisons for line in _annotations(comparison)]
    return "\n".join([*lines, *(summary(c).replace("\n", " ") for c in comparisons)]) + "\n"


def _annotations(comparison: Comparison) -> list[str]:
    lines: list[str] = []
    given: dict[str, int] = {}
    for cell in attention(comparison):
        level = _LEVEL[cell.verdict] if comparison.gate else "notice"
        given[level] = given.get(level, 0) + 1
        if given[level] < MAX_ANNOTATIONS:
            lines.append(command(level, f"collbench {cell.verdict}", sentence(cell)))
    for level, count in given.items():
        if count >= MAX_ANNOTATIONS:
            text = f"{count - MAX_ANNOTATIONS + 1} further cells: see the other formats"
            lines.append(command(level, "collbench", text))
    if comparison.status == 3:
        lines.append(command("error", "collbench cannot say", summary(comparison)))
    return lines


def command(level: str, title: str, message: str) -> str:
    """Return ``::error title=…::…`` with GitHub's escapes."""
    return f"::{level} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
