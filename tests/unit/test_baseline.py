"""Baselines: one per hardware and node set, with who, when and why."""

import json

import pytest

from collbench import baseline, results
from collbench.errors import UnansweredError, UsageError

HERE = {"environment": {"cpu": "CPU X", "cores": 2, "hostname": "n1"}, "hosts": ["n1"]}
THERE = {"environment": {"cpu": "CPU Y", "cores": 64, "hostname": "n9"}, "hosts": ["n9"]}


@pytest.fixture(name="make", autouse=True)
def _make(write_run, lines, tmp_path, monkeypatch):
    """``make(name, time_us, **launch facts)`` writes a run of eight launches into the results folder."""
    monkeypatch.setenv("COLLBENCH_RESULTS", str(tmp_path))

    def make(name, time_us=10.0, **facts):
        out = []
        for number in range(8):
            out.append(lines.launch(number, 2, **{**facts, "probe": {"pingpong_ns": 90.0}}))
            out.append(lines.cell(number, "bcast", 2, 8, "default", [time_us * (1 + number / 1000)]))
        return write_run(out, name)

    return make


def test_set_shows_file_who_when_why(cli, make):
    """A baseline is shown with its reason and user."""
    assert cli("baseline", "set", make("a", **HERE), "--why", "first") == 0
    shown = json.loads(cli("baseline", "show", "--json").stdout)["baselines"]
    assert [(b["file"].endswith("a.jsonl"), b["why"], bool(b["who"])) for b in shown] == [
        (True, "first", True)
    ]


def test_a_second_one_for_the_same_hardware_is_an_update(cli, make):
    """set refuses to replace, update replaces and asks for a reason."""
    cli("baseline", "set", make("a", **HERE))
    assert cli("baseline", "set", make("b", **HERE)) == 2
    assert cli("baseline", "update", "b") == 2
    assert cli("baseline", "update", "b", "--why", "new driver") == 0
    assert [e.path.name for e in baseline.entries()] == ["b.jsonl"]


def test_the_baseline_that_stands_in_the_way_is_named(cli, make):
    """Of several, the one of this hardware."""
    cli("baseline", "set", make("mine", **HERE))
    cli("baseline", "set", make("theirs", **THERE))
    assert "mine.jsonl" in cli("baseline", "set", make("b", **HERE)).stderr


def test_update_needs_one_to_update(make):
    """There is nothing to update yet."""
    with pytest.raises(UsageError, match="baseline set"):
        baseline.put(make("a", **HERE), "x", replace=True)


def test_compare_takes_the_baseline_of_its_hardware(cli, make):
    """compare baseline NEW uses the run that was set: 0, and 1 when slower."""
    cli("baseline", "set", make("there", 10.0, **THERE))
    cli("baseline", "set", make("here", 10.0, **HERE))
    assert cli("compare", "baseline", make("good", 10.05, **HERE)) == 0
    slower = cli("compare", "baseline", make("bad", 12.0, **HERE))
    assert slower == 1
    assert "bad against here" in slower.stdout


def test_a_baseline_of_other_hardware_is_advisory(cli, make):
    """Slower than another machine's baseline fails nobody: exit 3, and it is said."""
    cli("baseline", "set", make("there", 10.0, **THERE))
    shown = cli("compare", "baseline", make("bad", 12.0, **HERE))
    assert shown == 3
    assert "advisory" in shown.stdout


def test_a_changed_or_missing_file_is_refused(make):
    """The checksum guards against a baseline that was edited or lost."""
    path = make("a", **HERE)
    baseline.put(path, "", replace=False)
    run = results.read(path)
    path.write_text(path.read_text().replace("bcast", "gather"))
    with pytest.raises(UnansweredError, match="checksum"):
        baseline.choose(run)
    path.unlink()
    with pytest.raises(UnansweredError, match="gone"):
        baseline.choose(run)


def test_no_baseline_cannot_be_answered(cli, make):
    """Missing data never passes."""
    assert cli("compare", "baseline", make("a", **HERE)) == 3
    assert cli("baseline", "show") == 3


def test_a_broken_store_is_named(cli, make, tmp_path):
    """A broken file of baselines is one sentence."""
    (tmp_path / baseline.FILE).write_text("{")
    shown = cli("compare", "baseline", make("a", **HERE))
    assert shown == 2
    assert "baseline.json is no file of baselines" in shown.stderr
