"""Every published log in the shared data imports with the rows it holds, or is refused for the stated reason.

The expected numbers were counted without the importers: row lines by a regular expression, two cells a row, a failed
one where the size is 0 or ``#wrong`` is above 0.
"""

import csv
import json
from pathlib import Path

import pytest

from collbench import importers, results
from collbench.collectives import busbw
from collbench.errors import CollbenchError
from collbench.importers import nccl_rows
from collbench.importers.model import Options
from collbench.importers.source import Source, clean

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
MEDIANS = """
[columns]
collective = "collective"
ranks = "ranks"
ranks_per_node = "ppn"
nodes = "nodes"
nbytes = "bytes"
algorithm = "algo"
launch = "run"
time = "median_us"
[constants]
provider = "nccl"
memory = "cuda"
[where]
system = "mare_nostrum"
gpu = "yes"
[values.algorithm]
allreduce_nccl_ring = "ring"
allreduce_nccl_tree = "tree"
allreduce_nccl_collnet = "default"
allreduce_nccl_pat = "default"
"""
with (GOLDEN / "import_logs.tsv").open() as _file:
    LOGS = list(csv.DictReader(_file, delimiter="\t"))


def load(folder, log):
    options = Options(ranks=int(log["ranks_option"]) if log["ranks_option"] else None)
    with (folder / "data" / "logs" / log["file"]).open("rb") as handle:
        return importers.read(Source(handle, log["file"]), options)


@pytest.mark.parametrize("log", LOGS, ids=[log["file"] for log in LOGS])
def test_a_published_log(shared_dir, log):
    """Cells, failed cells and ranks are the counted ones; what is refused says why."""
    if log["refused"]:
        with pytest.raises(CollbenchError, match=log["refused"]) as caught:
            load(shared_dir, log)
        print(f"{log['file']}: refused: {caught.value}")
        return
    found = load(shared_dir, log)
    print(f"{log['file']}: {found.cells} cells, {found.failed} failed")
    assert (found.cells, found.failed) == (int(log["cells"]), int(log["failed"]))
    if log["ranks"].isdecimal():
        assert int(log["ranks"]) in {table.ranks for table in found.tables}


def test_every_log_is_expected(shared_dir):
    """No file of the folder is left out of the list."""
    assert {p.name for p in (shared_dir / "data" / "logs").glob("*.txt")} == {log["file"] for log in LOGS}


def test_published_bandwidths_are_reproduced(shared_dir):
    """busbw from time, size, collective and ranks is what the log prints, in every good half of every log."""
    checked = 0
    for log in LOGS:
        if not log["file"].startswith(("nccl", "rccl")) or log["refused"] or "debug" in log["file"]:
            continue
        text = (shared_dir / "data" / "logs" / log["file"]).read_text(errors="replace")
        printed: dict = {}
        for line in clean(text.splitlines()):
            words = line.split()
            columns = nccl_rows.columns_from_right(words)
            if columns is not None and nccl_rows.looks_like_row(words):
                row = nccl_rows.read_row(1, words, columns)
                for half, in_place in ((row.out, False), (row.inside, True)):
                    printed.setdefault((row.size, in_place, half.time_us), []).append(half.busbw)
        for table in load(shared_dir, log).tables:
            for row in table.rows:
                if row.time_s is None:
                    continue
                rate = busbw(row.collective, table.ranks, row.nbytes, row.time_s) / 1e9
                key = (row.nbytes, row.in_place, round(row.time_s * 1e6, 3))
                assert any(rate == pytest.approx(b, abs=0.011, rel=4e-3) for b in printed[key])
                checked += 1
    assert checked > 2000


def test_imported_logs_give_guidance_for_few_and_many_ranks(shared_dir, cli, tmp_path, monkeypatch):
    """``import`` and ``recommend``: rules for 8 and for 64 and more ranks come out of published logs."""
    monkeypatch.setenv("COLLBENCH_RESULTS", str(tmp_path))
    logs = shared_dir / "data" / "logs"
    files = [logs / f"nccl_multi_xxrjun_n{nodes}_g8_h100.txt" for nodes in (1, 10)]
    assert cli("import", *files, "-o", "h100").status == 0
    done = cli("recommend", "h100", "--json")
    assert done.status == 0
    rules = json.loads(done.stdout)["rules"]
    assert {8, 80} <= {rule["ranks"] for rule in rules if rule["collective"] == "allreduce"}


def test_published_csv_gives_crossovers(shared_dir, cli, tmp_path, monkeypatch):
    """A mapped CSV of forced algorithms ends in rules that change with the size at 64 ranks and more."""
    monkeypatch.setenv("COLLBENCH_RESULTS", str(tmp_path))
    (tmp_path / "map.toml").write_text(MEDIANS)
    table = shared_dir / "data" / "pico" / "pico_mn5_leonardo.csv"
    assert cli("import", table, "--mapping", tmp_path / "map.toml", "-o", "mn5").status == 0
    frame = results.frame(results.read(tmp_path / "mn5.jsonl"))
    assert set(frame["ranks"]) == {16, 32, 64, 128, 256}
    assert {"ring", "tree", "default"} <= set(frame["algorithm"])
    done = cli("recommend", "mn5", "--json")
    assert done.status == 0
    chosen = {rule["algorithm"] for rule in json.loads(done.stdout)["rules"] if rule["ranks"] >= 64}
    assert len(chosen) > 1


def test_two_imported_logs_are_compared_without_false_confidence(shared_dir, cli, tmp_path, monkeypatch):
    """Without samples and with one launch a side ``compare`` shows the effect and calls it inconclusive (exit 3)."""
    monkeypatch.setenv("COLLBENCH_RESULTS", str(tmp_path))
    for name in ("env1", "env5"):
        log = shared_dir / "data" / "logs" / f"nccl_all_reduce_polaris_n2g4_{name}.txt"
        assert cli("import", log, "-o", name).status == 0
    done = cli("compare", "env1", "env5")
    assert done.status == 3
    assert "inconclusive" in done.stdout + done.stderr
    assert "launch" in done.stdout + done.stderr
