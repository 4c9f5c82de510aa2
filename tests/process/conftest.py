"""What several process tests start: the driver on a small profile, with a machine whose state the test decides."""

import itertools

import pytest

from collbench import installation, plan, profile, request, results, runner
from collbench.cli.run import _create
from collbench.reports.progress import PlainProgress
from collbench.resume import Job


class Console:
    """Takes a progress display's lines."""

    def __init__(self):
        self.lines = []

    def print(self, text, **_):
        self.lines.append(text)


@pytest.fixture(name="drive")
def _drive(tmp_path, mpiexec):
    """``drive(toml, probes=None, budget_s=None, job=None, **options)`` → (outcome, run, printed lines).

    ``probes`` are what the machine's probe reads, in turn, all of them; None = always the same.
    """

    def drive(toml, probes=None, budget_s=None, job=None, **change):
        options = request.RunOptions(prove=False, seed=1, **change)
        job = job or Job(request.with_options(profile.parse(toml, "t", "t"), options), options)
        found = installation.discover(None)
        whole = plan.make_plan(job.profile, job.options, library=found.library, version=found.version)
        path = job.output or _create(job, tmp_path / "r.jsonl", whole)
        values, console = itertools.repeat(40.0) if probes is None else iter(probes), Console()
        work = runner.Runner(
            whole, job.options, found, path, PlainProgress(4, console), budget_s=budget_s, done=job.done,
            first_launch=job.first_launch, probe=lambda: {"pingpong_ns": next(values)},
        )  # fmt: skip
        came = work.run()
        assert probes is None or next(values, None) is None, "a probe was planned that nobody asked for"
        return came, results.read(path), console.lines

    return drive
