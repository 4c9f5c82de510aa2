"""``collbench ab`` with real ranks: launches alternate, environments reach the ranks, the answer has an exit status."""

import json
import os
import subprocess
import sys

import pytest

from collbench import results

pytestmark = pytest.mark.process

SMALL = [
    "--collectives",
    "allreduce",
    "--sizes",
    "8,4K",
    "--ranks",
    2,
    "--seed",
    7,
    "--iterations",
    50,
    "--quiet",
]


def collbench(*words, cwd, **env):
    """Run the command line as a user does and return the finished process."""
    return subprocess.run(
        [sys.executable, "-m", "collbench", *map(str, words)],
        cwd=cwd, env={**os.environ, "PYTHONSAFEPATH": "1", **env}, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip


def test_two_environments_alternate_and_are_judged(tmp_path):
    """A and B in turn, each variable only where it belongs; the run file can be judged again with the same answer."""
    done = collbench("ab", "ci", *SMALL, "--pairs", 2, "--b-env", "COLLBENCH_T=x y", "-o", "ab.jsonl", "--json",
                     cwd=tmp_path)  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr
    run = results.read(tmp_path / "ab.jsonl")
    launches = list(run.launches.values())
    assert [x["variant"] for x in launches][:4] == ["A", "B", "B", "A"]
    for launch in launches:
        assert launch["settings"].get("COLLBENCH_T") == ("x y" if launch["variant"] == "B" else None)
    found = json.loads(done.stdout)
    assert {c["cell"] for c in found["cells"]} == {"allreduce/2/8/default", "allreduce/2/4096/default"}
    assert all(c["paired"] for c in found["cells"] if c["ratio"] is not None)
    again = collbench("compare", "ab.jsonl", "--by", "variant", "--json", cwd=tmp_path)
    assert json.loads(again.stdout) == found
    assert again.returncode == done.returncode == found["status"]


def test_a_set_up_line_runs_before_the_ranks(tmp_path):
    """What the line of the login shell exports is what every rank of B runs with, and A does not."""
    words = ["--pairs", 1, "-o", "ab.jsonl", "--b-setup", "export MALLOC_ARENA_MAX='2'"]
    done = collbench("ab", "ci", *SMALL, *words, cwd=tmp_path)
    assert done.returncode in (1, 3), done.stderr
    seen = {
        x["variant"]: x["environment"]["variables"].get("MALLOC_ARENA_MAX")
        for x in results.read(tmp_path / "ab.jsonl").launches.values()
    }
    assert seen == {"A": None, "B": "2"}


def test_self_test_says_how_many_pairs_are_needed_or_why_not(tmp_path):
    """A against A ends in words on the machine's noise."""
    done = collbench("ab", "ci", *SMALL, "--pairs", 1, "--self-test", cwd=tmp_path)
    assert done.returncode in (1, 3), done.stderr
    assert "self-test:" in done.stdout
    (run,) = (tmp_path / "results").glob("ab-*.jsonl")
    assert results.read(run).header["ab"]["self_test"] is True


def test_a_failing_set_up_line_is_one_sentence(tmp_path):
    """Nothing is measured, nothing is written."""
    done = collbench(
        "ab", "quick", *SMALL, "--b-setup", "no_such_command_here", "-o", "ab.jsonl", cwd=tmp_path
    )
    assert done.returncode == 3
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "ab.jsonl").exists()
