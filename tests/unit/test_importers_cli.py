"""``collbench import`` as a user types it: outputs, verdicts, exit statuses, doubts."""

import gzip
import json
from pathlib import Path

import pytest

from collbench import results
from collbench.importers import FORMATS

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


@pytest.fixture(autouse=True)
def _results(monkeypatch, tmp_path):
    monkeypatch.setenv("COLLBENCH_RESULTS", str(tmp_path / "results"))


def run_of(tmp_path, name):
    return results.read(tmp_path / "results" / f"{name}.jsonl")


def test_a_log_becomes_a_normal_run_file(cli, tmp_path):
    """The run is named after the file, readable as any run, its rows say where they come from and lack samples."""
    assert cli("import", GOLDEN / "import_gen_b_srun_wrong.txt").status == 0
    run = run_of(tmp_path, "import_gen_b_srun_wrong")
    frame = results.frame(run)
    assert run.header["source"] == "nccl-tests"
    assert len(frame) == 7
    assert [line["reason"] for line in run.failed] == ["wrong result"] * 3
    assert set(frame["source"]) == {"nccl-tests"}
    assert set(frame["rank_reduction"]) == {"avg"}
    assert set(frame["sync"]) == {"none"}
    assert frame["state"].isna().all()
    assert frame["thread_level"].isna().all()
    assert not any(frame["blocks_s"])
    launch = run.launches[0]
    assert (launch["ranks"], launch["nodes"], launch["ranks_per_node"], launch["node_sizes"]) == (
        8,
        2,
        4,
        [4, 4],
    )
    assert launch["environment"] == {"NCCL_CROSS_NIC": "0"}


def test_a_repeated_block_is_another_launch(cli, tmp_path):
    """Two blocks of one test are launches with repetition 0 and 1."""
    assert cli("import", GOLDEN / "import_gen_c_multi_tagged.txt", "-o", "twice").status == 0
    run = run_of(tmp_path, "twice")
    assert [run.launches[n]["repetition"] for n in sorted(run.launches)] == [0, 0, 0, 0, 1]
    frame = results.frame(run)
    assert set(frame[frame.collective == "allreduce"]["launch"]) == {0, 4}


def test_a_folder_is_imported_with_a_verdict_for_each_file(cli, tmp_path):
    """Good files are kept, the others refused with their reason; the status is 0 as soon as one row was kept."""
    folder = tmp_path / "logs" / "deep"
    folder.mkdir(parents=True)
    for name in ("import_osu_several.txt", "import_pico_terminal.txt", "import_aborted.txt"):
        (folder / name).write_bytes((GOLDEN / name).read_bytes())
    (folder / "packed.txt.gz").write_bytes(gzip.compress((GOLDEN / "import_imb_groups.txt").read_bytes()))
    done = cli("import", tmp_path / "logs", "-o", "all", "--json")
    assert done.status == 0
    report = json.loads(done.stdout)
    assert [(Path(f["file"]).name, f["cells"]) for f in report["files"]] == [
        ("import_osu_several.txt", 10), ("packed.txt.gz", 9),
    ]  # fmt: skip
    assert [Path(f["file"]).name for f in report["refused"]] == [
        "import_aborted.txt",
        "import_pico_terminal.txt",
    ]
    assert run_of(tmp_path, "all").header["source"] == "imb+osu"


@pytest.mark.parametrize(
    ("text", "arguments", "status", "word"),
    [
        ("# OSU MPI Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n4   2.5\n", (), 2, "--ranks N"),
        ("# OSU MPI Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n4   x.5\n", ("--ranks", "4"), 2, ":3: "),
        ("# OSU MPI Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n", ("--ranks", "4"), 3, "without rows"),
        ("prose\n", (), 2, "--mapping"),
        ("", (), 3, "empty"),
        ("prose\n", ("--format", "osuu"), 2, "osu"),
    ],
    ids=["ranks", "row", "no rows", "unknown", "empty", "format"],
)  # fmt: skip
def test_what_cannot_be_imported_names_the_remedy(cli, tmp_path, text, arguments, status, word):
    """Exit 2 for what the user can mend, 3 where there is nothing; no run file appears."""
    path = tmp_path / "log.txt"
    path.write_text(text)
    done = cli("import", path, *arguments)
    assert done.status == status
    assert word in done.stderr
    assert not (tmp_path / "results").exists()


