"""Hostile and odd files: bounded, and ended by one clear sentence."""

import gzip
import io
import json
import os

import pytest

from collbench import importers
from collbench.errors import CollbenchError, UnansweredError, UsageError
from collbench.importers import source as reading
from collbench.importers.model import Options
from collbench.importers.source import Source, clean, find_files

OSU = "# OSU MPI Allreduce Latency Test v7.3\n# Datatype: MPI_FLOAT.\n# Size       Avg Latency(us)\n4    2.50\n8    2.75\n"


def load(data: bytes, name="log.txt", **options):
    return importers.read(Source(io.BytesIO(data), name), Options(**{"ranks": 8, **options}))


@pytest.mark.parametrize(
    "data",
    [
        OSU.encode(), gzip.compress(OSU.encode()), OSU.replace("\n", "\r\n").encode(), OSU.encode("utf-16"),
        OSU.encode("utf-8-sig"), OSU.encode("utf-16-le"), OSU.rstrip("\n").encode(), b"caf\xe9\n" + OSU.encode(),
    ],
    ids=["plain", "gzip", "crlf", "utf-16", "bom", "utf-16-le", "no last newline", "latin-1"],
)  # fmt: skip
def test_encodings_and_compression(data):
    """The same rows come from every encoding, line end and from gzip."""
    assert [row.time_s for row in load(data).tables[0].rows] == pytest.approx([2.5e-6, 2.75e-6])


@pytest.mark.parametrize(
    "prefix",
    ["0: ", "   0: ", "[1,0]<stdout>:", "[prterun-node0-1@1,0]<stdout>: ", "Thu Jul 18 15:41:05 2024<stdout>:",
     "2024-07-18T15:41:05.123Z ", "[2024-07-18 15:41:05] ", "2024-07-18 15:41:05,123 0: ", "\x1b[0;32m"],
)  # fmt: skip
def test_launcher_prefixes_are_removed(prefix):
    """What srun, mpirun, log collectors and terminals put before a line does not hide a row."""
    text = "".join(prefix + line + "\n" for line in OSU.splitlines())
    assert load(text.encode()).cells == 2


def test_cleaning_leaves_ordinary_rows_alone():
    """A row that begins with a number is no prefix."""
    rows = ["           8             2     float     sum", "1048576  12.5", "0         1.10"]
    assert clean(list(rows)) == rows


@pytest.mark.parametrize("chunk", [1, 7, 64, 4096])
def test_chunk_borders_do_not_matter(monkeypatch, chunk):
    """Rows are the same wherever the reader's chunks end."""
    monkeypatch.setattr(reading, "CHUNK", chunk)
    many = OSU + "".join(f"{16 << i}   {3 + i}.25\n" for i in range(12))
    handle = io.BytesIO(gzip.compress(many.encode()))
    found = importers.read(Source(handle, "log.txt"), Options(ranks=8), "osu")
    assert found.cells == 14


def test_a_giant_line_is_refused(monkeypatch):
    """A line beyond the limit ends the import instead of filling the memory."""
    monkeypatch.setattr(reading, "MAX_LINE", 1000)
    with pytest.raises(UsageError, match="line 6 is longer"):
        load(OSU.encode() + b"x" * (3 << 20))


def test_binary_files_are_refused():
    """NUL bytes are no log; the message says what to do."""
    with pytest.raises(UsageError, match="binary file"):
        load(OSU.encode() + b"\0\1\2" * 100)


def test_a_gzip_bomb_is_refused(monkeypatch):
    """A file that unpacks to hundreds of times its size is refused early."""
    monkeypatch.setattr(reading, "RATIO_FROM", 1 << 20)
    bomb = gzip.compress(OSU.encode() + b"\n" * (64 << 20))
    with pytest.raises(UsageError, match="times its size"):
        load(bomb)


def test_too_much_text_is_refused(monkeypatch):
    """There is an end to how much text one file may hold."""
    monkeypatch.setattr(reading, "MAX_TEXT", 1 << 20)
    with pytest.raises(UsageError, match="split it"):
        load(OSU.encode() + b"prose\n" * (1 << 20))


