"""``collbench baseline``: the run that CI compares with."""

import json
from collections.abc import Sequence

import click

from collbench import baseline, results
from collbench.cli.options import json_option
from collbench.errors import UnansweredError


@click.group()
def command() -> None:
    """Set, show or update the run that 'collbench compare baseline NEW' compares with.

    A baseline belongs to its processor, core count and nodes; for a run of other hardware it is advisory only.
    """


@command.command("set")
@click.argument("run", required=False)
@click.option("--why", default="", help="The reason, kept with it.")
@json_option
def set_(run: str | None, why: str, as_json: bool) -> None:
    """Make RUN (default: the newest) the baseline of its hardware."""
    _print([baseline.put(results.find(run), why, replace=False)], as_json=as_json)


@command.command()
@click.argument("run", required=False)
@click.option("--why", required=True, help="The reason of the change, kept with it.")
@json_option
def update(run: str | None, why: str, as_json: bool) -> None:
    """Replace the baseline of RUN's hardware by RUN."""
    _print([baseline.put(results.find(run), why, replace=True)], as_json=as_json)


@command.command()
@json_option
def show(as_json: bool) -> None:
    """Show all baselines: file, hardware, who, when, why."""
    found = baseline.entries()
    _print(found, as_json=as_json)
    if not found:
        raise UnansweredError(
            f"there is no baseline in {baseline.store()}: set one with 'collbench baseline set RUN'"
        )


def _print(found: Sequence[baseline.Entry], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"baselines": [entry.to_json() for entry in found]}, ensure_ascii=False))
        return
    for entry in found:
        hosts = ", ".join(entry.hardware["hosts"])
        click.echo(f"{entry.path}  for {entry.hardware['cpu']}, {entry.hardware['cores']} cores, {hosts}")
        click.echo(f"  set by {entry.who} at {entry.when}{': ' + entry.why if entry.why else ''}")
