"""``collbench show``: look at a run."""

import json
from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.console import Console, RenderableType
from rich.text import Text

from collbench import results
from collbench.cli import options
from collbench.errors import EXIT_UNANSWERED, UnansweredError
from collbench.reports import screen, terminal
from collbench.reports.evidence import evidence_table, proofs
from collbench.reports.notes import counted, notes
from collbench.reports.overview import overview, to_json
from collbench.reports.panels import Panel, panels
from collbench.reports.samples import Filter, samples
from collbench.results import Run


@click.command()
@click.argument("run", required=False)
@click.option("--metric", type=click.Choice(list(terminal.METRICS)), default="time", show_default=True,
              help="What the tables show; the marks always go by time.")  # fmt: skip
@click.option("--collective", "--collectives", "collectives", type=options.COLLECTIVES, default=(), metavar="NAMES",
              help="Only these, as allreduce,bcast.")  # fmt: skip
@click.option(
    "--ranks", type=options.RANKS, default=(), metavar="LIST", help="Only these rank counts, as 2,8."
)
@click.option("--algorithm", "--algorithms", "algorithms", type=options.WORDS, default=(), metavar="NAMES",
              help="Only these, as ring,default.")  # fmt: skip
@click.option("--maps", is_flag=True, help="Only the maps of winners and the notes, no tables.")
@click.option("--evidence", is_flag=True, help="What shows which algorithm ran, instead of times.")
@click.option(
    "--guidelines", is_flag=True, help="Where a composition beats the collective, instead of times."
)
@options.json_option
def command(
    run: str | None, metric: str, collectives: tuple[str, ...], ranks: tuple[int, ...], algorithms: tuple[str, ...],
    maps: bool, evidence: bool, guidelines: bool, as_json: bool,
) -> int | None:  # fmt: skip
    """Look at a run: times or bandwidths, the fastest marked, and what must be known of them.

    RUN is a path, a run's name, last or last~2; without it the newest run. Exit status: 0, or 3 when nothing in the
    run is shown by these filters.
    """
    only = Filter(collectives, ranks, algorithms)
    loaded = results.read(results.find(run))
    console = screen.console()
    if evidence:
        _evidence(console, loaded, only, as_json=as_json)
        return None
    if guidelines:
        _guidelines(console, loaded, only, as_json=as_json)
        return None
    found = samples(loaded, only)
    tables = panels(found.usable)
    said = notes(loaded, found, only)
    if as_json:
        click.echo(json.dumps(to_json(loaded, found, tables, only, said), ensure_ascii=False))
    else:
        _print(console, [*overview(loaded, found, only), ""], tables, said, metric=metric, maps=maps)
    if not tables and only != Filter():
        raise UnansweredError(f"{loaded.name} holds no measured cell for these filters{_offers(loaded)}")
    return None if tables else EXIT_UNANSWERED


def _print(
    console: Console,
    head: Sequence[str],
    tables: Sequence[Panel],
    said: Sequence[str],
    *,
    metric: str,
    maps: bool,
) -> None:
    """Print the overview, tables, maps and notes, in this order: the end stays on the screen."""
    things: list[RenderableType] = [Text(line) for line in head]
    for panel in () if maps else tables:
        things += [terminal.panel_table(panel, metric, console.width), ""]
    for group in terminal.winner_maps(tables, console.width):
        things += [group, ""]
    if any(len(panel.labels) > 1 for panel in tables):
        things.append(Text(terminal.LEGEND, style="dim"))
    screen.emit(console, *things, screen.notes_list(said))


def _offers(run: Run) -> str:
    """Say what a run does hold, for a filter that matched nothing."""
    held = samples(run).usable
    collectives = dict.fromkeys(sample.case.cell.collective for sample in held)
    ranks = sorted({sample.case.cell.ranks for sample in held})
    return f": it has {', '.join(collectives)} on {', '.join(map(str, ranks))} ranks" if held else ""


def _evidence(console: Console, run: Run, only: Filter, *, as_json: bool) -> None:
    found = proofs(run, only)
    if as_json:
        click.echo(json.dumps({"evidence": [asdict(proof) for proof in found]}, ensure_ascii=False))
    else:
        screen.emit(console, evidence_table(found))


def _guidelines(console: Console, run: Run, only: Filter, *, as_json: bool) -> None:
    from collbench import guidelines  # noqa: PLC0415 - needed by this option alone

    # The whole run is checked: a composition's parts need not be among what is asked for.
    violations = [
        v
        for v in (*guidelines.check(results.frame(run)), *guidelines.best_chunks(results.frame(run)))
        if only.admits(v.collective, v.ranks, v.algorithm)
    ]
    if as_json:
        click.echo(
            json.dumps({"violations": [violation.to_json() for violation in violations]}, ensure_ascii=False)
        )
        return
    total = counted(len(violations), "guideline violation") if violations else "no guideline is violated"
    screen.emit(console, screen.notes_list([violation.sentence for violation in violations]), Text(total))