def test_a_cut_gzip_file_yields_what_is_whole():
    """The rows before the cut are kept and the cut is said."""
    many = OSU + "prose " * 20000
    data = gzip.compress(many.encode(), 0)
    found = load(data[: len(data) // 2])
    assert found.cells == 2
    assert "cut off" in " ".join(found.remarks)


def test_a_damaged_gzip_file_is_an_error():
    """Noise behind a gzip magic ends in one sentence."""
    with pytest.raises(UsageError, match="gzip"):
        load(b"\x1f\x8b" + b"\xff" * 100)


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"nccl_version": 1, "results": ' + "[" * 200_000, '{"nccl_version": 1, "results": 3}',
     '{"nccl_version": 22902, "results": [{"size": 1e999}]}', '{"nccl_version": true, "results": [null, 3, {}]}',
     '{"nccl_version": 22902, "results": [], "config": [], "env": 3, "errors": 7, "out_of_bounds": []}'],
    ids=range(6),
)  # fmt: skip
def test_hostile_json_ends_in_an_error(text):
    """Deep nesting, wrong types and huge numbers are errors, never tracebacks."""
    with pytest.raises(CollbenchError):
        load(text.encode())


def test_an_empty_and_an_unknown_file():
    """An empty file and prose are told apart, and the way out is named."""
    with pytest.raises(UnansweredError, match="is empty"):
        load(b"\n\n")
    with pytest.raises(UsageError, match="--mapping"):
        load(b"Dear reader,\nthis is prose.\n")


def test_folders_are_searched_without_following_links(tmp_path):
    """Regular files of all depths are found; links, hidden files and pipes are left out."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.txt").write_text(OSU)
    (tmp_path / "a" / ".hidden").write_text(OSU)
    (tmp_path / "a" / "link").symlink_to("/etc/passwd")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "a" / "pipe")
    assert find_files([tmp_path]) == [tmp_path / "a" / "b" / "x.txt"]
    with pytest.raises(UsageError, match="no file"):
        find_files([tmp_path / "nothing"])


def test_names_are_printed_without_control_characters():
    """A file's name cannot write to the terminal."""
    with pytest.raises(UnansweredError) as caught:
        load(b"", name="x\x1b[2J\n.txt")
    assert str(caught.value).isprintable()


def test_a_large_export_needs_no_more_than_its_rows(tmp_path):
    """An export whose nested cell is no JSON is a bad row with its line."""
    header = "collective,ranks,nbytes,provider,algorithm,time_s,params"
    data = f"{header}\nallreduce,8,8,nccl,ring,1e-5,{json.dumps('{bad')}\n"
    with pytest.raises(UsageError, match=":2: "):
        load(data.encode(), "e.csv")


IMB = "#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec]\n"
GEN_A = "#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error\n"


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("# OSU MPI Reduce Latency Test v7.3\n# Size  Avg Latency(us)  Iterations\n4  2.5  100\n", "8  2.7"),
        (f"# Benchmarking Allreduce\n# #processes = 4\n{IMB}4 100 1.0 2.0 1.5\n", "8 100 1.0"),
        (f"{GEN_A}1048576 262144 float sum 100.0 10.49 18.35 1e-07 100.0 10.49 18.35 1e-07\n",
         "2097152 524288 float sum 100.0 20.97 36.70 1e-07 100.0 20.97 36.70"),
    ],
    ids=["osu", "imb", "nccl-tests"],
)  # fmt: skip
def test_a_short_row_is_a_cut_off_end_or_an_error(text, cut):
    """As the last line it is left out with a remark; with anything after it, it is a row that cannot be read."""
    found = load((text + cut).encode(), "allreduce.txt")
    assert found.cells in (1, 2)
    assert "cut off" in " ".join(found.remarks)
    with pytest.raises(UsageError, match="cannot read this row"):
        load(f"{text}{cut}\n{text.splitlines()[-1]}\n".encode(), "allreduce.txt")
