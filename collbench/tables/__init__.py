"""Library tables: one file a format. A format renders a selection and says how the library is told to load it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from collbench.errors import UnansweredError
from collbench.records import Selection
from collbench.registry import Registry


@dataclass(frozen=True, slots=True)
class Format:
    """One table format.

    Attributes:
        name: as ``--format`` takes it.
        suffix: of the file that ``--output-dir`` writes.
        provider: whose algorithms it can hold; None = any.
        render: selection → text of the file.
        activation: path of the written file → environment that makes the library load it.
        cannot: what the format cannot express, one sentence each.
        summary: one line for ``collbench list formats``.
    """

    name: str
    suffix: str
    provider: str | None
    render: Callable[[Selection], str]
    activation: Callable[[str], dict[str, str]] = field(default=lambda _path: {})
    cannot: tuple[str, ...] = ()
    summary: str = ""


FORMATS = Registry(
    "table format",
    {
        "openmpi": "collbench.tables.openmpi:FORMAT",
    },
)
"""Format name → its ``Format``."""


def render(selection: Selection, name: str) -> str:
    """Return the text of a table.

    Raises:
        UsageError: no such format.
        UnansweredError: the selection holds no rows of the format's library, or the format cannot hold them.
    """
    chosen: Format = FORMATS[name]
    if chosen.provider is not None and chosen.provider != selection.provider:
        raise UnansweredError(
            f"format {name!r} is for {chosen.provider}, but these runs measured {selection.provider}: "
            f"measure with {chosen.provider}; a table is never translated from another library's"
        )
    return chosen.render(selection)
