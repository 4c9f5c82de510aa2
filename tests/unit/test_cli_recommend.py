"""``collbench recommend`` on a run file: rules, guidance, files, exit statuses."""

import json

import pytest

from collbench.records import Case, Cell, Measurement


@pytest.fixture(name="run")
def _run(tmp_path):
    """A run at 2 and 4 ranks in which ring is twice as fast as the default from 4 KiB on."""
    path = tmp_path / "made.jsonl"
    lines = [{"kind": "run", "schema": 1, "tool": "collbench", "profile": "made", "seed": 1}]
    for launch, ranks in enumerate((2, 4)):
        lines.append({"kind": "launch", "launch": launch, "ranks": ranks, "nodes": 1, "ranks_per_node": ranks,
                      "library": {"name": "openmpi", "version": "5.0.11"}, "thread_level": "single"})  # fmt: skip
        for nbytes in (8, 4096, 65536):
            for algorithm, factor in (("default", 2.0), ("ring", 1.0 if nbytes >= 4096 else 4.0)):
                blocks = tuple(1e-6 * factor * (1 + 0.001 * i) for i in range(8))
                case = Case(Cell("allreduce", ranks, ranks, nbytes, op="sum"), "openmpi", algorithm)
                lines.append(Measurement(case, launch, blocks[4], blocks).to_json())
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_json_holds_rules_and_guidance(cli, run):
    found = json.loads(cli("recommend", run, "--json").stdout)
    rules = [r for r in found["rules"] if r["basis"] == "measured" and r["algorithm"] == "ring"]
    assert {2, 4} == {r["ranks"] for r in rules}
    assert all(r["gain_low"] > 0.9 for r in rules)
    assert {"verdict", "use"} <= {g["kind"] for g in found["guidance"]}


def test_a_table_is_written_once_and_its_activation_printed(cli, run, tmp_path):
    target = tmp_path / "rules.conf"
    first = cli("recommend", run, "--format", "openmpi", "-o", target)
    assert first == 0
    assert f"OMPI_MCA_coll_tuned_dynamic_rules_filename={target}" in first.stdout
    before = target.read_text()
    again = cli("recommend", run, "--format", "openmpi", "-o", target)
    assert again == 2
    assert "--force" in again.stderr
    assert cli("recommend", run, "--format", "openmpi", "-o", target, "--force") == 0
    assert before == target.read_text()


def test_several_formats_go_to_a_folder(cli, run, tmp_path):
    words = [
        "--format",
        "openmpi",
        "--format",
        "csv",
        "--format",
        "markdown",
        "--output-dir",
        tmp_path / "out",
    ]
    assert cli("recommend", run, *words) == 0
    assert {".conf", ".csv", ".md"} == {p.suffix for p in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--format", "mpich", "-o", "x"], 3),
        (["--format", "openmp", "-o", "x"], 2),
        (["--format", "openmpi"], 2),
        (["-o", "x"], 2),
        (["--provider", "nccl"], 3),
        (["--margin", "much"], 2),
    ],
)
def test_wrong_use_and_missing_rows_end_in_one_line(cli, run, words, status):
    found = cli("recommend", run, *words)
    assert status == found
    assert len(found.stderr.strip().splitlines()[-1:]) == 1
    assert "Traceback" not in found.stderr


def test_evaluate_states_each_way_of_holding_out(cli, run):
    found = json.loads(cli("recommend", run, "--evaluate", "--json").stdout)["quality"]
    ours = {q["held_out"]: q for q in found if q["method"] == "this table"}
    assert {"nothing", "ranks", "sizes", "launch"} >= ours.keys() >= {"nothing", "ranks", "sizes"}
    assert pytest.approx(ours["nothing"]["mean"], abs=0.01) == 0
    assert any("bound" in q["method"] for q in found)


def test_only_some_rank_counts_or_collectives_can_be_decided_for(cli, run):
    """The others' rows are as if they had not been measured; nothing left is a question without an answer."""
    rules = json.loads(cli("recommend", run, "--ranks", "4", "--json").stdout)["rules"]
    assert {r["ranks"] for r in rules} == {4}
    nothing = cli("recommend", run, "--collectives", "bcast")
    assert nothing == 3
    assert "no finished cell" in nothing.stderr
