"""A comparison as GitHub-flavoured Markdown, for a comment on a merge request or a job summary."""

from collections.abc import Iterable, Sequence

from collbench.reports.comparison import attention, change_words, summary, verdict_words
from collbench.units import format_percent, format_us
from collbench.verdict import SAME, Comparison

_HEAD = ("cell", "base µs", "new µs", "change (95 %)", "launches", "would see", "verdict")


def render(comparisons: Sequence[Comparison]) -> str:
    """Return a section per comparison: cells that need attention, the same ones folded, what differs, the summary."""
    return "\n".join(line for comparison in comparisons for line in _section(comparison))


def _section(comparison: Comparison) -> list[str]:
    lines = [f"### {_text(comparison.new)} against {_text(comparison.base)}", ""]
    found = attention(comparison)
    if found:
        lines += [*_table(_cells(comparison, same=False)), ""]
    if comparison.count(SAME):
        title = f"{comparison.count(SAME)} cells are the same within {comparison.rules.threshold:.0%}"
        lines += [f"<details><summary>{title}</summary>", ""]
        lines += [*_table(_cells(comparison, same=True)), "", "</details>", ""]
    if comparison.differences:
        rows = [(d.field, d.base or "absent", d.new or "absent") for d in comparison.differences]
        lines += ["What differs:", "", *_table(rows, ("fact", "base", "new")), ""]
    lines += [f"- {_text(remark)}" for remark in comparison.remarks]
    return [*lines, "", f"**{_text(summary(comparison))}**", ""]


def _cells(comparison: Comparison, *, same: bool) -> list[tuple[str, ...]]:
    cells = [c for c in comparison.cells if c.verdict == SAME] if same else attention(comparison)
    return [
        (c.cell, format_us(c.base_s), format_us(c.new_s), change_words(c), str(c.ratio.count) if c.ratio else "–",
         format_percent(c.detectable), verdict_words(c) + (f": {c.reason}" if c.reason else ""))
        for c in cells
    ]  # fmt: skip


def _table(rows: Iterable[Sequence[str]], head: Sequence[str] = _HEAD) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(_text(word) for word in row) + " |" for row in rows]


def _text(word: str) -> str:
    """Keep a value from being read as markup: bars, angle brackets, asterisks, underscores, line ends."""
    for character in "\\|*_`[]":
        word = word.replace(character, "\\" + character)
    return word.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
