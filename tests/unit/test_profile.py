"""Profiles: parsed into records; every fault names file, line and key."""

import pytest

from collbench import profile
from collbench.errors import UsageError
from collbench.request import RunOptions, with_options

GOOD = """
budget = "90s"
launches = 3

[sampling]
precision = 0.01

[defaults]
sizes = "8:64:x2"

[[sweep]]
collectives = ["all_reduce", "bcast"]
ranks = [4, 2]
"""


def test_a_profile_becomes_records():
    """Aliases become MPI's names, ranks ascend, defaults reach every sweep."""
    found = profile.parse(GOOD, "good.toml", "good")
    assert (found.name, found.backend, found.budget_s, found.launches) == ("good", "mpi", 90.0, 3)
    assert found.sampling.precision == 0.01
    assert found.sweeps[0].collectives == ("allreduce", "bcast")
    assert found.sweeps[0].ranks == (2, 4)
    assert found.sweeps[0].sizes == (8, 16, 32, 64)


@pytest.mark.parametrize(
    ("change", "line", "key", "words"),
    [
        (("launches = 3", "launches = 0"), 3, "launches", "whole number"),
        (("all_reduce", "allredcue"), 12, "collectives", "did you mean 'allreduce'"),
        (('sizes = "8:64:x2"', 'sizes = "8:64:x1"'), 9, "sizes", "not a step"),
        (("ranks = [4, 2]", 'ranks = ["four"]'), 13, "ranks", "whole number"),
        (("precision = 0.01", "precison = 0.01"), 6, "precison", "did you mean 'precision'"),
        (("budget", "bugdet"), 2, "bugdet", "did you mean 'budget'"),
        (("precision = 0.01", "rotate_buffers = 0"), 6, "rotate_buffers", "whole number"),
        (("precision = 0.01", "rotate_root = 1"), 6, "rotate_root", "true or false"),
        (("precision = 0.01", "refine = 1"), 6, "refine", "true or false"),
    ],
)
def test_a_fault_names_file_line_and_key(change, line, key, words):
    """The message leads straight to the place."""
    with pytest.raises(UsageError) as error:
        profile.parse(GOOD.replace(*change), "my.toml", "my")
    text = str(error.value)
    assert f"my.toml, line {line}, key {key!r}" in text
    assert words in text


def test_rotation_is_the_profiles_unless_the_command_line_says_more():
    """[sampling] has both keys; the options change one without the other."""
    text = GOOD.replace("precision = 0.01", "rotate_buffers = 4")
    found = profile.parse(text, "my.toml", "my")
    assert (found.sampling.rotate_buffers, found.sampling.rotate_root) == (4, False)
    assert with_options(found, RunOptions()).sampling == found.sampling
    asked = with_options(found, RunOptions(rotate_buffers=2, rotate_root=True)).sampling
    assert (asked.rotate_buffers, asked.rotate_root) == (2, True)


def test_broken_toml_names_the_line():
    """tomllib's own position is passed on."""
    with pytest.raises(UsageError, match=r"my\.toml: not valid TOML.*line 1"):
        profile.parse("a = = 1", "my.toml", "my")


def test_an_unknown_profile_answers_with_the_nearest():
    """A slip of the finger gets the right name."""
    with pytest.raises(UsageError, match="did you mean 'quick'"):
        profile.load("quikc")


def test_a_missing_file_is_one_sentence(tmp_path):
    """A path that is not there is named with the reason."""
    with pytest.raises(UsageError, match=r"cannot read profile .*No such file"):
        profile.load(str(tmp_path / "none.toml"))


def test_a_sweep_must_say_what_to_measure():
    """Collectives, ranks and sizes are indispensable."""
    with pytest.raises(UsageError, match="misses 'sizes'"):
        profile.parse('[[sweep]]\ncollectives = "bcast"\nranks = [2]\n', "x.toml", "x")
