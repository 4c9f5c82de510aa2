"""Every shipped profile parses, and what it says can be planned."""

from pathlib import Path

import pytest

from collbench import profile
from collbench.collectives import COLLECTIVES

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "profiles").glob("*.toml"))


def test_there_are_profiles():
    """At least the profile that ``collbench run`` takes without an argument is shipped."""
    assert "quick" in profile.shipped()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_shipped_profile_parses(path: Path):
    """A profile has a one-sentence description and sweeps over known collectives and ascending sizes."""
    loaded = profile.load(path.stem)
    assert loaded.name == path.stem
    assert loaded.description.endswith(".")
    assert loaded.sweeps
    for sweep in loaded.sweeps:
        assert set(sweep.collectives) <= set(COLLECTIVES)
        assert all(ranks >= 1 for ranks in sweep.ranks)
        assert list(sweep.sizes) == sorted(set(sweep.sizes))


def test_every_profile_of_the_checkout_ships_with_the_package():
    """The package's data holds every file of profiles/, so an installed collbench finds them from any folder."""
    assert set(profile.shipped()) >= {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_profile_with_a_misspelt_key_is_refused(path: Path):
    """One wrong key in any shipped profile is an error that names the file, not silently ignored."""
    from collbench.errors import UsageError

    with pytest.raises(UsageError, match=r"wrong\.toml"):
        profile.parse(path.read_text(encoding="utf-8") + "\n[defalts]\nsizes = '8'\n", "wrong.toml", "wrong")
