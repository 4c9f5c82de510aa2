"""``collbench ab`` with real ranks: launches alternate, environments reach the ranks, the answer has an exit status."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from collbench import results, tables
from collbench.records import Rule, Selection
from collbench.sides import CONFIRM_FROM

pytestmark = pytest.mark.process

FEW = ["--collectives", "allreduce", "--ranks", 2, "--seed", 7, "--iterations", 20, "--quiet"]
SMALL = [*FEW, "--sizes", "8,4K"]
RING = {
    "openmpi": {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "OMPI_MCA_coll_tuned_allreduce_algorithm": "4"},
    "mpich": {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring", "MPIR_CVAR_DEVICE_COLLECTIVES": "none"},
}
"""Library → control variables under which its default allreduce is a ring."""


def collbench(*words, cwd, **env):
    """Run the command line as a user does and return the finished process."""
    return subprocess.run(
        [sys.executable, "-m", "collbench", *map(str, words)],
        cwd=cwd, env={**os.environ, "PYTHONSAFEPATH": "1", **env}, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip


def timed(run):
    """Launch lines that measured, in order."""
    return [x for x in run.launches.values() if x["purpose"] == "measure"]


@pytest.fixture(name="pairs", scope="module")
def _pairs(tmp_path_factory):
    """A folder with two pairs of two environments in ab.jsonl, and the finished process."""
    folder = tmp_path_factory.mktemp("ab")
    done = collbench("ab", "ci", *SMALL, "--pairs", 2, "--b-env", "COLLBENCH_T=x y", "-o", "ab.jsonl", "--json",
                     cwd=folder)  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr
    return folder, done


def test_two_environments_alternate_and_are_judged(pairs):
    """A and B in turn, each variable only where it belongs; the run file can be judged again with the same answer."""
    folder, done = pairs
    launches = timed(results.read(folder / "ab.jsonl"))
    assert [x["variant"] for x in launches][:4] == ["A", "B", "B", "A"]
    for launch in launches:
        assert launch["settings"].get("COLLBENCH_T") == ("x y" if launch["variant"] == "B" else None)
    found = json.loads(done.stdout)
    assert {c["cell"] for c in found["cells"]} == {"allreduce/2/8/default", "allreduce/2/4096/default"}
    assert all(c["paired"] for c in found["cells"] if c["ratio"] is not None)
    again = collbench("compare", "ab.jsonl", "--by", "variant", "--json", cwd=folder)
    assert json.loads(again.stdout) == found
    assert again.returncode == done.returncode == found["status"]


def test_each_environment_is_proven_once(pairs):
    """One untimed launch an environment, before the first pair; what it found stands in every cell of the file."""
    run = results.read(pairs[0] / "ab.jsonl")
    assert [(x["purpose"], x["variant"]) for x in run.launches.values()][:3] == [
        ("proof", "A"),
        ("proof", "B"),
        ("measure", "A"),
    ]
    assert sum(x["purpose"] == "proof" for x in run.launches.values()) == 2
    assert {run.launches[p["launch"]]["variant"] for p in run.proofs} == {"A", "B"}
    proven = {p["case"]["nbytes"]: p["effective"] for p in run.proofs}
    assert all(c["effective"] == proven[c["case"]["nbytes"]] for c in run.cells)


@pytest.mark.once
def test_an_interrupted_comparison_goes_on_with_whole_pairs(pairs, tmp_path):
    """Cut off within the second pair: --resume measures a fresh pair, not the missing half, and proves nothing twice."""
    lines = (pairs[0] / "ab.jsonl").read_text().splitlines(keepends=True)
    fourth = timed(results.read(pairs[0] / "ab.jsonl"))[3]["launch"]
    cut = next(
        n for n, x in enumerate(map(json.loads, lines)) if x["kind"] == "launch" and x["launch"] == fourth
    )
    (tmp_path / "ab.jsonl").write_text("".join(lines[:cut]) + lines[cut][:50])
    done = collbench("ab", "--resume", "ab.jsonl", "--quiet", cwd=tmp_path)
    assert done.returncode in (0, 1, 3), done.stderr
    run = results.read(tmp_path / "ab.jsonl")
    repetitions = [(x["repetition"], x["variant"]) for x in timed(run)]
    assert repetitions[:5] == [(0, "A"), (0, "B"), (1, "B"), (2, "A"), (2, "B")]
    assert sum(x["purpose"] == "proof" for x in run.launches.values()) == 2


@pytest.mark.once
def test_a_comparison_does_not_go_on_with_another_environment(pairs, tmp_path):
    """A variable that can change what is measured is not what it was: one sentence, exit 2, nothing is written."""
    shutil.copy(pairs[0] / "ab.jsonl", tmp_path)
    before = (tmp_path / "ab.jsonl").read_bytes()
    done = collbench("ab", "--resume", "ab.jsonl", cwd=tmp_path, MALLOC_ARENA_MAX="3")
    assert done.returncode == 2
    assert "MALLOC_ARENA_MAX was None and is '3'" in done.stderr
    done = collbench("ab", "--resume", "ab.jsonl", "--pairs", 20, cwd=tmp_path)
    assert done.returncode == 2
    assert "--pairs is in the run file already" in done.stderr
    assert (tmp_path / "ab.jsonl").read_bytes() == before


@pytest.mark.once
def test_a_set_up_line_runs_before_the_ranks(tmp_path):
    """What the line of the login shell exports is what every rank of B runs with, and A does not."""
    words = ["--sizes", 8, "--pairs", 1, "-o", "ab.jsonl", "--no-prove", "--sync", "dissemination",
             "--b-setup", "export MALLOC_ARENA_MAX='2'"]  # fmt: skip
    done = collbench("ab", "ci", *FEW, *words, cwd=tmp_path)
    assert done.returncode in (1, 3), done.stderr
    run = results.read(tmp_path / "ab.jsonl")
    seen = {
        x["variant"]: x["environment"]["variables"].get("MALLOC_ARENA_MAX") for x in run.launches.values()
    }
    assert seen == {"A": None, "B": "2"}
    assert not run.proofs
    assert {c["sync"] for c in run.cells} == {"dissemination"}, "both sides start as --sync says"


@pytest.mark.once
def test_self_test_within_a_budget(tmp_path):
    """A against A ends in words on the machine's noise; a budget that is too short leaves one whole pair and says so."""
    words = ["--sizes", 8, "--pairs", 3, "--budget", "1s", "--no-prove", "--self-test"]
    done = collbench("ab", "ci", *FEW, *words, cwd=tmp_path)
    assert done.returncode in (1, 3), done.stderr
    assert "self-test:" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(f"[exit {done.returncode}]")
    assert "the budget of 1 s leaves no time for another pair; measured now in screening: 1" in done.stderr
    (path,) = (tmp_path / "results").glob("ab-*.jsonl")
    run = results.read(path)
    assert run.header["ab"]["self_test"] is True
    assert [x["variant"] for x in timed(run)] == ["A", "A2"]


