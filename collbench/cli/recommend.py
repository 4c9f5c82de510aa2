"""``collbench recommend``: decide, print the table, write library files."""

import json
import shlex
from pathlib import Path

import click
import rich.box
from rich.console import Console
from rich.table import Table

from collbench import atomic, decision, results, selection, tables, units
from collbench.errors import UsageError
from collbench.records import Rule, Selection, algorithm_label


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN...]")
@click.option("--format", "formats", multiple=True, help="Write this table format; repeat for several.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File of the table (one --format).")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option(
    "--margin", default="2%", show_default=True, help="Smallest gain over the default worth a rule."
)
@click.option(
    "--allowance", default="0.5%", show_default=True, help="Mean loss that a smaller table may cost."
)
@click.option("--provider", help="Library to decide for; default: the one with most rows.")
@click.option("--json", "as_json", is_flag=True, help="Machine output on stdout.")
def command(
    runs: tuple[str, ...],
    formats: tuple[str, ...],
    output: Path | None,
    force: bool,
    margin: str,
    allowance: str,
    provider: str | None,
    as_json: bool,
) -> None:
    """Decide which algorithm to use, print the table and the guidance, write library files."""
    loaded = [results.read(results.find(run)) for run in runs or ("last",)]
    policy = decision.Policy(units.parse_percent(margin), units.parse_percent(allowance))
    decided = selection.from_runs(loaded, provider=provider, policy=policy)
    words = Console(stderr=as_json)
    show(decided, words)
    if as_json:
        click.echo(json.dumps(to_json(decided), ensure_ascii=False))
    if formats:
        write(decided, formats, output, force=force, words=words)


def show(decided: Selection, words: Console) -> None:
    """Print rules, exclusions and warnings."""
    if decided.demonstration:
        words.print(f"Demonstration only: {decided.demonstration}.")
    table = Table("collective", "ranks", "from", "to", "use", "over default", "basis", box=rich.box.SIMPLE)
    for rule in decided.rules:
        table.add_row(*_cells(rule))
    words.print(table)
    for sentence in decided.exclusions:
        words.print(f"left out: {sentence}", markup=False)
    for sentence in decided.context.get("warnings", ()):
        words.print(f"suspicious: {sentence}", markup=False)


def _cells(rule: Rule) -> tuple[str, ...]:
    gain = "" if rule.gain is None else units.format_percent(rule.gain, sign=True)
    if rule.gain_low is not None and rule.gain_high is not None:
        gain += f" ({units.format_percent(rule.gain_low)} … {units.format_percent(rule.gain_high)})"
    ranks = f"{rule.ranks}–{rule.ranks_max}" if rule.ranks_max else str(rule.ranks)
    upper = "∞" if rule.max_bytes is None else units.format_bytes(rule.max_bytes)
    label = algorithm_label(rule.algorithm, rule.params)
    return (rule.collective, ranks, units.format_bytes(rule.min_bytes), upper, label, gain, rule.basis)


def to_json(decided: Selection) -> dict[str, object]:
    """Return the stable JSON form (README, "JSON that programs may rely on")."""
    return {
        "rules": [rule.to_json() for rule in decided.rules],
        "provider": decided.provider,
        "context": dict(decided.context),
        "exclusions": list(decided.exclusions),
        "demonstration": decided.demonstration,
        "guidance": [],
    }


def write(
    decided: Selection, formats: tuple[str, ...], output: Path | None, *, force: bool, words: Console
) -> None:
    """Render every format, write it, and say how it is activated."""
    if len(formats) > 1 or output is None:
        raise UsageError("--format needs -o FILE")
    text = tables.render(decided, formats[0])
    atomic.write_text(output, text, force=force)
    words.print(f"wrote {output}", markup=False)
    environment = tables.FORMATS[formats[0]].activation(str(output.resolve()))
    if environment:
        pairs = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        words.print(f"activate it:  {pairs} mpiexec …", markup=False, soft_wrap=True)
