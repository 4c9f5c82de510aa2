"""``collbench ab``: environments measured interleaved in one allocation, then compared."""

import os
import secrets
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from collbench import __version__, ab, interleaving, method, profile, results, variant
from collbench.cli import options as opt
from collbench.cli.compare import judge_variants, make_rules, present, rule_options
from collbench.errors import UsageError
from collbench.installation import Installation
from collbench.interleaving import SUSPECT, Job
from collbench.outcome import Observer
from collbench.reports.noise import noise
from collbench.reports.progress import LiveProgress, PlainProgress
from collbench.request import RunOptions, with_options
from collbench.results import Run
from collbench.sides import CONFIRM_FROM
from collbench.tables import reading
from collbench.variant import Variant
from collbench.verdict import FASTER, INCONCLUSIVE, SLOWER, Comparison, Rules

KEPT_ON_RESUME = frozenset(
    {"resume_file", "confirm", "budget_s", "quiet", "want", "allow_mixed", "form", "as_json", "threshold",
     "max_inconclusive", "required", "fail_on"}
)  # fmt: skip
"""What a resumed comparison may be told anew; all else is in its run file."""


@click.command()
@click.argument("profile_name", metavar="[PROFILE]", default="ci")
@click.option("--a-env", multiple=True, metavar="K=V", help="A variable of environment A; repeatable.")
@click.option(
    "--b-env",
    multiple=True,
    metavar="K=V",
    help="A variable of environment B, also a control variable (OMPI_MCA_…, MPIR_CVAR_…); repeatable.",
)
@click.option(
    "--b-mpi", metavar="PATH", help="B is another MPI: an mpiexec, a prefix, a virtual environment."
)
@click.option(
    "--b-setup", metavar="LINE", help="B: a line your login shell runs first: 'module load openmpi/5.1'."
)
@click.option("--b-table", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="B loads this tuned table.")  # fmt: skip
@click.option("--variant", "named", multiple=True, metavar="NAME:K=V,…",
              help="Any number of environments instead of A and B, the first is the base; repeatable.")  # fmt: skip
@click.option("--self-test", is_flag=True, help="A against A: this machine's own noise.")
@click.option("--want", type=opt.PERCENT, default="10%", show_default=True, metavar="SHARE",
              help="The change that --self-test counts the needed pairs for.")  # fmt: skip
@click.option(
    "--pairs",
    type=click.IntRange(min=1),
    default=ab.PAIRS,
    show_default=True,
    help="Launches of each environment.",
)
@click.option("--confirm", is_flag=True, help="Measure suspects again on fresh launches before they count.")
@click.option("--budget", "budget_s", type=opt.DURATION,
              help="Time for all of it: no pair begins that would not end in it (default: the profile's).")  # fmt: skip
@click.option("--prove/--no-prove", default=True,
              help="Show in an untimed launch of each environment which algorithms run.")  # fmt: skip
@click.option("--resume", "resume_file", metavar="RUN", help="Go on with an interrupted comparison.")
@click.option("--allow-mixed", multiple=True, type=click.Choice([*method.FIELDS, "effective"]),
              help="Compare although this field of the method differs; repeatable.")  # fmt: skip
@click.option("--collectives", type=opt.COLLECTIVES, help="Only these, comma-separated.")
@click.option("--ranks", type=opt.RANKS, help="Rank counts: 2,4,8.")
@click.option("--sizes", type=opt.SIZES, help="Total bytes: 8, 1K, lists and ranges such as 8:1M:x4.")
@click.option("--algorithms", type=opt.WORDS, help="Names, or: default, library, portable, all.")
@click.option("--iterations", type=click.IntRange(min=1), help="A fixed number of timed calls per case.")
@opt.sync_option
@click.option(
    "--seed", type=click.IntRange(min=0), help="Seed of every shuffle (default: drawn and recorded)."
)
@click.option("--launcher", help="Template of another launcher: 'flux run -n {ranks}'.")
@click.option("--launcher-args", default="", help="Further words for the launcher, quoted once.")
@click.option("--hosts", type=opt.WORDS, default="", help="Host names, comma-separated.")
@click.option("--ranks-per-node", type=click.IntRange(min=1), help="Ranks on each host.")
@click.option("--redact", is_flag=True, help="Replace host names, users and paths in the run file.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Run file (default: results/NAME.jsonl)."
)
@click.option("--quiet", is_flag=True, help="No progress lines.")
@rule_options
@click.pass_context
def command(
    context: click.Context, /, profile_name: str, resume_file: str | None, want: float, form: str, as_json: bool,
    **given: Any,
) -> int:  # fmt: skip
    """Measure two or more environments in alternating launches and compare them, in one command.

    A is the environment you are in; say what B changes. This is the recommended CI gate: both sides see the same
    machine. 'collbench compare RUN --by variant' judges the run file again.

    Exit status: as 'collbench compare'; 130 interrupted, what was measured is kept (--resume goes on).
    """
    rules = make_rules(given)
    job = _resumed(context, resume_file, given) if resume_file else _new_job(profile_name, given)
    if given["prove"]:
        interleaving.prove(job)
    interleaving.stage(job)
    run = results.read(job.path)
    if job.confirm:
        suspects = _suspects(_judged(interleaving.screened(run), job, rules))
        if suspects:
            click.echo(f"measuring {len(suspects)} suspect cells again on fresh launches", err=True)
            interleaving.stage(job, CONFIRM_FROM, suspects)
            run = results.read(job.path)
    found = _judged(run, job, rules)
    if (run.header.get("ab") or {}).get("self_test"):
        found = [replace(c, remarks=[*c.remarks, *noise(c, want, rules)]) for c in found]
    click.echo(f"run file: {job.path}", err=True)
    return present(found, "json" if as_json else form)


