"""Going on with a run file: what counts as done, and what does not."""

from dataclasses import asdict

import pytest

from collbench import profile, resume
from collbench.launching import run_line
from collbench.records import Case, Cell
from collbench.refinement import AGREE
from collbench.request import RunOptions
from collbench.runfile import RunWriter

TEXT = "[[sweep]]\ncollectives = 'allreduce'\nranks = 2\nsizes = '8:1M'\n"


@pytest.fixture(name="load")
def _load(tmp_path, lines):
    """``load(lines)`` writes a run file of two launches and these lines, and loads it to go on."""

    def load(*more):
        path = tmp_path / "r.jsonl"
        with RunWriter(path, create=True) as writer:
            writer.write(run_line(asdict(profile.parse(TEXT, "t", "t")), RunOptions(), "collbench 0", ()))
            writer.write(lines.launch(0, 2))
            writer.write(lines.launch(1, 2) | {"repetition": 0, "replaces": 0})
            for line in more:
                writer.write(line)
        return resume.load(path)

    return load


def case(nbytes):
    return Case(Cell("allreduce", 2, 2, nbytes, op="sum"), "openmpi", "default").to_json()


def test_sizes_whose_neighbours_agree_stay_left_out(load):
    """What the budget left out is measured now."""
    job = load(
        {"kind": "skipped", "launch": 0, "case": case(64), "reason": AGREE},
        {"kind": "skipped", "launch": 0, "case": case(256), "reason": "the time budget was spent"},
        {"kind": "skipped", "case": case(512), "reason": "needs an even number of ranks"},
    )
    assert {(r, c.cell.nbytes, c.cell.ranks_per_node) for r, _, c in job.done} == {(0, 64, None)}


def test_a_case_of_a_disturbed_launch_and_of_its_repeat_is_done_once(load, lines):
    """Both stand for the same repetition; the next launch gets a number of its own."""
    tries = [lines.cell(n, "allreduce", 2, 8, "default", [1.0], component=None) for n in (0, 1)]
    job = load(*tries)
    assert [(r, c.cell.nbytes) for r, _, c in job.done] == [(0, 8)]
    assert job.first_launch == 2
