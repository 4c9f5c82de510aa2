"""``collbench run``: measure, and write one run file."""

import json
import os
import secrets
import shlex
import sys
import time
from collections import Counter
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from collbench import (
    __version__,
    confirmation,
    environment,
    inside,
    installation,
    launchers,
    launching,
    memory,
    outcome,
    plan,
    profile,
    request,
    results,
    resume,
    runner,
)
from collbench.backends import BACKENDS
from collbench.cli import options as opt
from collbench.errors import EXIT_UNANSWERED, UnansweredError, UsageError
from collbench.mpi import probe
from collbench.portable import run as portable
from collbench.reports.progress import LiveProgress, PlainProgress
from collbench.runfile import RunWriter
from collbench.units import format_duration


@click.command()
@click.argument("profile_name", metavar="[PROFILE]", required=False)
@click.option("--collectives", type=opt.COLLECTIVES, help="Only these, comma-separated.")
@click.option("--ranks", type=opt.RANKS, help="Rank counts: 2,4,8.")
@click.option("--sizes", type=opt.SIZES, help="Total bytes: 8, 1K, lists and ranges such as 8:1M:x4.")
@click.option("--algorithms", type=opt.WORDS, help="Names, or: default, library, portable, all.")
@click.option(
    "--iterations", type=click.IntRange(min=1), help="A fixed number of timed calls per case (no race)."
)
@click.option("--budget", "budget_s", type=opt.DURATION, help="Time for the whole run: 60s, 10m.")
@click.option("--launches", type=click.IntRange(min=1), help="Process starts per rank count.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Run file (default: results/NAME.jsonl)."
)
@click.option("--dry-run", is_flag=True, help="Print the plan and the exact commands; measure nothing.")
@click.option(
    "--seed", type=click.IntRange(min=0), help="Seed of every shuffle (default: drawn and recorded)."
)
@click.option("--label", help="Free text kept in the run file.")
@click.option("--launcher", help="Template of another launcher: 'flux run -n {ranks}'.")
@click.option("--launcher-args", default="", help="Further words for the launcher, quoted once.")
@click.option("--hosts", type=opt.WORDS, default="", help="Host names, comma-separated.")
@click.option("--ranks-per-node", type=click.IntRange(min=1), help="Ranks on each host.")
@click.option("--mpi", metavar="PATH", help="An mpiexec, a prefix, or a virtual environment of another MPI.")
@click.option(
    "--thread-level",
    type=click.Choice(["single", "funneled", "serialized", "multiple"]),
    default="single",
    show_default=True,
    help="What MPI is asked for; part of a table's key.",
)
@opt.sync_option
@click.option(
    "--rotate-buffers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Calls go through N pairs of buffers in turn (cache).",
)
@click.option(
    "--refine/--no-refine",
    default=None,
    help="Only default and leader where neighbouring sizes agree (default: as the profile says, not for --sizes).",
)
@click.option("--confirm/--no-confirm", default=True, help="Measure winners of single launches once more.")
@click.option("--repeat/--no-repeat", default=True, help="Start disturbed launches again, time permitting.")
@click.option("--rotate-root", is_flag=True, help="The root moves on by one rank with each call.")
@click.option("--nccl-tests-dir", metavar="DIR", help="Folder of your all_reduce_perf and friends.")
@click.option("--virtual-nodes", type=click.IntRange(min=1), help="Treat the ranks as this many nodes.")
@click.option(
    "--prove/--no-prove", default=True, help="Show in an untimed launch which algorithm really runs."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=opt.DURATION,
    default="60s",
    show_default=True,
    help="Least silence that counts as a hang.",
)
@click.option("--redact", is_flag=True, help="Replace host names, users and paths in the run file.")
@click.option("--resume", "resume_file", metavar="RUN", help="Go on with a run file after any end.")
@click.option("--quiet", is_flag=True, help="No progress lines.")
@opt.json_option
def command(
    profile_name: str | None,
    output: Path | None,
    dry_run: bool,
    resume_file: str | None,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Measure collectives: message sizes × rank counts × algorithms → one run file.

    PROFILE is a shipped profile (see 'collbench list profiles') or a TOML file; the default is quick.
    """  # fmt: skip
    if resume_file:
        job = resume.load(results.find(resume_file), given.get("budget_s"))
    else:
        job = _new_job(profile_name or "quick", given)
    if job.profile.backend != "mpi":
        return _other_backend(job, output, dry_run=dry_run, as_json=as_json)
    ranks = launchers.inside_job(os.environ)
    if ranks and not dry_run:
        return _inside(job, ranks, output)
    found = installation.discover(job.options.mpi)
    the_plan = _make_plan(job, found.library, found.version)
    if dry_run:
        _print_plan(the_plan, job, found, as_json=as_json)
        return 0
    memory.check(
        [c for x in the_plan.launches for c in x.cases], job.options.ranks_per_node, the_plan.sampling
    )
    path = job.output or _create(job, output, the_plan)
    return _execute(job, the_plan, found, path, quiet=quiet, as_json=as_json)


def _new_job(name: str, given: dict[str, Any]) -> resume.Job:
    known = {f.name for f in fields(request.RunOptions)}
    values = {k: v for k, v in given.items() if k in known and v is not None}
    values["launcher_args"] = tuple(shlex.split(given["launcher_args"] or ""))
    values["hosts"] = tuple(given["hosts"] or ())
    if given.get("seed") is None:
        values["seed"] = secrets.randbelow(2**31)
    options = request.RunOptions(**values)
    return resume.Job(request.with_options(profile.load(name), options), options)


def _other_backend(job: resume.Job, output: Path | None, *, dry_run: bool, as_json: bool) -> int:
    backend = BACKENDS[job.profile.backend]()
    if dry_run and as_json:
        click.echo(json.dumps(backend.dry_run_json(job.profile, job.options), ensure_ascii=False))
        return 0
    if dry_run:
        click.echo(backend.dry_run(job.profile, job.options))
        return 0
    backend.check(job.profile, job.options)
    path = job.output or output or results.new_path(job.profile.name)
    with RunWriter(path, create=job.output is None) as writer:
        if job.output is None:
            writer.write(_run_line(job))
        backend.execute(job.profile, job.options, writer)
    click.echo(json.dumps({"run": str(path)}, ensure_ascii=False) if as_json else f"{path}")
    return 0


def _inside(job: resume.Job, ranks: int, output: Path | None) -> int:
    """Measure as a rank of the job that started this command, with the ranks it has."""
    job = replace(
        job,
        profile=request.with_options(job.profile, request.RunOptions(ranks=(ranks,))),
        options=replace(job.options, prove=False),
    )

    def prepare(library: str, version: tuple[int, ...] | None) -> tuple[plan.Plan, Path]:
        whole = _make_plan(job, library, version)
        usable = tuple(x for x in whole.launches if inside.runnable(x, os.environ))
        left = [
            (case, "needs a launch of its own: start collbench outside the job")
            for x in whole.launches
            if x not in usable
            for case in x.cases
        ]
        the_plan = replace(whole, launches=usable, skipped=(*whole.skipped, *left))
        return the_plan, _create(job, output, the_plan)

    first, path, status = inside.run(ranks, job.options, prepare)
    if first and path:
        done = results.read(path)
        click.echo(f"{len(done.cells)} cases measured, {len(done.failed)} failed on {ranks} ranks: {path}")
    return EXIT_UNANSWERED if status else 0


def _make_plan(job: resume.Job, library: str, version: tuple[int, ...] | None) -> plan.Plan:
    allocation = launchers.allocation(os.environ, environment.usable_cores(physical=True))
    per_node = job.profile.ranks_per_node
    if per_node is None and len(allocation.hosts) > 1:
        per_node = max(1, allocation.slots // len(allocation.hosts))
    return plan.make_plan(
        job.profile,
        job.options,
        library=library,
        version=version,
        ranks_per_node=per_node,
        portable_reason=portable.available(),
    )


def _print_plan(
    the_plan: plan.Plan, job: resume.Job, found: installation.Installation, *, as_json: bool
) -> None:
    placeholder = Path("PLAN.json")
    rows: list[dict[str, Any]] = []
    for launch in the_plan.launches:
        argv, _ = launching.launch_command(launch, job.options, found, placeholder)
        rows.append({"purpose": launch.purpose, "ranks": launch.ranks, "repetition": launch.repetition,
                     "cases": len(launch.cases), "settings": dict(launch.settings), "command": list(argv)})  # fmt: skip
    if as_json:
        skips = [{"case": c.to_json(), "reason": r} for c, r in the_plan.skipped]
        click.echo(
            json.dumps({"launches": rows, "skipped": skips, "seed": job.options.seed}, ensure_ascii=False)
        )
        return
    for number, row in enumerate(rows, start=1):
        click.echo(f"launch {number}: {row['purpose']} {row['cases']} cases at {row['ranks']} ranks")
        click.echo(f"  {shlex.join(row['command'])}")
    if job.options.confirm and confirmation.applies(the_plan):
        click.echo(
            f"then up to {len(the_plan.measuring)} launches that measure default and winners once more"
        )
    reasons = Counter(reason for _, reason in the_plan.skipped)
    for reason, count in reasons.most_common():
        click.echo(f"skipped: {count} cases, {reason}")
    click.echo(
        f"{sum(r['cases'] for r in rows if r['purpose'] == 'measure')} timed cases in {len(rows)} launches, "
        f"seed {job.options.seed}"
        + (f", budget {format_duration(job.profile.budget_s)}" if job.profile.budget_s else "")
    )


def _run_line(job: resume.Job) -> dict[str, Any]:
    argv = ["collbench", *sys.argv[1:]]
    line = launching.run_line(asdict(job.profile), job.options, f"collbench {__version__}", argv)
    return environment.redact(line, {}) if job.options.redact else line


def _create(job: resume.Job, output: Path | None, the_plan: plan.Plan) -> Path:
    path = output or results.new_path(job.profile.name)
    if path.is_dir():
        raise UsageError(f"-o {path} is a folder: name a file in it")
    with RunWriter(path, create=True) as writer:
        writer.write(_run_line(job))
        for case, reason in the_plan.skipped:
            writer.write({"kind": "skipped", "case": case.to_json(), "reason": reason})
    return path


def _execute(
    job: resume.Job,
    the_plan: plan.Plan,
    found: installation.Installation,
    path: Path,
    *,
    quiet: bool,
    as_json: bool,
) -> int:
    console = Console(stderr=True)
    total = sum(len(x.cases) for x in the_plan.measuring)
    live = console.is_terminal and not quiet
    started = time.monotonic()
    with LiveProgress(total, console) if live else PlainProgress(total, console, quiet=quiet) as progress:
        work = runner.Runner(
            the_plan, job.options, found, path, progress,
            budget_s=job.profile.budget_s, first_launch=job.first_launch, done=job.done, evidence=job.evidence,
            probe=probe.probe,
        )  # fmt: skip
        came = work.run()
    return _conclude(came, path, time.monotonic() - started, len(the_plan.skipped), as_json=as_json)


def _conclude(came: outcome.Outcome, path: Path, seconds: float, impossible: int, *, as_json: bool) -> int:
    failed = Counter((x["reason"], x["case"]["collective"], x["case"]["algorithm"]) for x in came.failed)
    if as_json:
        flat = {"run": str(path), **came.to_json(impossible), "seconds": round(seconds, 1)}
        click.echo(json.dumps(flat, ensure_ascii=False))
    for (reason, name, algorithm), count in failed.most_common():
        click.echo(f"failed: {name} {algorithm}, {count} cells: {reason}", err=True)
    click.echo(f"{came.words(impossible)} in {format_duration(seconds)}: {path}", err=as_json)
    if not as_json:
        click.echo("next: collbench show, collbench recommend")
    if came.is_empty:
        raise UnansweredError(f"nothing could be measured: see the failed lines in {path}")
    return 0 if came.cells or not came.failed else EXIT_UNANSWERED
