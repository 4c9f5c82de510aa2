"""``collbench ab``: environments measured interleaved in one allocation, then compared."""

import os
import secrets
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from collbench import __version__, ab, launchers, launching, profile, results
from collbench.cli import options as opt
from collbench.cli.compare import make_rules, present, rule_options, within
from collbench.errors import InterruptedRunError, UsageError
from collbench.installation import Installation
from collbench.mpi import probe
from collbench.pairing import usable
from collbench.plan import Plan
from collbench.profile import Profile
from collbench.records import Case
from collbench.reports.noise import noise
from collbench.reports.progress import LiveProgress, PlainProgress
from collbench.request import RunOptions, with_options
from collbench.runfile import RunWriter
from collbench.sides import CONFIRM_FROM
from collbench.tables import reading
from collbench.verdict import FASTER, INCONCLUSIVE, SLOWER, Comparison


@dataclass(frozen=True)
class Job:
    """One interleaved measurement: what, how, of which environments, into which file."""

    profile: Profile
    options: RunOptions
    variants: Sequence[ab.Variant]
    installations: dict[str, Installation]
    pairs: int
    path: Path
    quiet: bool

    def plan(self, pairs: int, first: int = 0, cells: set[tuple[Any, ...]] | None = None) -> Plan:
        """Return the launches of one stage; ``cells`` = only these (the suspects)."""
        allocation = launchers.allocation(os.environ, len(os.sched_getaffinity(0)))
        per_node = self.profile.ranks_per_node
        if per_node is None and len(allocation.hosts) > 1:
            per_node = max(1, allocation.slots // len(allocation.hosts))
        return ab.make_plan(
            self.profile, self.options, self.variants, self.installations, pairs=pairs, first=first,
            ranks_per_node=per_node, keep=lambda case: cells is None or suspect_key(case) in cells,
        )  # fmt: skip


def suspect_key(case: Case) -> tuple[Any, ...]:
    """Return what names a cell in every variant, whatever library serves it."""
    c = case.cell
    return (c.collective, c.ranks, c.nbytes, c.dtype, c.op, c.in_place, case.algorithm)


@click.command()
@click.argument("profile_name", metavar="[PROFILE]", default="ci")
@click.option("--a-env", multiple=True, metavar="K=V", help="A variable of environment A; repeatable.")
@click.option("--b-env", multiple=True, metavar="K=V", help="A variable of environment B; repeatable.")
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
@click.option("--collectives", type=opt.COLLECTIVES, help="Only these, comma-separated.")
@click.option("--ranks", type=opt.RANKS, help="Rank counts: 2,4,8.")
@click.option("--sizes", type=opt.SIZES, help="Total bytes: 8, 1K, lists and ranges such as 8:1M:x4.")
@click.option("--algorithms", type=opt.WORDS, help="Names, or: default, library, portable, all.")
@click.option("--iterations", type=click.IntRange(min=1), help="A fixed number of timed calls per case.")
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
def command(
    profile_name: str, pairs: int, confirm: bool, self_test: bool, want: float, output: Path | None, quiet: bool,
    form: str, as_json: bool, **given: Any,
) -> int:  # fmt: skip
    """Measure two or more environments in alternating launches and compare them, in one command.

    A is the environment you are in; say what B changes. This is the recommended CI gate: both sides see the same
    machine. 'collbench compare RUN --by variant' judges the run file again.

    Exit status: as 'collbench compare'; 130 interrupted, what was measured is kept.
    """
    rules = make_rules(given)
    variants = make_variants(given, self_test=self_test)
    job = _job(profile_name, given, variants, pairs, output, quiet=quiet)
    _create(job, self_test=self_test)
    _stage(job, 0)
    found = within(str(job.path), "variant", variants[0].name, rules)
    if confirm:
        suspects = _suspects(found)
        if suspects:
            click.echo(f"measuring {len(suspects)} suspect cells again on fresh launches", err=True)
            _stage(job, CONFIRM_FROM, suspects)
            found = within(str(job.path), "variant", variants[0].name, rules)
    status = present(found, "json" if as_json else form)
    click.echo(f"run file: {job.path}", err=True)
    if self_test:
        for line in noise(found[0], want, rules):
            click.echo(line, err=as_json or form != "terminal")
    return status


def make_variants(given: dict[str, Any], *, self_test: bool) -> list[ab.Variant]:
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
        variants = [ab.parse_variant(text) for text in given["named"]]
        if len({v.name for v in variants}) < len(variants) or len(variants) < 2:
            raise UsageError("--variant is needed twice or more, each with a name of its own")
        return variants
    a_env = ab.parse_env(given["a_env"])
    if self_test:
        return [ab.Variant("A", a_env), ab.Variant("A2", a_env)]
    b = ab.Variant("B", ab.parse_env(given["b_env"]), given["b_mpi"], given["b_setup"], given["b_table"])
    return [ab.Variant("A", a_env), b]


def _job(
    name: str,
    given: dict[str, Any],
    variants: Sequence[ab.Variant],
    pairs: int,
    output: Path | None,
    *,
    quiet: bool,
) -> Job:
    options = RunOptions(
        collectives=given["collectives"], ranks=given["ranks"], sizes=given["sizes"], algorithms=given["algorithms"],
        iterations=given["iterations"], seed=secrets.randbelow(2**31) if given["seed"] is None else given["seed"],
        launcher=given["launcher"], launcher_args=tuple(shlex.split(given["launcher_args"])),
        hosts=tuple(given["hosts"] or ()), ranks_per_node=given["ranks_per_node"], redact=given["redact"], prove=False,
    )  # fmt: skip
    wanted = replace(with_options(profile.load(name), options), budget_s=None)
    if wanted.backend != "mpi":
        raise UsageError(f"ab measures over MPI; profile {name} is for {wanted.backend}")
    installations = {v.name: ab.discover(v) for v in variants}
    resolved = [_with_table(v, installations[v.name]) for v in variants]
    path = output or _default_path(wanted.name)
    return Job(wanted, options, resolved, installations, pairs, path, quiet)


def _with_table(variant: ab.Variant, found: Installation) -> ab.Variant:
    if variant.table is None:
        return variant
    return replace(variant, env={**reading.load(variant.table, found).environment, **variant.env})


def _default_path(name: str) -> Path:
    folder = Path(os.environ.get("COLLBENCH_RESULTS", str(results.RESULTS_DIR)))
    return folder / f"ab-{name}-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"


def _create(job: Job, *, self_test: bool) -> None:
    line = launching.run_line(
        asdict(job.profile), job.options, f"collbench {__version__}", ["collbench", *sys.argv[1:]]
    )
    line.pop("request")  # --resume cannot know the environments: an interrupted comparison starts anew
    line["ab"] = {"pairs": job.pairs, "variants": [v.name for v in job.variants], "self_test": self_test}
    with RunWriter(job.path, create=True) as writer:
        writer.write(line)


def _stage(job: Job, first: int, cells: set[tuple[Any, ...]] | None = None) -> None:
    """Measure until there are as many usable pairs as asked for, with at most as many again."""
    _measure(job, job.plan(job.pairs, first, cells))
    done = job.pairs
    while done < 2 * job.pairs:
        lines = [x for x in results.read(job.path).launches.values()
                 if first <= x.get("repetition", -1) < first + 2 * job.pairs]  # fmt: skip
        counts = usable(lines, [v.name for v in job.variants])
        lacking = min(job.pairs - min(counts.values(), default=0), 2 * job.pairs - done)
        if lacking <= 0:
            return
        click.echo(
            f"{lacking} pairs were disturbed or met two machine states: measuring as many more", err=True
        )
        _measure(job, job.plan(lacking, first + done, cells))
        done += lacking


def _measure(job: Job, stage: Plan) -> None:
    console = Console(stderr=True)
    total = sum(len(x.cases) for x in stage.launches)
    live = console.is_terminal and not job.quiet
    progress: AbstractContextManager[Any] = (
        LiveProgress(total, console) if live else PlainProgress(total, console, quiet=job.quiet)
    )
    base = job.installations[job.variants[0].name]
    with progress as observer:
        work = ab.AbRunner(stage, job.options, base, job.path, observer, first_launch=_next_launch(job.path),
                           probe=probe.probe, installations=job.installations)  # fmt: skip
        work.setups = {v.name: v.setup for v in job.variants if v.setup}
        try:
            work.run()
        except InterruptedRunError:
            raise InterruptedRunError(
                f"interrupted: what was measured is kept, judge it with 'collbench compare {job.path} --by variant'; "
                "a comparison cannot go on later, the machine would not be the same"
            ) from None


def _next_launch(path: Path) -> int:
    return max(results.read(path).launches, default=-1) + 1


def _suspects(found: Sequence[Comparison]) -> set[tuple[Any, ...]]:
    """Return the cells that are not settled: a change, or inconclusive."""
    keys = ("collective", "ranks", "nbytes", "dtype", "op", "in_place", "algorithm")
    return {
        tuple(cell.key[name] for name in keys)
        for comparison in found
        for cell in comparison.cells
        if cell.verdict in (SLOWER, FASTER, INCONCLUSIVE)
    }
