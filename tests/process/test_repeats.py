"""Disturbed launches and sizes that agree, with real ranks: what is started again, left out, and gone on with."""

import json
import os
import subprocess
import sys

import pytest

from collbench import results
from collbench.refinement import AGREE, levels
from collbench.resume import load

pytestmark = pytest.mark.process

PROFILE = """
launches = 2
[sampling]
mode = "fixed"
iterations = 20
[[sweep]]
collectives = "allreduce"
ranks = 2
sizes = "8,1K"
algorithms = "default"
"""


@pytest.fixture(name="go")
def _go(drive):
    """``go(probes, budget_s=None, job=None)`` runs two launches whose probes read these values, in turn."""
    return lambda probes, **given: drive(PROFILE, probes, **given)


def test_a_disturbed_launch_is_started_again_after_the_planned_ones(go):
    """Its repeat holds the same cases, is counted apart, and its times count instead; nothing measured is lost."""
    came, run, said = go([40.0, 200.0, 40.0, 41.0, 40.0, 42.0])
    assert (came.cells, came.launches, came.repeated) == (4, 3, 1)
    assert [line.get("replaces") for line in run.launches.values()] == [None, None, 0]
    assert [line["repetition"] for line in run.launches.values()] == [0, 1, 0]
    assert sorted({c["launch"] for c in run.cells}) == [1, 2]
    assert {c["case"]["nbytes"] for c in run.replaced} == {8, 1024}
    assert len(results.frame(run, replaced=True)) == 6
    assert any("repeating 2 cases" in line for line in said)


@pytest.mark.once
def test_a_repeat_that_is_disturbed_more_replaces_nothing(go):
    """The less disturbed try counts, and one launch of a run of two is all that is repeated."""
    came, run, _ = go([40.0, 100.0, 40.0, 41.0, 40.0, 400.0])
    assert came.repeated == 1
    assert sorted({c["launch"] for c in run.cells}) == [0, 1]
    assert {c["launch"] for c in run.replaced} == {2}


@pytest.mark.once
def test_there_is_no_repeat_without_the_time_for_it_and_resume_makes_it_good(go):
    """A spent budget leaves the launch as it is; going on with the file starts it again, and nothing else."""
    came, run, _ = go([40.0, 200.0, 40.0, 41.0], budget_s=0.1)
    assert came.repeated == 0
    assert run.replaced == []
    again, run, _ = go([40.0, 41.0], job=load(run.path))
    assert (again.cells, again.launches, again.repeated, again.is_empty) == (0, 1, 1, False)
    assert sorted({c["launch"] for c in run.cells}) == [1, 2]


@pytest.mark.once
def test_nothing_is_repeated_where_that_was_declined(go):
    """--no-repeat leaves a disturbed launch as it is."""
    came, run, _ = go([40.0, 200.0, 40.0, 41.0], repeat=False)
    assert (came.launches, came.repeated, len(run.cells)) == (2, 0, 4)


def collbench(*words, cwd):
    return subprocess.run(
        [sys.executable, "-m", "collbench", *map(str, words)],
        cwd=cwd, env={**os.environ, "PYTHONSAFEPATH": "1"}, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


def test_sizes_between_agreeing_ones_are_left_out_and_stay_so(tmp_path, mpiexec):
    """Coarse sizes are all measured, the default everywhere; what is left out is no fault of the run, of show, or of
    going on.
    """
    done = collbench("run", "--collectives", "bcast", "--ranks", 2, "--sizes", "8:1M", "--algorithms", "portable:flat",
                     "--refine", "--no-prove", "--seed", 3, "-o", "r.jsonl", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = results.read(tmp_path / "r.jsonl")
    sizes = levels(8 << n for n in range(18))
    lines = [line for line in map(json.loads, run.path.read_text().splitlines()) if "case" in line]
    # A busy machine may have had the launch repeated; the repeat measures what the first try measured.
    order = [(line["kind"], line["case"]["nbytes"]) for line in lines if line["launch"] == 0]
    default = [line for line in lines if line["launch"] == 0 and line["case"]["algorithm"] == "default"]
    assert {size for size, level in sizes.items() if not level} <= {n for kind, n in order if kind == "cell"}
    assert [line["kind"] for line in default] == ["cell"] * 18
    assert sorted(n for _, n in order) == sorted([*sizes, *sizes])
    assert [sizes[n] for _, n in order] == sorted([*sizes.values(), *sizes.values()])
    left = [line for line in run.skipped if line["reason"] == AGREE]
    assert len(left) == len(run.skipped) == 36 - len(run.cells)
    assert {line.get("replaces") for line in run.launches.values()} <= {None, 0}
    shown = collbench("show", "r.jsonl", cwd=tmp_path)
    assert shown.returncode == 0
    assert ("measured: neighbours agree" in shown.stdout) is bool(left)
    again = collbench("run", "--resume", "r.jsonl", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    after = results.read(run.path)
    assert [line for number, line in after.launches.items() if number and "replaces" not in line] == []
    assert len(after.cells) == len(run.cells)
