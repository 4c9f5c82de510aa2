"""A comparison as GitHub Actions workflow commands: an annotation per cell that needs attention.

Grammar and escapes: GitHub's "Workflow commands" page and actions/toolkit ``command.ts``.
"""

from collections.abc import Sequence

from collbench.reports.comparison import ORDER, attention, sentence, summary
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
"""GitHub keeps the first ten annotations of a level per step, over all comparisons; the rest is counted in one line."""


def render(comparisons: Sequence[Comparison]) -> str:
    """Return the commands, the worst first, and the summary of each comparison as a plain last line."""
    lines = [*_doubts(comparisons), *_changes(comparisons)]
    kept: list[str] = []
    for level in ("error", "warning", "notice"):
        mine = [text for own, text in lines if own == level]
        if len(mine) > MAX_ANNOTATIONS:
            further = len(mine) - MAX_ANNOTATIONS + 1
            mine = [*mine[: MAX_ANNOTATIONS - 1],
                    command(level, "collbench", f"{further} further annotations: see the other formats")]  # fmt: skip
        kept += mine
    return "\n".join([*kept, *(_plain(summary(c)) for c in comparisons)]) + "\n"


def _doubts(comparisons: Sequence[Comparison]) -> list[tuple[str, str]]:
    """Return an error for each comparison that cannot be answered: it must never be crowded out by its cells."""
    return [
        ("error", command("error", "collbench cannot say", summary(c))) for c in comparisons if c.status == 3
    ]


def _changes(comparisons: Sequence[Comparison]) -> list[tuple[str, str]]:
    found = []
    for comparison in comparisons:
        for rank, cell in enumerate(attention(comparison)):
            level = _LEVEL[cell.verdict] if comparison.gate else "notice"
            text = command(level, f"collbench {cell.verdict}", sentence(cell))
            found.append((ORDER.index(cell.verdict), rank, level, text))
    found.sort(key=lambda x: x[:2])
    return [(level, text) for _, _, level, text in found]


def command(level: str, title: str, message: str) -> str:
    """Return ``::error title=…::…`` with GitHub's escapes."""
    return f"::{level} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _plain(text: str) -> str:
    """Return a line that the runner takes for no command: those begin with ``::``, or hold ``##[`` (the older form)."""
    text = " ".join(text.split())
    return (f"- {text}" if text.startswith("::") else text).replace("##[", "# #[")
