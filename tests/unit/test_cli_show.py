"""``collbench show``: what it prints, as words and as JSON, and how it ends."""

import json

import pytest

from collbench.runfile import RunWriter


def test_a_whole_run_at_eighty_columns(cli, example, golden, monkeypatch):
    """Overview, tables, maps, legend and notes, in this order."""
    monkeypatch.setenv("COLUMNS", "80")
    result = cli("show", example)
    assert result == 0
    golden("show_run.txt", result.stdout)
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_nothing_means_the_newest_run(cli, example, monkeypatch):
    """Without an argument the newest run of the results folder is shown."""
    monkeypatch.setenv("COLLBENCH_RESULTS", str(example.parent))
    assert cli("show").stdout.startswith("run example · profile quick")


def test_only_maps(cli, example):
    """--maps leaves the tables out."""
    shown = cli("show", example, "--maps").stdout
    assert "fastest by size and ranks" in shown
    assert "time in µs" not in shown


def test_json_holds_cells_winners_and_what_is_missing(cli, example):
    """Times in seconds, bandwidths in bytes per second, failures and skips grouped; nothing else on stdout."""
    found = json.loads(cli("show", example, "--json").stdout)
    assert len(found["cells"]) == 11
    best = [c for c in found["cells"] if (c["ranks"], c["nbytes"], c["fastest"]) == (2, 65536, True)]
    assert [(c["algorithm"], c["time_s"], c["blocks"]) for c in best] == [("ring", pytest.approx(20.2e-6), 5)]
    assert best[0]["busbw"] == best[0]["algbw"] == pytest.approx(65536 / 20.2e-6)
    winners = {(w["collective"], w["ranks"], w["nbytes"]): w["algorithm"] for w in found["winners"]}
    assert winners["allreduce", 2, 8] == "default"
    assert winners["barrier", 2, 0] == "recursive_doubling"
    assert [g["reason"] for g in found["failed"]] == ["timeout"]
    assert [g["count"] for g in found["skipped"]] == [1]
    assert found["contradicted"][0]["effective"] == "recursive_doubling"
    assert found["run"]["libraries"] == ["openmpi 5.0.11"]


def test_filters_that_match_nothing_are_no_answer(cli, example):
    """Exit 3, with what the run does hold."""
    result = cli("show", example, "--collective", "bcast")
    assert result == 3
    assert "it has allreduce, barrier on 2, 4 ranks" in result.stderr


def test_a_run_without_a_measured_cell_is_no_answer(cli, write_run):
    """Exit 3; the overview is still printed."""
    assert cli("show", write_run([])) == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(["--collective", "allredcue"], "did you mean 'allreduce'"), (["--ranks", "two"], "not a list of rank counts"),
     (["--metric", "speed"], "--metric"), (["--nonsense"], "--nonsense")],
)  # fmt: skip
def test_wrong_use_is_one_sentence(cli, example, words, sentence):
    """Exit 2 and one line on stderr, no traceback."""
    result = cli("show", example, *words)
    assert result == 2
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_evidence_as_json(cli, example):
    """Each finding names what was asked for and what ran."""
    found = json.loads(cli("show", example, "--evidence", "--collective", "allreduce", "--json").stdout)[
        "evidence"
    ]
    contradicted = [f for f in found if f["status"] == "contradicted"]
    assert [(f["requested"], f["effective"]) for f in contradicted] == [("ring", "recursive_doubling")]


def test_guidelines_name_the_composition_that_wins(cli, write_run, lines):
    """An allreduce that costs twice reduce and bcast is a violation, in words and as JSON."""
    made = [lines.launch(0, 2)]
    for name, time_us in (("allreduce", 20.0), ("reduce", 5.0), ("bcast", 4.0)):
        made.append(lines.cell(0, name, 2, 1024, "default", [time_us + i / 100 for i in range(9)]))
    path = write_run(made)
    shown = cli("show", path, "--guidelines").stdout
    assert "reduce + bcast" in " ".join(shown.split())
    assert "1 guideline violation" in shown
    (found,) = json.loads(cli("show", path, "--guidelines", "--json").stdout)["violations"]
    assert found["composition"] == ["reduce", "bcast"]
    assert "1 guideline violation" in cli("show", path, "--guidelines", "--collective", "allreduce").stdout
    assert "no guideline is violated" in cli("show", path, "--guidelines", "--collective", "bcast").stdout


BARE = {"collective": "allreduce", "ranks": 16, "nbytes": 1024, "provider": "nccl", "algorithm": "default"}


@pytest.mark.parametrize("option", [[], ["--json"], ["--evidence"], ["--metric", "busbw"], ["--maps"]])
@pytest.mark.parametrize(
    "lines",
    [
        [{"kind": "cell", "case": BARE, "time_s": 1e-5}],
        [{"kind": "cell", "launch": 4, "case": {**BARE, "algorithm": "ring"}, "time_s": 1e-5, "evidence": None}],
        [{"kind": "launch", "launch": 0, "library": None, "probe": None}, {"kind": "cell", "launch": 0, "case": BARE,
          "time_s": 1e-5, "warnings": None, "blocks_s": None}],
        [{"kind": "cell", "launch": 0, "case": {**BARE, "collective": "allreduce_tail"}, "time_s": 1e-5}],
        [{"kind": "failed", "case": BARE}, {"kind": "skipped"}, {"kind": "proof"}, {"kind": "news"}],
    ],
    ids=["bare", "unknown-launch", "nulls", "foreign-collective", "no-cells"],
)  # fmt: skip
def test_runs_that_lack_fields_never_end_in_a_traceback(cli, write_run, lines, option):
    """Imported and foreign lines lack much; show prints what is there (exit 0) or says that there is nothing (3)."""
    result = cli("show", write_run(lines, profile=None, seed=None), *option)
    assert result in (0, 3)


def test_a_newer_run_file_is_refused_by_name(cli, tmp_path):
    """A file of a later schema is not half understood."""
    path = tmp_path / "later.jsonl"
    with RunWriter(path, create=True) as writer:
        writer.write({"kind": "run", "schema": 99})
    result = cli("show", path)
    assert result == 2
    assert "schema 99" in result.stderr
