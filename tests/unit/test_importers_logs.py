"""Every published log in the shared data imports with the rows it holds, or is refused for the stated reason.

The expected numbers were counted without the importers: row lines by a regular expression, two cells a row, a failed
one where the size is 0 or ``#wrong`` is above 0.
"""

import csv
from pathlib import Path

import pytest

from collbench import importers
from collbench.collectives import busbw
from collbench.errors import CollbenchError
from collbench.importers import nccl_rows
from collbench.importers.model import Options
from collbench.importers.source import Source, clean

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
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