def test_a_control_variable_that_changes_the_algorithm_is_a_finding(mpi_library, tmp_path):
    """The default runs a ring in one environment only: said in words and per cell; suspects are measured again."""
    if mpi_library not in RING:
        pytest.skip("needs Open MPI or MPICH: their control variables are known here")
    settings = ",".join(f"{k}={v}" for k, v in RING[mpi_library].items())
    words = ["--sizes", 8, "--pairs", 1, "--confirm", "--variant", "base:", "--variant", f"ring:{settings}"]
    done = collbench("ab", "ci", *FEW, *words, "-o", "ab.jsonl", "--json", cwd=tmp_path)
    assert done.returncode in (1, 3), done.stderr
    found = json.loads(done.stdout)
    (finding,) = [x for x in found["remarks"] if x.startswith("allreduce 2 ranks 8 B: base ran ")]
    assert "ring" in finding.partition(", ring ran ")[2]
    (cell,) = found["cells"]
    assert "ring" in cell["new_ran"]
    assert cell["base_ran"] != cell["new_ran"]
    stages = {}
    for line in timed(results.read(tmp_path / "ab.jsonl")):
        stages.setdefault(line["repetition"] >= CONFIRM_FROM, []).append(line["variant"])
    # a pair that met two machine states is measured once more
    assert [found[:2] for found in stages.values()] == [["base", "ring"]] * 2


def test_a_tuned_table_is_what_b_runs_with(mpi_library, tmp_path):
    """--b-table: B's default runs what the table says, A's does not."""
    if mpi_library != "openmpi":
        pytest.skip("needs Open MPI in this environment")
    rule = Rule(collective="allreduce", ranks=2, ranks_per_node=2, min_bytes=0, max_bytes=None, provider="openmpi",
                algorithm="ring")  # fmt: skip
    chosen = Selection((rule,), "openmpi", {"runs": ["test"], "needs": {}})
    (tmp_path / "rules.conf").write_text(tables.render(chosen, "openmpi"))
    words = ["--sizes", 8, "--pairs", 1, "--b-table", "rules.conf", "-o", "ab.jsonl", "--json"]
    done = collbench("ab", "ci", *FEW, *words, cwd=tmp_path)
    assert done.returncode in (1, 3), done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    assert "ring" in cell["new_ran"].split(" or ")
    assert "ring" not in cell["base_ran"].split(" or ")


@pytest.mark.once
def test_a_failing_set_up_line_is_one_sentence(tmp_path):
    """Nothing is measured, nothing is written."""
    done = collbench(
        "ab", "quick", *SMALL, "--b-setup", "no_such_command_here", "-o", "ab.jsonl", cwd=tmp_path
    )
    assert done.returncode == 3
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "ab.jsonl").exists()
