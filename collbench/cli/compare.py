"""``collbench compare``: two runs → verdicts and an exit status for CI."""

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from collbench import atomic, baseline, method, results, sides
from collbench import compare as comparing
from collbench.cli import options as opt
from collbench.errors import UsageError
from collbench.reports.comparison import FORMATS, overall, summary
from collbench.results import Run
from collbench.verdict import FAIL_ON, Comparison, Rules


def rule_options(function: opt.Command) -> opt.Command:
    """Add the options of the verdict and of its output, shared by ``compare`` and ``ab``."""
    added: tuple[Callable[[opt.Command], opt.Command], ...] = (
        click.option("--threshold", type=opt.PERCENT, default="5%", show_default=True, metavar="SHARE",
                     help="Smallest change that matters."),
        click.option("--max-inconclusive", type=opt.PERCENT, default="10%", show_default=True, metavar="SHARE",
                     help="Share of inconclusive cells that is borne."),
        click.option("--require-cells", "required", multiple=True, metavar="PATTERN",
                     help="Cells that must have an answer, as 'allreduce/8/*'; repeatable."),
        click.option("--fail-on", multiple=True, type=click.Choice(FAIL_ON),
                     help="What changes the exit status (default: all three); repeatable."),
        click.option("--format", "form", type=click.Choice(list(FORMATS)), default="terminal", show_default=True,
                     help="How the answer is written."),
        opt.json_option,
    )  # fmt: skip
    for option in reversed(added):
        function = option(function)
    return function


def make_rules(given: dict[str, Any]) -> Rules:
    """Return the rules of the command line's options."""
    if not given["threshold"]:
        raise UsageError("--threshold 0 would call every difference a change: write for example 5%")
    return Rules(
        threshold=given["threshold"],
        max_inconclusive=given["max_inconclusive"],
        required=tuple(given["required"]),
        fail_on=tuple(given["fail_on"]) or FAIL_ON,
    )


def present(
    comparisons: Sequence[Comparison], form: str, output: Path | None = None, *, force: bool = False
) -> int:
    """Print the comparisons, or write them to a file and their summary to the screen; return the exit status."""
    if form == "terminal":
        live = sys.stdout.isatty() and output is None
        width = shutil.get_terminal_size((110, 40)).columns if live else 110
        text = FORMATS[form](comparisons, width=max(80, width), colour=live)
    else:
        text = FORMATS[form](comparisons)
    if output:
        atomic.write_text(output, text, force=force)
    else:
        click.echo(text, nl=False)
    if output or form in ("json", "junit"):
        for comparison in comparisons:
            click.echo(summary(comparison), err=True)
    return overall(comparisons)


@click.command()
@click.argument("base")
@click.argument("new", required=False)
@rule_options
@click.option("--by", type=click.Choice(["run", "variant", "algorithm", "library"]), default="run", show_default=True,
              help="What is compared; variant and algorithm need one run only.")  # fmt: skip
@click.option(
    "--against", metavar="NAME", help="The base of --by variant or algorithm (default: the first; default)."
)
@click.option("--allow-mixed", multiple=True, type=click.Choice([*method.FIELDS, "effective"]),
              help="Compare although this field of the method differs; repeatable.")  # fmt: skip
@click.option("--collectives", type=opt.COLLECTIVES, default="", metavar="NAMES", help="Only these.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write here instead of the screen.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing -o file.")
def command(
    base: str, new: str | None, by: str, against: str | None, allow_mixed: tuple[str, ...],
    collectives: tuple[str, ...], output: Path | None, force: bool, form: str, as_json: bool, **given: Any,
) -> int:  # fmt: skip
    """Compare two runs cell by cell: slower, faster, same (shown to be) or inconclusive.

    BASE and NEW are paths, run names, last or last~1; BASE may be 'baseline' (see 'collbench baseline'). One launch is
    one observation: measure with --launches 8 or more, or use 'collbench ab'.

    Exit status: 0 no slow-down; 1 slower; 2 the runs differ in method; 3 missing or failed cells, too much is
    inconclusive, or nothing in common.
    """
    rules = make_rules(given)
    if by in ("variant", "algorithm"):
        if new is not None:
            raise UsageError(f"--by {by} compares within one run: leave out {new}")
        found = within(base, by, against, rules, allow_mixed, collectives)
    else:
        found = [_two_runs(base, new, by, rules, allow_mixed, collectives)]
    return present(found, "json" if as_json else form, output, force=force)


def _two_runs(
    base: str, new: str | None, by: str, rules: Rules, allowed: tuple[str, ...], collectives: tuple[str, ...]
) -> Comparison:
    if new is None:
        raise UsageError("name the run to judge: collbench compare BASE NEW")
    judged = results.read(results.find(new))
    entry = baseline.choose(judged) if base == "baseline" else None
    reference = results.read(entry.path if entry else results.find(base))
    names = sides.key_names(ignore=_ignored(allowed), by=by if by == "library" else None)
    pair = sides.of_runs(reference, judged, names, only={"collective": collectives})
    method.check(pair[0].rows, pair[1].rows, allowed)
    found = comparing.compare(*pair, names, rules)
    remarks = [*found.remarks, *reference.remarks, *judged.remarks]
    if entry and not entry.same_hardware:
        remarks.append(f"the baseline {entry.path.name} is of other hardware: its verdicts are advisory here")
        return replace(found, remarks=remarks, advisory=True)
    return replace(found, remarks=remarks)


def within(
    reference: str,
    by: str,
    against: str | None,
    rules: Rules,
    allowed: Sequence[str],
    collectives: Sequence[str],
) -> list[Comparison]:
    """Return the comparisons inside one run: each other variant, or algorithm, with the base."""
    run = results.read(results.find(reference))
    if collectives:
        run = replace(run, cells=[c for c in run.cells if c["case"]["collective"] in collectives],
                      failed=[c for c in run.failed if c["case"]["collective"] in collectives])  # fmt: skip
    if by == "variant":
        return judge_variants(run, against, rules, allowed)
    names = sides.key_names(by="algorithm")
    pairs = sides.of_algorithms(run, against or "default", names)
    return [comparing.compare(b, n, names, rules, who=n.label) for b, n in pairs]


def judge_variants(
    run: Run, against: str | None, rules: Rules, allowed: Sequence[str] = ()
) -> list[Comparison]:
    """Return the comparison of each other environment of an interleaved run with the base (default: its first)."""
    libraries = {(line.get("library") or {}).get("name") for line in run.launches.values()}
    # variants of two libraries are compared by what was asked for, whoever serves it
    names = sides.key_names(ignore=_ignored(allowed), by="library" if len(libraries) > 1 else None)
    known = sides.variants(run)
    base = against or known[0]
    found = []
    for name in known:
        if name != base:
            pair = sides.of_variants(run, base, name, names)
            method.check(pair[0].rows, pair[1].rows, allowed)
            found.append(comparing.compare(*pair, names, rules))
    return found


def _ignored(allowed: Sequence[str]) -> list[str]:
    return [method.FIELDS[a] for a in allowed if a in method.FIELDS]
