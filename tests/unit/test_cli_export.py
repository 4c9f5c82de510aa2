"""``collbench export``: rows for other programs, and run files that name no machine."""

import json
import re
import sys

import pandas as pd
import pytest

from collbench import results
from collbench.results import CASE_COLUMNS, COLUMNS


def test_csv_holds_every_row_and_column(cli, example, tmp_path, golden):
    """One row a cell and launch; lists and parameters are JSON text."""
    out = tmp_path / "cells.csv"
    assert cli("export", example, "-o", out) == 0
    table = pd.read_csv(out)
    assert list(table.columns) == list(COLUMNS)
    assert json.loads(table["params"].iloc[-1]) == {"segment_bytes": 65536}
    assert json.loads(table["blocks_s"].iloc[0])[0] == 2e-6
    golden("export_cells.csv", out.read_text())


def test_csv_comes_back_through_import(cli, example, tmp_path):
    """Every case with its time, blocks and evidence survives export and import; what ran as something else too."""
    out, back = tmp_path / "cells.csv", tmp_path / "back.jsonl"
    assert cli("export", example, "-o", out) == 0
    assert cli("import", out, "-o", back) == 0
    sent, got = (results.frame(results.read(path)) for path in (example, back))
    kept = [*CASE_COLUMNS, "time_s", "blocks_s", "effective", "evidence_status", "evidence_by", "sync", "rank_reduction",
            "thread_level", "library_version", "oversubscribed"]  # fmt: skip
    assert sent[kept].to_dict("records") == got[kept].to_dict("records")


def test_what_went_round_comes_back_through_import(cli, write_run, lines, tmp_path):
    """Rows with rotating buffers stay apart from fixed ones."""
    around = {**lines.cell(0, "bcast", 2, 8, "chain", [1.0]), "rotation": "3 buffers, root"}
    run = write_run(
        [lines.launch(0, 2), around, lines.cell(0, "bcast", 2, 16, "chain", [1.0])], name="around"
    )
    assert cli("export", run, "-o", tmp_path / "cells.csv") == 0
    assert cli("import", tmp_path / "cells.csv", "-o", tmp_path / "back.jsonl") == 0
    got = results.frame(results.read(tmp_path / "back.jsonl"))
    assert dict(zip(got["nbytes"], got["rotation"], strict=True)) == {8: "3 buffers, root", 16: "none"}


def test_parquet_comes_back_through_import(cli, example, tmp_path):
    """The same through Parquet, where pyarrow is there."""
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    out, back = tmp_path / "cells.parquet", tmp_path / "back.jsonl"
    assert cli("export", example, "-o", out) == 0
    assert cli("import", out, "-o", back) == 0
    sent, got = (results.frame(results.read(path)) for path in (example, back))
    assert sent["time_s"].tolist() == got["time_s"].tolist()


def test_without_pyarrow_parquet_is_one_sentence(cli, example, tmp_path, monkeypatch):
    """Exit 2, the command that mends it, and no half file."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pandas.io.parquet", None)
    out = tmp_path / "cells.parquet"
    result = cli("export", example, "-o", out)
    assert result == 2
    assert "pip install 'collbench[parquet]'" in result.stderr
    assert not out.exists()


def test_several_runs_become_one_table(cli, example, write_run, lines, tmp_path):
    """The run's name tells the rows apart."""
    other = write_run([lines.launch(0, 2), lines.cell(0, "bcast", 2, 8, "chain", [1.0])], name="other")
    assert cli("export", example, other, "-o", tmp_path / "both.csv") == 0
    assert set(pd.read_csv(tmp_path / "both.csv")["run"]) == {"example", "other"}


def test_a_reduced_run_names_no_host_user_or_path(cli, write_run, lines):
    """Hosts become h0, h1 … alike in all lines; times stay; the result lies beside the run and is readable."""
    launches = [
        {"kind": "failed", "launch": 0, "case": lines.cell(0, "bcast", 2, 8, "ring", [1.0])["case"], "reason": "crashed",
         "detail": "node18.site.example: /home/somebody/work/x.so: gone"},
        lines.launch(0, 2, hosts=["node17.site.example", "node18.site.example"]),
        lines.cell(0, "bcast", 2, 8, "chain", [1.0]),
    ]  # fmt: skip
    path = write_run(launches, name="secret", argv=["/home/somebody/bin/collbench", "run"])
    assert cli("export", path, "--reduce") == 0
    reduced = path.with_name("secret.reduced.jsonl")
    text = reduced.read_text()
    assert not [word for word in ("node17", "node18", "somebody", "site.example") if word in text]
    (first, second), detail = (
        re.search(r'"hosts":\["(h\d)","(h\d)"\]', text).groups(),
        json.loads(text.splitlines()[1]),
    )
    assert first != second
    assert detail["detail"].startswith(f"{second}: ")
    assert results.read(reduced).cells[0]["time_s"] == results.read(path).cells[0]["time_s"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [([], "must end in"), (["-o", "x.txt"], "must end in"), (["--reduce", "-o", "x.csv"], "--reduce"),
     (["-o", "EXAMPLE"], "never overwritten")],
)  # fmt: skip
def test_wrong_use_is_one_sentence(cli, example, words, sentence, tmp_path, monkeypatch):
    """Exit 2; nothing is overwritten."""
    monkeypatch.chdir(tmp_path)
    before = example.read_bytes()
    result = cli("export", example, *(str(example) if word == "EXAMPLE" else word for word in words))
    assert result == 2
    assert sentence in result.stderr
    assert example.read_bytes() == before


def test_json_names_the_files(cli, example, tmp_path):
    """Machine output on stdout, words on stderr."""
    out = tmp_path / "cells.csv"
    result = cli("export", example, "-o", out, "--json")
    assert json.loads(result.stdout) == {"files": [str(out)], "rows": 12}
    assert "wrote 12 rows" in result.stderr
