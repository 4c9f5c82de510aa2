"""Naming the MPI library from what it says of itself."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.mpi.library import loaded_path, parse_version, parse_version_string

KNOWN = {
    "Open MPI v5.0.11, package: Open MPI user@host Distribution, ident: 5.0.11": ("openmpi", (5, 0, 11)),
    "Open MPI v4.1.4, package: Debian OpenMPI": ("openmpi", (4, 1, 4)),
    "MPICH Version:      5.0.2\nMPICH Release date: Mon\nMPICH ABI: 18:2:6": ("mpich", (5, 0, 2)),
    "Intel(R) MPI Library 2021.18.1 for Linux* OS": ("intelmpi", (2021, 18, 1)),
    "Intel(R) MPI Library for Linux* OS, 64-bit, 2019.9": ("intelmpi", None),
}
DERIVED = {
    "MPI VERSION    : CRAY MPICH version 8.1.28.14 (ANL base 3.4a2)": ("cray_mpich", (8, 1, 28, 14)),
    "MVAPICH2 Version      :\t2.3.7\nMVAPICH2 Release date": ("mvapich", (2, 3, 7)),
    "MVAPICH Version:\t4.0\nMPICH Version: 4.3": ("mvapich", (4, 0)),
    "FUJITSU MPI Library 4.0.0 (4.0.1fj4.0.0)": ("fujitsu", (4, 0, 0)),
    "IBM Spectrum MPI 10.4.0.3": ("spectrum_mpi", (10, 4, 0, 3)),
    "HPE MPT 2.25  08/25/21": ("hpe_mpt", (2, 25)),
    "ParaStation MPI 5.9.2-1\nMPICH Version: 4.1": ("parastation_mpi", (5, 9, 2)),
}


@pytest.mark.parametrize(("text", "expected"), [*KNOWN.items(), *DERIVED.items()])
def test_a_library_is_named_exactly(text, expected):
    """Name and version come from the library's own words, derived libraries before their parent."""
    name, version = parse_version_string(text)
    assert name == expected[0]
    assert expected[1] is None or version == expected[1]


@pytest.mark.parametrize("text", DERIVED)
def test_a_derived_library_is_never_taken_for_its_parent(text):
    """Sharing MPICH's or Open MPI's code or binary interface is not being it."""
    assert parse_version_string(text)[0] not in ("mpich", "openmpi", "intelmpi")


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.text(max_size=60))
def test_any_text_gets_a_name_and_only_the_right_words_make_a_known_one(text):
    """Garbage yields an unknown name, never a known library."""
    name, _ = parse_version_string(text)
    assert name
    if name == "mpich":
        assert "mpich version" in text.lower()
    if name == "openmpi":
        assert "open mpi" in text.lower()


def test_version_numbers_are_integers():
    """Comparing versions must not compare text."""
    assert parse_version("5.0.11") == (5, 0, 11)
    assert parse_version("5.0.11") > parse_version("5.0.9")
    assert parse_version("none") is None


def test_the_loaded_library_is_found_in_the_memory_map(tmp_path):
    """Not mistaken: libraries whose name merely begins alike."""
    maps = tmp_path / "maps"
    maps.write_text(
        "7f0-7f1 r-xp 0 08:01 1 /x/lib/libmpi4py_helper.so\n7f0-7f1 r-xp 0 08:01 1 /x/lib/libmpi_cxx.so.40\n"
        "7f0-7f1 r-xp 0 08:01 2 /x/lib/libmpi.so.40.30.4\n7f0-7f1 rw-p 0 00:00 0\n"
    )
    assert loaded_path(maps) == "/x/lib/libmpi.so.40.30.4"
    assert loaded_path(tmp_path / "none") is None
