"""A run file keeps every whole line, whatever happens to its writer."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.errors import UnansweredError, UsageError
from collbench.runfile import SCHEMA, Follower, RunWriter, parse_lines

RUN = {"kind": "run", "schema": SCHEMA}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def as_bytes(*lines: dict) -> bytes:
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.dictionaries(st.text(), values, max_size=4), max_size=5))
def test_what_is_written_is_read_back(tmp_path_factory, contents):
    """Any JSON object with a kind survives, line breaks and other scripts within strings included."""
    path = tmp_path_factory.mktemp("run") / "a.jsonl"
    lines = [RUN, *({**content, "kind": "cell"} for content in contents)]
    with RunWriter(path, create=True) as writer:
        for line in lines:
            writer.write(line)
    assert parse_lines(path.read_bytes(), path) == (lines, [])


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.integers(1, 200))
def test_a_torn_last_line_costs_only_itself(cut):
    """A file cut at any byte gives every line before the cut, and a remark if something was cut off."""
    lines = [RUN, {"kind": "cell", "text": "µ" * 20}, {"kind": "cell", "n": 2}]
    data = as_bytes(*lines)
    kept = data[: max(len(as_bytes(RUN)), len(data) - cut)]
    read, remarks = parse_lines(kept, Path("a.jsonl"))
    whole = kept.count(b"\n")
    torn = kept[kept.rfind(b"\n") + 1 :]
    assert read[:whole] == lines[:whole]
    complete = bool(torn) and torn in [raw for raw in data.split(b"\n") if raw]
    assert len(read) == whole + complete
    assert bool(remarks) == (bool(torn) and not complete)
    assert all("cut off" in remark for remark in remarks)


def test_a_bad_line_in_the_middle_is_left_out_with_its_number():
    """Foreign text between lines loses nothing else; the remark names the line."""
    data = as_bytes(RUN) + b"mpirun noticed that process rank 3 died\n[1,2]\n" + as_bytes({"kind": "cell"})
    lines, remarks = parse_lines(data, Path("a.jsonl"))
    assert lines == [RUN, {"kind": "cell"}]
    assert [("line 2 is not JSON" in r, "line 3 is not a run-file line" in r) for r in remarks] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize(
    "data", [b"", b"\n\n", b"hello", as_bytes({"kind": "cell"}), b"\xff\xfe\x00", b"[" * 100_000]
)
def test_what_is_no_run_file_is_refused(data):
    """Empty, foreign, binary and headless files are wrong use, in one sentence."""
    with pytest.raises(UsageError, match=r"a\.jsonl is not a collbench run file"):
        parse_lines(data, Path("a.jsonl"))


@pytest.mark.parametrize("schema", [SCHEMA + 1, "1", None])
def test_a_newer_schema_is_refused_by_name(schema):
    """A file of a later collbench is not half understood."""
    with pytest.raises(UsageError, match="schema"):
        parse_lines(as_bytes({"kind": "run", "schema": schema}), Path("a.jsonl"))


def test_a_run_file_is_never_overwritten(tmp_path):
    """create refuses what exists, and leaves it as it was; without create lines are appended."""
    path = tmp_path / "new" / "a.jsonl"
    with RunWriter(path, create=True) as writer:
        writer.write(RUN)
    with pytest.raises(UsageError, match="never overwritten"):
        RunWriter(path, create=True)
    with RunWriter(path) as writer:
        writer.write({"kind": "cell"})
    assert path.read_bytes() == b'{"kind":"run","schema":1}\n{"kind":"cell"}\n'


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    """A file in the place of a folder is wrong use, not a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        RunWriter(tmp_path / "file" / "a.jsonl", create=True)


def test_a_number_that_is_none_is_refused():
    """NaN and infinity are no JSON: a measurement that has none must say None."""
    writer = RunWriter(Path(os.devnull))
    with pytest.raises(ValueError, match="JSON compliant"):
        writer.write({"kind": "cell", "time_s": float("nan")})
    writer.close()
    writer.close()


@pytest.fixture(name="small_disk")
def _small_disk(tmp_path):
    """A real file system of 16 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_a_full_disk_keeps_every_whole_line(small_disk):
    """ENOSPC ends in one sentence with exit 3; the file holds whole lines only and goes on once there is space."""
    path = small_disk / "a.jsonl"
    writer = RunWriter(path, create=True)
    writer.write(RUN)
    written = 1
    error = None
    while error is None and written < 100:
        try:
            writer.write({"kind": "cell", "n": written, "text": "x" * 1000})
            written += 1
        except UnansweredError as full:
            error = str(full)
    assert error
    assert "No space left" in error
    assert "all finished cells are kept" in error
    assert "--resume" in error
    lines, remarks = parse_lines(path.read_bytes(), path)
    assert (len(lines), remarks) == (written, [])
    writer.write({"kind": "cell", "small": True})
    writer.close()
    assert parse_lines(path.read_bytes(), path)[0][-1] == {"kind": "cell", "small": True}


def test_a_device_that_is_full_is_said_in_one_sentence():
    """/dev/full gives the same error where no small disk can be mounted (it cannot be truncated either)."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    writer = RunWriter(Path("/dev/full"))
    with pytest.raises(UnansweredError, match="No space left"):
        writer.write(RUN)


def test_a_follower_reads_each_whole_line_once(tmp_path):
    """Half a line is left for the next look; a file that is not there yet has no lines."""
    path = tmp_path / "r.jsonl"
    follower = Follower(path)
    assert follower.lines() == []
    path.write_bytes(b'{"a":1}\n{"b"')
    assert follower.lines() == [b'{"a":1}']
    assert follower.lines() == []
    with path.open("ab") as file:
        file.write(b":2}\n")
    assert follower.lines() == [b'{"b":2}']
