"""The terminal that every command prints tables and notes to; imports nothing heavy."""

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Return a console that neither highlights numbers nor reads markup in names (NO_COLOR is honoured)."""
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def emit(target: Console, *things: RenderableType) -> None:
    """Print things without the blanks that fill table rows up to their width."""
    with target.capture() as capture:
        for thing in things:
            target.print(thing)
    target.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def notes_list(sentences: Sequence[str]) -> Table:
    """Return notes as bullets with hanging indent; what failed or ran as something else stands out."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    for sentence in sentences:
        grave = sentence.startswith(("FAILED", "NOT "))
        grid.add_row("•", Text(sentence, style="red" if grave else ""))
    return grid
