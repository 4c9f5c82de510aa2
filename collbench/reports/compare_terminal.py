"""A comparison on the terminal: what needs attention, what differs, the summary last."""

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from collbench.reports.comparison import ORDER, attention, change_words, summary, verdict_words
from collbench.units import format_percent, format_us
from collbench.verdict import SAME, Comparison, Verdict

_STYLE = dict(zip(ORDER, ("bold red", "red", "red", "yellow", "green", "dim", "dim"), strict=True))
MAX_DIFFERENCES = 12


def render(
    comparisons: Sequence[Comparison], *, width: int = 110, every: bool = True, colour: bool = False
) -> str:
    """Return the text.

    Args:
        comparisons: one or several.
        width: columns.
        every: list cells that are the same too.
        colour: with terminal colours; marks and words say the same without.
    """
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False,
                      force_terminal=colour, no_color=None if colour else True, legacy_windows=False)  # fmt: skip
    for comparison in comparisons:
        if comparison.cells:
            console.print(_table(comparison, every=every))
        for line in _notes(comparison):
            console.print(Text(line))
    for comparison in comparisons:
        style = "bold red" if comparison.status == 1 else "bold"
        console.print(Text(summary(comparison), style=style))
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def _table(comparison: Comparison, *, every: bool) -> Table:
    table = Table(title=f"{comparison.new} against {comparison.base}", title_justify="left", box=None,
                  padding=(0, 2, 0, 0))  # fmt: skip
    for name, justify in (("cell", "left"), ("base µs", "right"), ("new µs", "right"), ("change, 95 %", "right"),
                          ("n", "right"), ("sees", "right"), ("verdict", "left")):  # fmt: skip
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]  # a literal of these
    cells = attention(comparison)
    if every:
        cells += [c for c in comparison.cells if c.verdict == SAME]
    for cell in cells:
        table.add_row(*_row(cell), style=_STYLE[cell.verdict])
    return table


def _row(cell: Verdict) -> tuple[str, ...]:
    reason = f": {cell.reason}" if cell.reason else ""
    return (
        cell.cell,
        format_us(cell.base_s),
        format_us(cell.new_s),
        change_words(cell),
        str(cell.ratio.count) if cell.ratio else "–",
        format_percent(cell.detectable),
        verdict_words(cell) + reason,
    )


def _notes(comparison: Comparison) -> list[str]:
    lines = [f"differs: {d.field}: {d.base or 'absent'} → {d.new or 'absent'}"
             for d in comparison.differences[:MAX_DIFFERENCES]]  # fmt: skip
    more = len(comparison.differences) - MAX_DIFFERENCES
    if more > 0:
        lines.append(f"differs: {more} further facts (--format json lists all)")
    return [*lines, *(f"note: {remark}" for remark in comparison.remarks)]
