"""A registry knows names without importing what is behind them."""

import sys

import pytest

from collbench.errors import UsageError
from collbench.registry import Registry


def test_names_are_known_without_an_import():
    """Listing, counting and asking for a name import nothing; the first use does."""
    sys.modules.pop("this_module_is_missing", None)
    registry = Registry("format", {"broken": "this_module_is_missing:x", "sep": "os:sep"})
    assert (list(registry), len(registry), "broken" in registry, "no" in registry) == (
        ["broken", "sep"],
        2,
        True,
        False,
    )
    assert registry["sep"] == "/"
    with pytest.raises(ModuleNotFoundError):
        registry["broken"]


def test_an_unknown_name_names_the_nearest():
    """A wrong name is wrong use, with the registry's word for its things."""
    with pytest.raises(UsageError, match="unknown table format 'opnmpi': did you mean 'openmpi'"):
        Registry("table format", {"openmpi": "os:sep"})["opnmpi"]