def _judged(run: Run, job: Job, rules: Rules) -> list[Comparison]:
    return judge_variants(run, job.names[0], rules, job.allowed)


def make_variants(given: dict[str, Any], *, self_test: bool) -> list[Variant]:
    """Return the environments of the command line, the base first.

    Raises:
        UsageError: the options contradict each other or name fewer than two environments.
    """
    b_words = ("b_env", "b_mpi", "b_setup", "b_table")
    changes = any(given[name] for name in b_words)
    if sum((bool(given["named"]), changes, self_test)) != 1:
        raise UsageError("say what is compared: --b-env, --b-mpi, --b-setup or --b-table for B, or --variant twice, "
                         "or --self-test")  # fmt: skip
    if given["named"]:
        if given["a_env"]:
            raise UsageError("--a-env goes with B, not with --variant: write it into the variant")
        variants = [variant.parse_variant(text) for text in given["named"]]
        if len({v.name for v in variants}) < len(variants) or len(variants) < 2:
            raise UsageError("--variant is needed twice or more, each with a name of its own")
        return variants
    a_env = variant.parse_env(given["a_env"])
    if self_test:
        return [Variant("A", a_env), Variant("A2", a_env)]
    mpi, table = given["b_mpi"], given["b_table"]
    if mpi and Path(mpi).exists():
        mpi = str(Path(mpi).absolute())  # --resume may be called from another folder
    b = Variant("B", variant.parse_env(given["b_env"]), mpi, given["b_setup"], table and table.absolute())
    return [Variant("A", a_env), b]


def _new_job(name: str, given: dict[str, Any]) -> Job:
    variants = make_variants(given, self_test=given["self_test"])
    options = RunOptions(
        collectives=given["collectives"], ranks=given["ranks"], sizes=given["sizes"], algorithms=given["algorithms"],
        iterations=given["iterations"], seed=secrets.randbelow(2**31) if given["seed"] is None else given["seed"],
        launcher=given["launcher"], launcher_args=tuple(shlex.split(given["launcher_args"])),
        hosts=tuple(given["hosts"] or ()), ranks_per_node=given["ranks_per_node"], redact=given["redact"],
        budget_s=given["budget_s"], prove=given["prove"], sync=given["sync"],
    )  # fmt: skip
    wanted = with_options(profile.load(name), options)
    if wanted.backend != "mpi":
        raise UsageError(f"ab measures over MPI; profile {name} is for {wanted.backend}")
    installations = {v.name: variant.discover(v) for v in variants}
    resolved = [_with_table(v, installations[v.name]) for v in variants]
    job = Job(
        wanted, options, resolved, installations, given["pairs"], given["output"] or _default_path(wanted.name),
        observe=_observer(given["quiet"]), say=_say, confirm=given["confirm"], allowed=given["allow_mixed"],
    )  # fmt: skip
    interleaving.create(
        job, f"collbench {__version__}", ["collbench", *sys.argv[1:]], self_test=given["self_test"]
    )
    return job


def _resumed(context: click.Context, reference: str, given: dict[str, Any]) -> Job:
    """Return the job of a run file, to go on with.

    Raises:
        UsageError: an option would change what is compared, or the environments cannot be restored.
    """
    for option in context.command.params:
        asked = context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
        if asked and option.name not in KEPT_ON_RESUME:
            raise UsageError(f"{option.opts[0]} is in the run file already: leave it out with --resume")
    path = results.find(reference)
    run = results.read(path)
    facts = interleaving.restore(run)
    given["prove"] = facts["options"].prove
    if given["budget_s"] is not None:
        facts["profile"] = replace(facts["profile"], budget_s=given["budget_s"])
    confirm = given["confirm"] or bool((run.header.get("ab") or {}).get("confirm"))
    return Job(path=path, observe=_observer(given["quiet"]), say=_say, confirm=confirm, allowed=given["allow_mixed"],
               **facts)  # fmt: skip


def _with_table(one: Variant, found: Installation) -> Variant:
    if one.table is None:
        return one
    return replace(one, env={**reading.load(one.table, found).environment, **one.env})


def _default_path(name: str) -> Path:
    folder = Path(os.environ.get("COLLBENCH_RESULTS", str(results.RESULTS_DIR)))
    return folder / f"ab-{name}-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"


def _say(text: str) -> None:
    click.echo(text, err=True)


def _observer(quiet: bool) -> Any:
    """Return what makes the progress display for a number of cases."""

    def make(total: int) -> AbstractContextManager[Observer]:
        console = Console(stderr=True)
        live = console.is_terminal and not quiet
        return LiveProgress(total, console) if live else PlainProgress(total, console, quiet=quiet)

    return make


def _suspects(found: Sequence[Comparison]) -> set[tuple[Any, ...]]:
    """Return the cells that are not settled: a change, or inconclusive."""
    return {
        tuple(cell.key[name] for name in SUSPECT)
        for comparison in found
        for cell in comparison.cells
        if cell.verdict in (SLOWER, FASTER, INCONCLUSIVE)
    }
