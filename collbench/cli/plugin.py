"""``collbench plugin``: build collbench's NCCL tuner plugin, or say where it is."""

import json
from pathlib import Path

import click

from collbench.backends.plugin import build as building
from collbench.backends.plugin.grammar import TABLE_VARIABLE
from collbench.cli import options as opt
from collbench.errors import UsageError


@click.group()
def command() -> None:
    """Build or find collbench's NCCL tuner plugin: it applies a table where a rule matches, and nothing elsewhere."""


@command.command()
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File to write (default: the user's cache)."
)
@click.option("--force", is_flag=True, help="Replace an existing --output.")
@opt.json_option
def build(output: Path | None, force: bool, as_json: bool) -> int:
    """Compile the plugin with the C compiler; neither CUDA nor NCCL is needed."""
    if output and output.is_file() and not force:
        raise UsageError(f"{output} exists: choose another -o, or replace it with --force")
    _show(building.build(output), as_json=as_json)
    return 0


@command.command()
@opt.json_option
def path(as_json: bool) -> int:
    """Print the path of the plugin that was built, for NCCL_TUNER_PLUGIN."""
    found = building.built_path()
    if as_json:
        _show(found, as_json=True)
    else:
        click.echo(str(found))
    return 0


def _show(library: Path, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"path": str(library), "environment": building.activation(library, "TABLE")}))
        return
    click.echo(str(library))
    click.echo(f"use it: NCCL_TUNER_PLUGIN={library} {TABLE_VARIABLE}=TABLE", err=True)
