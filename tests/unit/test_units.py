"""Sizes, times and rates: parsed as people write them, printed with their unit."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench import units
from collbench.errors import UsageError

common = settings(deadline=None, derandomize=True, max_examples=100)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("8", 8),
        ("1K", 1024),
        ("1KiB", 1024),
        ("1kb", 1024),
        ("1M", 1 << 20),
        ("1.5G", 3 << 29),
        (" 2 MiB ", 2 << 20),
    ],
)
def test_sizes_take_binary_prefixes(text, nbytes):
    """K, KB and KiB all mean 1024, as in nccl-tests and OSU."""
    assert units.parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "x", "-1", "1X", "1e3", "8:", "1 K K", "∞"])
def test_what_is_no_size_is_refused_with_an_example(text):
    """The sentence shows the wrong text and how to write it."""
    with pytest.raises(UsageError, match="write for example"):
        units.parse_size(text)


@common
@given(st.integers(0, 1023), st.sampled_from([0, 10, 20, 30]))
def test_a_printed_size_parses_back(number, shift):
    """format_bytes and parse_size are inverse on whole numbers of a unit."""
    nbytes = number << shift
    assert units.parse_size(units.format_bytes(nbytes)) == nbytes


@common
@given(st.integers(1, 1 << 20), st.integers(0, 1 << 30), st.sampled_from(["x2", "x4", "x1.5", "+64K"]))
def test_a_range_ascends_and_includes_both_ends(first, more, step):
    """Every range starts at its first size, ends at its last and grows strictly, or is refused as too long."""
    last = first + more
    try:
        sizes = units.parse_sizes(f"{first}:{last}:{step}")
    except UsageError:
        assert step == "+64K" or (step == "x1.5" and first == 1)
        return
    assert (sizes[0], sizes[-1]) == (first, last)
    assert all(a < b for a, b in pairwise(sizes))


def test_lists_and_ranges_mix_without_duplicates():
    """A list may hold sizes and ranges; each size comes once, ascending."""
    assert units.parse_sizes("1K,8:64:x2,16") == (8, 16, 32, 64, 1024)
    assert units.parse_sizes("8:100:x4") == (8, 32, 100)
    assert units.parse_sizes("0:64:+32") == (0, 32, 64)


@pytest.mark.parametrize("text", [",", "64:8", "0:8", "8:64:x1", "8:64:y2", "8:64:+0", "1:2:3:4", "0:1M:+1"])
def test_ranges_that_never_end_or_go_down_are_refused(text):
    """A step that does not grow, an end below the start and a range of a million sizes are errors."""
    with pytest.raises(UsageError):
        units.parse_sizes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("500ms", 0.5), ("3 us", 3e-6)],
)
def test_durations(text, seconds):
    """A bare number is seconds; m is minutes."""
    assert units.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1x", "-3s", "ten"])
def test_what_is_no_duration_is_refused(text):
    """The sentence names the text."""
    with pytest.raises(UsageError, match="duration"):
        units.parse_duration(text)


def test_percentages():
    """5% and 0.05 are the same share; negative and infinite ones are refused."""
    assert units.parse_percent("5%") == units.parse_percent("5 %") == units.parse_percent("0.05") == 0.05
    for text in ("-1%", "nan", "inf", "five"):
        with pytest.raises(UsageError, match="percentage"):
            units.parse_percent(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(166e-9, "166 ns"), (12.34e-6, "12.3 µs"), (1.05e-3, "1.05 ms"), (2.5, "2.50 s"), (0.9999e-6, "1.00 µs"),
     (None, "–"), (float("nan"), "–"), (0, "0 ns")],
)  # fmt: skip
def test_times_have_three_figures_and_a_unit(seconds, text):
    """A missing time is a dash, never 0."""
    assert units.format_time(seconds) == text


def test_rates_are_decimal():
    """Bandwidths count in powers of ten, as vendors and nccl-tests do."""
    assert units.format_rate(12.34e9) == "12.3 GB/s"
    assert units.format_rate(512e6) == "512 MB/s"
    assert units.format_rate(8e3) == "8.00 kB/s"
    assert units.format_rate(None) == units.format_gbs(None) == units.format_us(None) == "–"
    assert (units.format_gbs(1.5e9), units.format_us(2e-6)) == ("1.50", "2.00")


def test_percent_and_duration_words():
    """Shares get a sign only when asked; waiting times are in whole units."""
    assert units.format_percent(0.0512) == "5.1 %"
    assert units.format_percent(0.0512, sign=True) == "+5.1 %"
    assert units.format_percent(None) == "–"
    assert [units.format_duration(s) for s in (45, 185, 7800)] == ["45 s", "3 m 05 s", "2 h 10 m"]


SCALES = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


@common
@given(st.floats(1e-9, 1e4))
def test_a_printed_time_is_within_half_a_percent(seconds):
    """Three significant figures lose at most 0.5 %."""
    number, unit = units.format_time(seconds).split()
    assert float(number) * SCALES[unit] == pytest.approx(seconds, rel=0.00501)
