"""Any CSV through a mapping, and collbench's own export."""

import io
import json

import pandas as pd
import pytest

from collbench import importers, results
from collbench.errors import UsageError
from collbench.importers import mapping, writer
from collbench.importers.model import Options
from collbench.importers.source import Source

MINIMAL = {"columns": {"collective": "c", "ranks": "p", "nbytes": "s", "time": "t"}}


def load(text, document=MINIMAL, **options):
    columns = mapping.parse(document, "map.toml")
    return importers.read(Source(io.BytesIO(text.encode()), "rows.csv"), Options(mapping=columns, **options))


def test_the_mapping_names_columns_units_and_words(request):
    """Columns, constants, per-rank sizes, nanoseconds, translated words, chosen rows, ``^M`` and ``null``."""
    golden = request.path.parent.parent / "golden"
    with (golden / "import_mapped.csv").open("rb") as handle:
        options = Options(mapping=mapping.load(golden / "import_mapped.toml"))
        found = importers.read(Source(handle, "mapped.csv"), options)
    assert [(t.label, len(t.rows)) for t in found.tables] == [("one", 4), ("one", 1), ("two", 1)]
    first = found.tables[0].rows[0]
    assert (first.collective, first.nbytes, first.algorithm) == ("allgather", 1024, "hierarchical")
    assert first.time_s == pytest.approx(5e-6)
    assert dict(first.params) == {"protocol": "ll"}
    assert first.dtype == "int32"
    assert [r.reason for r in found.tables[0].rows] == ["", "", "zero size", "no time"]
    assert found.tables[0].rank_reduction == "max"
    assert (found.tables[0].ranks_per_node, found.tables[0].nodes) == (4, 2)


def test_only_four_fields_are_indispensable():
    """Collective, ranks, nbytes and time suffice; everything else is null or the default."""
    found = load("c,p,s,t\nallreduce,4,1KiB,10\n")
    table = found.tables[0]
    assert (table.ranks, table.nodes, table.provider) == (4, None, "unknown")
    assert table.rows[0].nbytes == 1024
    assert table.rows[0].time_s == pytest.approx(1e-5)
    assert table.rows[0].algorithm == "default"


def test_repeated_rows_are_repetitions():
    """The second row of one cell is another launch, not a second row of the first."""
    found = load("c,p,s,t\nallreduce,4,8,10\nallreduce,4,8,11\nallreduce,4,16,12\n")
    assert [[r.nbytes for r in t.rows] for t in found.tables] == [[8, 16], [8]]


@pytest.mark.parametrize("delimiter", ["\t", ";", "|"])
def test_other_delimiters_are_found(delimiter):
    """TSV and other separators are taken from the header line."""
    text = "c,p,s,t\nallreduce,4,8,10\n".replace(",", delimiter)
    assert load(text).cells == 1


@pytest.mark.parametrize(
    ("document", "word"),
    [
        ({"columns": {"time": "t", "rank": "p"}}, "ranks"),
        ({"columns": {"time": "t"}, "colums": {}}, "columns"),
        ({"columns": {"time": "t"}, "units": {"time": "usec"}}, "us"),
        ({"columns": {"time": "t"}, "units": {"size": "per_rank"}}, "per-rank"),
        ({"columns": {"ranks": "p"}}, "time"),
        ({"columns": []}, "must be a table"),
        ({"columns": {"time": "t"}, "values": {"algorithm": "x"}}, "table of words"),
    ],
)
def test_a_wrong_mapping_names_the_right_word(document, word):
    """Unknown tables, fields and units end in an error with the nearest valid word."""
    with pytest.raises(UsageError, match=word):
        mapping.parse(document, "map.toml")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("allreduce,4,8,abc", "no number"), ("allreduce,4,8,-1", "not positive"), ("allreduce,x,8,1", "ranks"),
        ("nosuch,4,8,1", "collective"), ("allreduce,4,,1", "size"), ("allreduce,4,8", "cells"),
        ("allreduce,4,1e400,1", "not a size"),
    ],
)  # fmt: skip
def test_a_bad_row_is_an_error_unless_skipped(row, reason):
    """The error names file, line and text; with --skip-bad-rows the row is counted and listed."""
    text = f"c,p,s,t\nallreduce,4,8,10\n{row}\nallreduce,4,32,12\n"
    with pytest.raises(UsageError, match=rf"rows.csv:3: .*{reason}"):
        load(text)
    found = load(text, skip_bad_rows=True)
    assert found.cells == 2
    assert [(b.line, reason in b.reason) for b in found.bad] == [(3, True)]