def test_an_nccl_table_without_a_name_asks_for_the_collective(cli, tmp_path):
    """Small sizes tell nothing: the message names --collective, and with it the table is read."""
    path = tmp_path / "x.txt"
    path.write_text((GOLDEN / "import_allreduce_cut_off.txt").read_text())
    done = cli("import", path)
    assert done.status == 2
    assert "--collective NAME" in done.stderr
    assert cli("import", path, "--collective", "all_reduce").status == 0


def test_bad_rows_are_skipped_only_on_request(cli, tmp_path):
    """--skip-bad-rows counts and lists what it leaves out."""
    text = (GOLDEN / "import_gen_a_allreduce.txt").read_text().replace("18.55", "98.55")
    path = tmp_path / "allreduce.txt"
    path.write_text(text)
    done = cli("import", path)
    assert done.status == 2
    assert "do not agree" in done.stderr
    assert "allreduce.txt:18:" in done.stderr
    done = cli("import", path, "--skip-bad-rows", "--json")
    assert done.status == 0
    report = json.loads(done.stdout)["files"][0]
    assert (report["cells"], [b["line"] for b in report["bad_rows"]]) == (6, [18])


def test_a_run_is_never_overwritten(cli):
    """A second import under the same name is refused before anything is read."""
    assert cli("import", GOLDEN / "import_headings.txt").status == 0
    done = cli("import", GOLDEN / "import_headings.txt")
    assert done.status == 2
    assert "-o NAME" in done.stderr


def test_the_library_option_names_the_provider_of_mpi_logs(cli, tmp_path):
    """OSU and IMB output names no library; NCCL's keeps its own."""
    files = (GOLDEN / "import_imb_groups.txt", GOLDEN / "import_headings.txt")
    assert cli("import", *files, "--library", "Intel MPI", "--ranks-per-node", "2", "-o", "x").status == 0
    frame = results.frame(run_of(tmp_path, "x"))
    assert set(frame[frame.source != ""]["provider"]) == {"intelmpi", "nccl"}
    assert set(frame["ranks_per_node"]) == {2}


def test_implausible_logs_are_doubted(cli, tmp_path):
    """Sockets instead of the fabric, and a time that falls as the size grows, are said with their likely cause."""
    done = cli("import", GOLDEN / "import_socket_network.txt", "-o", "slow")
    assert "sockets instead of the fabric, as NCCL's own line says" in done.stderr
    assert "time falls from" in done.stderr
    warnings = [w["kind"] for row in results.frame(run_of(tmp_path, "slow"))["warnings"] for w in row]
    assert sorted(set(warnings)) == ["below_links", "time_falls"]


def test_a_log_far_below_its_neighbours_is_doubted(cli, tmp_path):
    """Among imported logs of the same machine the one ten times slower is named."""
    text = (GOLDEN / "import_all_reduce_bench.txt").read_text()
    slow = tmp_path / "slow.txt"
    slow.write_text(text.replace("750.00Gbps", "37.50Gbps").replace("400.00Gbps", "20.00Gbps"))
    done = cli("import", GOLDEN / "import_all_reduce_bench.txt", slow, "-o", "both")
    assert done.status == 0
    assert "slow.txt:5: allreduce of 1 GiB takes 20 times as long" in done.stderr


def test_standard_input(cli, tmp_path, monkeypatch):
    """A dash reads standard input, also compressed."""
    import io
    import sys

    data = gzip.compress((GOLDEN / "import_headings.txt").read_bytes())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert cli("import", "-").status == 0
    assert len(results.frame(run_of(tmp_path, "imported"))) == 4


def test_every_format_is_documented():
    """The page on importing names every format."""
    page = (GOLDEN.parent.parent / "docs" / "importing.md").read_text()
    assert all(f"`{name}`" in page for name in FORMATS)
