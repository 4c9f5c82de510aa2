"""Damaged rows of real formats: an import ends in rows or in one sentence, never in a traceback or a wrong time."""

import io
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench import importers
from collbench.errors import CollbenchError
from collbench.importers import mapping
from collbench.importers.model import Options
from collbench.importers.source import Source

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
FILES = sorted(p for p in GOLDEN.glob("import_*") if p.suffix in (".txt", ".json", ".csv"))
COLUMNS = mapping.load(GOLDEN / "import_mapped.toml")
WORDS = ("N/A", "-1", "nan", "inf", "1e999", "0", "9" * 400, "é", "٣", "²", "#", "host:1:2 [0] NCCL INFO x", "",
         "AllReduce: 8 Bytes -> Algo 9 proto 9",
         "[1,0]<stdout>:", "0x1f", "1_000", "-0.0", "Fail", "{", "\x1b[31m")  # fmt: skip


def attempt(data: bytes, name: str, *, skip: bool):
    options = Options(ranks=8, collective="allreduce", skip_bad_rows=skip, mapping=None)
    if name.endswith(".csv"):
        options = Options(ranks=8, skip_bad_rows=skip, mapping=COLUMNS)
    said = ""
    try:
        return importers.read(Source(io.BytesIO(data), name), options)
    except CollbenchError as error:
        said = str(error)
    assert said
    assert said.isprintable()
    return None


def damage(lines: list[str], rng: random.Random) -> list[str]:
    """Return the lines with one of many kinds of harm done to them."""
    at = rng.randrange(len(lines))
    words = lines[at].split(" ")
    kind = rng.randrange(7)
    if kind == 0:
        words[rng.randrange(len(words))] = rng.choice(WORDS)
        lines[at] = " ".join(words)
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        lines.insert(at, lines[rng.randrange(len(lines))])
    elif kind == 3:
        lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    elif kind == 4:
        cut = rng.randrange(len(lines[at]) + 1)
        lines[at : at + 1] = [lines[at][:cut] + rng.choice(WORDS), lines[at][cut:]]
    elif kind == 5:
        lines[at] = " ".join(lines[at].split())
    else:
        lines[at] = lines[at].replace(rng.choice("0123456789.|,"), rng.choice("0123456789.-e,| "), 1)
    return lines


@pytest.mark.parametrize("path", FILES, ids=[p.name for p in FILES])
def test_damaged_logs_never_end_in_a_traceback(path):
    """Whatever is done to a log, every row that is kept has a positive time or a reason."""

    @given(seed=st.integers(0, 2**32), harms=st.integers(1, 6), skip=st.booleans())
    @settings(deadline=None, derandomize=True, max_examples=25)
    def check(seed, harms, skip):
        rng = random.Random(seed)
        lines = path.read_text().split("\n")
        for _ in range(harms):
            lines = damage(lines, rng) or ["x"]
        found = attempt("\n".join(lines).encode(), path.name, skip=skip)
        for table in found.tables if found else ():
            assert table.ranks > 1
            for row in table.rows:
                assert (row.time_s is None) == bool(row.reason)
                assert row.time_s is None or 0 < row.time_s < 1e9
                assert row.nbytes >= 0

    check()


@given(data=st.binary(max_size=300))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_noise_in_any_format_never_ends_in_a_traceback(data):
    """Bytes that are no log at all are refused by every importer."""
    for name in importers.FORMATS:
        options = Options(ranks=8, collective="allreduce", skip_bad_rows=True, mapping=COLUMNS)
        try:
            found = importers.read(Source(io.BytesIO(data), "noise"), options, name)
        except CollbenchError:
            continue
        assert found.tables


@given(text=st.text(alphabet="0123456789 .-+eENA/flotsumd\n#", max_size=400))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_row_like_text_never_ends_in_a_traceback(text):
    """Text made of what rows are made of, under a real header, is read or refused."""
    head = "\n".join((GOLDEN / "import_allreduce_cut_off.txt").read_text().split("\n")[:15])
    attempt((head + "\n" + text).encode(), "import_allreduce_x.txt", skip=True)
