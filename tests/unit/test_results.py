"""Runs are found by name or age and read into a table, one row a cell and launch."""

import json
import os

import pytest

from collbench import results
from collbench.errors import UnansweredError, UsageError


@pytest.fixture(name="folder")
def _folder(tmp_path, monkeypatch):
    """A results folder with three runs, the oldest first."""
    folder = tmp_path / "results"
    folder.mkdir()
    for age, name in enumerate(["old", "middle", "new"]):
        path = folder / f"{name}.jsonl"
        path.write_text('{"kind":"run","schema":1}\n')
        os.utime(path, ns=(age * 10**9, age * 10**9))
    monkeypatch.setenv("COLLBENCH_RESULTS", str(folder))
    return folder


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        (None, "new"),
        ("last", "new"),
        ("last~0", "new"),
        ("last~2", "old"),
        ("middle", "middle"),
        ("old.jsonl", "old"),
    ],
)
def test_a_run_is_found_by_name_or_age(folder, reference, name):
    """Nothing means the newest; last~2 goes two back; a name needs no extension."""
    assert results.find(reference).stem == name


def test_a_run_is_found_by_path(folder, tmp_path):
    """A path leads anywhere."""
    (tmp_path / "elsewhere.jsonl").write_text("")
    assert results.find(str(tmp_path / "elsewhere.jsonl")).stem == "elsewhere"


@pytest.mark.parametrize("reference", ["nowhere", "last~3", "last~x", "last~-1"])
def test_a_run_that_is_not_there_is_wrong_use(folder, reference):
    """The sentence repeats what was asked for."""
    with pytest.raises(UsageError, match=reference):
        results.find(reference)


def test_without_any_run_the_answer_is_the_command_that_makes_one(tmp_path):
    """An empty folder cannot answer (3) and says how to measure."""
    with pytest.raises(UnansweredError, match="collbench run"):
        results.find(None, tmp_path)


def test_a_run_is_read_into_one_row_a_cell(example):
    """Facts of launch and case stand in each row; failed and skipped cells are not among them."""
    run = results.read(example)
    table = results.frame(run)
    assert list(table.columns) == list(results.COLUMNS)
    assert len(table) == len(run.cells) == 12
    assert (len(run.failed), len(run.skipped), sorted(run.launches)) == (1, 1, [0, 1])
    row = table.iloc[0]
    assert (row["collective"], row["ranks"], row["nbytes"], row["algorithm"]) == (
        "allreduce",
        2,
        8,
        "default",
    )
    assert (row["library"], row["library_version"], row["state"]) == ("openmpi", "5.0.11", "fast")
    assert json.loads(table["params"].iloc[-1]) == {"segment_bytes": 65536}
    assert run.launches[0]["probe_after"] == {"state": "fast"}


def test_several_runs_become_one_table(example):
    """Rows keep the name of their run."""
    run = results.read(example)
    assert len(results.frame([run, run])) == 24
    assert set(results.frame([run, run])["run"]) == {"example"}


def test_a_torn_run_gives_what_is_whole(example):
    """A killed writer costs the line in flight, and that is remarked."""
    example.write_bytes(example.read_bytes() + b'{"kind":"cell","launch":1,"ca')
    run = results.read(example)
    assert len(run.cells) == 12
    assert "cut off" in run.remarks[0]


def test_an_imported_row_may_lack_all_but_the_indispensable(write_run):
    """Missing facts are None or empty, never invented."""
    case = {"collective": "allreduce", "ranks": 8, "nbytes": 64, "provider": "nccl", "algorithm": "default"}
    path = write_run([{"kind": "cell", "launch": 0, "case": case, "time_s": 1e-5}], source="nccl-tests")
    row = results.frame(results.read(path)).iloc[0]
    assert row["ranks_per_node"] is None
    assert row["rank_reduction"] is row["thread_level"] is row["library"] is row["state"] is None
    assert (row["blocks_s"], row["evidence_status"], row["source"]) == ([], "unknown", "nccl-tests")


def test_an_unreadable_file_is_one_sentence(tmp_path):
    """A folder or a missing file is wrong use."""
    with pytest.raises(UsageError, match="cannot read"):
        results.read(tmp_path)
