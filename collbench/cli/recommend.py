"""``collbench recommend``: decide, print the table and the guidance, write library files."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import rich.box
from rich.console import Console
from rich.table import Table

from collbench import atomic, decision, guidance, guidelines, heldout, results, screening, selection, tables
from collbench.cli import options as opt
from collbench.decision import Policy
from collbench.errors import UsageError
from collbench.heldout import Quality
from collbench.records import Selection
from collbench.reports import guidance_text
from collbench.results import Run
from collbench.tables import plain

SHOWN = 6
"""Sentences of one kind on screen; --json has all."""


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN...]")
@click.option("--format", "formats", multiple=True, help="Write this table format; repeat for several.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File of the table (one --format).")
@click.option(
    "--output-dir", type=click.Path(path_type=Path, file_okay=False), help="Folder of several tables."
)
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.option("--margin", type=opt.PERCENT, default="2%", show_default=True, help="Least gain worth a rule.")
@click.option(
    "--allowance", type=opt.PERCENT, default="1%", show_default=True, help="Mean loss for fewer rules."
)
@click.option("--provider", help="Library to decide for; default: the one with most rows.")
@click.option("--ranks", type=opt.RANKS, help="Only these rank counts.")
@click.option("--collectives", type=opt.COLLECTIVES, help="Only these.")
@click.option("--ranks-per-node", type=click.IntRange(min=1), help="Only rows of this shape.")
@click.option("--guidance-only", is_flag=True, help="Only the page of guidance.")
@click.option("--evaluate", is_flag=True, help="How good are such decisions on cells held out?")
@opt.json_option
def command(
    runs: tuple[str, ...],
    formats: tuple[str, ...],
    output: Path | None,
    output_dir: Path | None,
    force: bool,
    margin: float,
    allowance: float,
    provider: str | None,
    ranks: tuple[int, ...] | None,
    collectives: tuple[str, ...] | None,
    ranks_per_node: int | None,
    guidance_only: bool,
    evaluate: bool,
    as_json: bool,
) -> None:
    """Decide which algorithm to use, print the table and the guidance, write library files."""
    loaded = [results.read(results.find(run)).only(ranks, collectives) for run in runs or ("last",)]
    own, _ = screening.first_environments(loaded)
    policy = decision.Policy(margin, allowance)
    words = Console(stderr=as_json)
    targets = _targets(formats, output, output_dir)
    if evaluate:
        _evaluate(own, policy, provider, words, as_json=as_json)
        return
    decide = partial(selection.from_runs, loaded, provider=provider, ranks_per_node=ranks_per_node)
    decided = decide(policy=policy)
    table = results.frame(own)
    page = guidance.guide(table, decided.provider)
    if not guidance_only:
        show(decided, words)
    words.print(guidance_text.render(page), markup=False, highlight=False, soft_wrap=True)
    better = guidelines.check(table)
    _few(words, "use a composition instead", [v.sentence for v in better])
    if as_json:
        flat = {} if guidance_only else plain.to_json(decided)
        flat["violations"] = [v.to_json() for v in better]
        click.echo(json.dumps({**flat, "guidance": guidance.to_json(page)}, ensure_ascii=False))
    for name, path in targets:
        chosen = tables.FORMATS[name]
        asked = replace(policy, keep_default=chosen.keeps_default, uniform=chosen.uniform)
        fitting = decided if asked == policy else decide(policy=asked)
        write(fitting, name, path, force=force, words=words)


def _targets(formats: Sequence[str], output: Path | None, output_dir: Path | None) -> list[tuple[str, Path]]:
    chosen = [tables.FORMATS[name] for name in formats]
    if not chosen:
        if output or output_dir:
            raise UsageError("-o and --output-dir need a --format")
        return []
    if output_dir:
        if output:
            raise UsageError("give either -o or --output-dir")
        return [(f.name, output_dir / f"collbench-{f.name}{f.suffix}") for f in chosen]
    if output is None or len(chosen) > 1:
        raise UsageError("one --format needs -o FILE, several need --output-dir FOLDER")
    return [(chosen[0].name, output)]


def show(decided: Selection, words: Console) -> None:
    """Print rules, exclusions and warnings."""
    if decided.demonstration:
        words.print(f"Demonstration only: {decided.demonstration}.", markup=False)
    table = Table("collective", "ranks", "from", "to", "use", "over default, %", "basis", box=rich.box.SIMPLE)
    for rule in decided.rules:
        table.add_row(*plain.cells(rule))
    # At 80 columns the names stay whole; long algorithms and intervals take a second line.
    table.padding = (0, 1, 0, 0)
    table.columns[4].overflow = "fold"
    for index in (0, 1, 2, 3, 6):
        table.columns[index].no_wrap = True
    words.print(table)
    _few(words, "left out", decided.exclusions)
    _few(words, "suspicious", decided.context.get("warnings", ()))


def _few(words: Console, label: str, sentences: Sequence[str]) -> None:
    """Print the first sentences and say how many more there are."""
    for sentence in sentences[:SHOWN]:
        words.print(f"{label}: {sentence}", markup=False, highlight=False)
    if len(sentences) > SHOWN:
        words.print(f"{label}: {len(sentences) - SHOWN} more, all of them with --json", highlight=False)


def write(decided: Selection, name: str, path: Path, *, force: bool, words: Console) -> None:
    """Render one format, write it, and say how it is activated and what it cannot say."""
    text = tables.render(decided, name)
    atomic.write_text(path, text, force=force)
    words.print(f"wrote {path}", markup=False)
    chosen = tables.FORMATS[name]
    environment = chosen.activation(str(path.resolve()), decided)
    if environment:
        pairs = " ".join(f"{key}={shlex.quote(value)}" for key, value in environment.items())
        words.print(f"activate it:  {pairs} mpiexec …", markup=False, soft_wrap=True)
    for what in chosen.cannot:
        words.print(f"it cannot say: {what}", markup=False)


def _evaluate(
    loaded: Sequence[Run], policy: Policy, provider: str | None, words: Console, *, as_json: bool
) -> None:
    screened = screening.screen(results.frame(loaded), provider, screening.failed_lines(loaded))
    found = heldout.evaluate(screened.rows, policy, screened.provider)
    if as_json:
        click.echo(json.dumps({"quality": [q.to_json() for q in found]}, ensure_ascii=False))
    words.print(quality_table(found))


def quality_table(found: Sequence[Quality]) -> Table:
    """Return regret (geometric mean, 95th percentile, worst) of each way to decide."""
    table = Table("held out", "decided by", "cells", "mean", "p95", "worst", "rules", box=rich.box.SIMPLE)
    for q in found:
        rules = "" if q.rules is None else str(q.rules)
        table.add_row(
            q.held_out, q.method, str(q.cells), f"{q.mean:.2%}", f"{q.p95:.1%}", f"{q.worst:.0%}", rules
        )
    return table
