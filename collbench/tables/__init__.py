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
        activation: path of the written file and selection → environment that makes the library load it.
        cannot: what the format cannot express, one sentence each.
        keeps_default: whether "leave the library alone" can be written; False = decide without it.
        uniform: collectives for which it may hold one algorithm for all sizes only, since ranks could else disagree.
        summary: one line for ``collbench list formats``.
    """

    name: str
    suffix: str
    provider: str | None
    render: Callable[[Selection], str]
    activation: Callable[[str, Selection], dict[str, str]] = field(default=lambda _path, _selection: {})
    cannot: tuple[str, ...] = ()
    keeps_default: bool = True
    uniform: frozenset[str] = frozenset()
    summary: str = ""


FORMATS = Registry(
    "table format",
    {
        "openmpi": "collbench.tables.openmpi:FORMAT",
        "openmpi-json": "collbench.tables.openmpi_json:FORMAT",
        "mpich": "collbench.tables.mpich:FORMAT",
        "intelmpi": "collbench.tables.intelmpi:FORMAT",
        "nccl-tuner": "collbench.tables.nccl_plugin:FORMAT",
        "nccl-tuner-csv": "collbench.tables.nccl_tuner:FORMAT",
        "nccl-env": "collbench.tables.nccl_env:FORMAT",
        "ucc": "collbench.tables.ucc:FORMAT",
        "env": "collbench.tables.plain:ENV",
        "csv": "collbench.tables.plain:CSV",
        "json": "collbench.tables.plain:JSON",
        "markdown": "collbench.tables.plain:MARKDOWN",
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
