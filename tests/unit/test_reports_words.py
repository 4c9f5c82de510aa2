"""Short words for algorithms fit a terminal and stay distinct."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.algorithms import openmpi
from collbench.reports.words import HEAD_WIDTH, head_lines, short_word, short_words


@pytest.mark.parametrize(
    ("label", "word"),
    [("recursive_doubling", "rec-dbl"), ("ring", "ring"), ("default", "default"), ("portable:ring", "port:ring"),
     ("pipeline[segment_bytes=16384]", "pipe[16K]"), ("ring[channels=8,protocol=ll]", "ring[c8,ll]"),
     ("chain[segment_bytes=1000]", "chain[1000]"), ("x[segment_bytes=2097152]", "x[2M]")],
)  # fmt: skip
def test_short_words(label, word):
    """Parts are cut by a fixed list; a size keeps its unit, other parameters their first letter."""
    assert short_word(label) == word


def test_words_that_would_collide_stay_whole():
    """Two labels never share a word."""
    found = short_words(["in-order_binary", "inord_bin", "ring"])
    assert found == {"in-order_binary": "in-order_binary", "inord_bin": "inord_bin", "ring": "ring"}


@pytest.mark.parametrize(
    ("label", "lines"),
    [("recursive_doubling", ["recursive", "doubling"]), ("ring", ["ring"]), ("two_proc", ["two_proc"]),
     ("rabenseifner", ["raben-", "seifner"]), ("split_binary_tree", ["split", "binary", "tree"]),
     ("pipeline[segment_bytes=65536]", ["pipeline", "[64K]"])],
)  # fmt: skip
def test_column_heads_break_where_words_end(label, lines):
    """A head has lines of at most nine characters."""
    assert head_lines(label) == lines


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.text("abc_:=[],-0", min_size=1, max_size=40))
def test_no_head_line_is_wider_than_a_column(label):
    """Whatever an imported algorithm is called, its head fits."""
    assert all(len(line) <= HEAD_WIDTH for line in head_lines(label))


def test_every_word_of_open_mpi_is_short():
    """Words of known algorithms fit a map's column."""
    assert {
        row.name: short_word(row.name) for row in openmpi.ALGORITHMS if len(short_word(row.name)) > 14
    } == {}