def test_a_missing_field_names_the_option():
    """Ranks may come from --ranks; without either the error says so."""
    document = {"columns": {"collective": "c", "nbytes": "s", "time": "t"}}
    with pytest.raises(UsageError, match="--ranks N"):
        load("c,s,t\nallreduce,8,1\n", document)
    assert load("c,s,t\nallreduce,8,1\n", document, ranks=16).tables[0].ranks == 16
    with pytest.raises(UsageError, match="no column 's'"):
        load("c,t\nallreduce,1\n", document, ranks=16)


def test_labels_that_are_mere_requests_become_the_default(tmp_path):
    """--as-default maps a published label to default and marks the row."""
    document = {"columns": {**MINIMAL["columns"], "algorithm": "a"}, "constants": {"provider": "nccl"}}
    found = load("c,p,s,t,a\nallreduce,4,8,10,pat\nallreduce,4,8,12,Ring\n", document)
    writer.write(tmp_path / "r.jsonl", [found], argv=["x"], as_default=("pat",))
    frame = results.frame(results.read(tmp_path / "r.jsonl"))
    assert list(frame["algorithm"]) == ["default", "ring"]
    assert frame["warnings"][0] == [{"kind": "label_is_request", "label": "pat"}]


def test_unknown_algorithm_names_are_kept_and_named():
    """A name that the provider's table does not hold stays, and is listed once."""
    document = {"columns": {**MINIMAL["columns"], "algorithm": "a"}, "constants": {"provider": "openmpi"}}
    found = load("c,p,s,t,a\nallreduce,4,8,10,odd\nallreduce,4,16,12,odd\nallreduce,4,16,12,ring\n", document)
    assert writer.unknown_algorithms(found.tables) == ["odd"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_own_export_comes_back(tmp_path, suffix):
    """Rows exported as CSV or Parquet are the same rows after an import."""
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    document = {"columns": {**MINIMAL["columns"], "algorithm": "a", "protocol": "q", "launch": "l"},
                "constants": {"provider": "nccl", "ranks_per_node": 4, "sync": "barrier"}}  # fmt: skip
    found = load("c,p,s,t,a,q,l\nallreduce,8,8,10.5,ring,LL,0\nallgather,8,64,12,tree,Simple,1\n", document)
    writer.write(tmp_path / "first.jsonl", [found], argv=["x"])
    frame = results.frame(results.read(tmp_path / "first.jsonl"))
    table = frame.copy()
    for name in ("blocks_s", "percentiles_s", "warnings"):
        table[name] = [json.dumps(v) for v in table[name]]
    path = tmp_path / f"out.{suffix}"
    if suffix == "csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path, index=False)
    with path.open("rb") as handle:
        back = importers.read(Source(handle, path.name), Options())
    assert back.format == "collbench-export"
    writer.write(tmp_path / "second.jsonl", [back], argv=["x"])
    again = results.frame(results.read(tmp_path / "second.jsonl"))
    ignored = ["run", "source"]
    pd.testing.assert_frame_equal(frame.drop(columns=ignored), again.drop(columns=ignored), check_dtype=False)


def _blocks(page, language):
    parts = page.split(f"```{language}\n")[1:]
    return [part.partition("```")[0] for part in parts]


def test_the_documented_examples_are_read(request):
    """Both mappings of the page on importing import the rows shown with them."""
    import tomllib

    page = (request.path.parent.parent.parent / "docs" / "importing.md").read_text()
    files, tables = _blocks(page, "csv"), _blocks(page, "toml")
    first, second = (load(text, tomllib.loads(table)) for text, table in zip(files, tables, strict=True))
    assert [(t.label, t.provider, len(t.rows)) for t in first.tables] == [
        ("monday", "openmpi", 2),
        ("tuesday", "openmpi", 1),
    ]
    assert [row.algorithm for row in first.tables[0].rows] == ["ring", "default"]
    assert [[row.algorithm for row in t.rows] for t in second.tables] == [["ring", "default"], ["default"]]
    assert second.tables[0].rows[0].nbytes == 16 * 1024
    assert second.tables[0].rows[0].time_s == pytest.approx(67.243e-6)
