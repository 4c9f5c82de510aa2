"""``collbench list``: what there is to choose from."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from collbench.cli import options
from collbench.collectives import COLLECTIVES, collective
from collbench.errors import UsageError, unknown_name
from collbench.reports import screen

Row = dict[str, Any]


@click.command()
@click.argument("thing", required=False)
@click.option("--provider", help="Algorithms of one provider only.")
@click.option("--collective", "name", help="Algorithms of one collective only.")
@click.option("--volume", is_flag=True, help="Messages and bytes of the portable algorithms, with --ranks.")
@click.option(
    "--ranks", type=options.RANKS, default=(8, 64), metavar="LIST", help="For --volume.  [default: 8,64]"
)
@options.json_option
def command(
    thing: str | None,
    provider: str | None,
    name: str | None,
    volume: bool,
    ranks: tuple[int, ...],
    as_json: bool,
) -> None:
    """List backends, collectives, algorithms, profiles, formats or importers."""
    if thing is None:
        raise UsageError(f"list what? Choose from {', '.join(THINGS)}")
    if thing not in THINGS:
        raise unknown_name("thing to list", thing, THINGS)
    if thing != "algorithms" and (provider or name or volume):
        raise UsageError("--provider, --collective and --volume belong to 'collbench list algorithms'")
    rows = _algorithms(provider, name) if thing == "algorithms" else THINGS[thing]()
    if volume:
        rows = _volume(ranks, name)
    if as_json:
        click.echo(json.dumps({thing: rows}, ensure_ascii=False))
        return
    for title in dict.fromkeys(_title(row) for row in rows):
        shown = [row for row in rows if _title(row) == title]
        if volume:
            _print(f"{title}: by the busiest rank, in units of S", [_volume_row(row) for row in shown])
            screen.emit(screen.console(), screen.notes_list(_remarks(shown)), "")
        else:
            _print(title, shown)


_ONCE = ("provider", "collective")
"""Columns of an algorithm list that stand above the rows instead of in each."""
_LONG = ("family", "textbook", "params", "limits", "also_called", "measures", "description", "reads", "what")
"""Columns that may wrap; names never do."""


def _title(row: Mapping[str, Any]) -> str:
    return " ".join(str(row[key]) for key in _ONCE if key in row) if "algorithm" in row else ""


def _print(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table; under a title it holds neither what the title says nor empty columns."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    columns = [
        key for key in rows[0] if not (title and (key in _ONCE or not any(_text(row[key]) for row in rows)))
    ]
    for column in columns:
        numbers = all(isinstance(row[column], int | float) or row[column] is None for row in rows)
        last = column == columns[-1]
        table.add_column(column.replace("_", " "), justify="right" if numbers else "left",
                         no_wrap=not last and column not in _LONG, overflow="fold")  # fmt: skip
    for row in rows:
        table.add_row(*(_text(row[column]) for column in columns))
    screen.emit(
        screen.console(), *([Text(title, style="bold")] if title else []), table, *([""] if title else [])
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def _backends() -> list[Row]:
    from collbench.backends import BACKENDS  # noqa: PLC0415 - each list imports only what it shows

    told = {
        "mpi": "MPI processes that collbench starts itself, any MPI library",
        "nccl": "NCCL on GPUs, in process (extra nccl)",
        "nccl-tests": "the user's own nccl-tests or rccl-tests binaries",
    }
    return [{"backend": name, "measures": told.get(name, "")} for name in BACKENDS]


def _collectives() -> list[Row]:
    """Return the collectives; ``busbw_8`` is the busbw factor on 8 ranks, ``blocks``: S = ranks × a block."""
    return [
        {
            "collective": row.name,
            "busbw_8": None if row.busbw_factor is None else row.busbw_factor(8),
            "rooted": row.rooted,
            "reduces": row.reduces,
            "blocks": row.per_rank,
            "nccl": row.nccl,
            "also_called": list(row.aliases),
        }
        for row in COLLECTIVES.values()
    ]


def _algorithms(provider: str | None, name: str | None) -> list[Row]:
    from collbench.algorithms import TABLES, algorithms  # noqa: PLC0415

    if provider is not None and provider not in TABLES:
        raise unknown_name("provider", provider, TABLES)
    wanted = collective(name).name if name else None
    return [
        {
            "provider": row.provider, "collective": row.collective, "algorithm": row.name, "id": row.native_id,
            "family": row.family, "since": ".".join(map(str, row.since)) if row.since else None,
            "params": [key for key, _ in row.params], "limits": [limit.replace("_", " ") for limit in row.limits],
        }
        for one in ([provider] if provider else TABLES)
        for row in algorithms(one, wanted)
    ]  # fmt: skip


def _volume(ranks: Sequence[int], name: str | None) -> list[Row]:
    from collbench.portable import volume  # noqa: PLC0415

    wanted = collective(name).name if name else None
    return [row for row in map(dict, volume.table(ranks)) if wanted is None or row["collective"] == wanted]


def _volume_row(row: Mapping[str, Any]) -> Row:
    """Return what fits a line of the volume table."""
    return {
        "algorithm": row["algorithm"], "ranks": row["ranks"], "msgs": row["messages_busiest"],
        "sent": row["sent_busiest"], "recvd": row["received_busiest"], "all": row["total"], "textbook": row["textbook"],
    }  # fmt: skip


def _remarks(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line for each algorithm whose textbook shorthand misleads or needs a word."""
    said = {row["algorithm"]: row["remark"] for row in rows if row["remark"]}
    said |= {row["algorithm"]: f"moves {row['textbook_value']:.4g}·S by the textbook, not here" for row in rows
             if row["agrees"] is False and not row["remark"]}  # fmt: skip
    return [f"{algorithm}: {remark}" for algorithm, remark in said.items()]


def _profiles() -> list[Row]:
    from collbench import profile  # noqa: PLC0415

    loaded = {name: profile.load(name) for name in profile.shipped()}
    return [
        {"profile": name, "backend": one.backend, "description": one.description}
        for name, one in loaded.items()
    ]


def _formats() -> list[Row]:
    from collbench.tables import FORMATS  # noqa: PLC0415

    return [
        {"format": name, "provider": FORMATS[name].provider or "any", "what": FORMATS[name].summary}
        for name in FORMATS
    ]


def _importers() -> list[Row]:
    from collbench import importers  # noqa: PLC0415

    return [{"importer": name, "reads": importers.FORMATS[name].summary} for name in importers.FORMATS]


THINGS: dict[str, Callable[[], list[Row]]] = {
    "backends": _backends,
    "collectives": _collectives,
    "algorithms": lambda: _algorithms(None, None),
    "profiles": _profiles,
    "formats": _formats,
    "importers": _importers,
}
"""What can be listed → its rows."""
