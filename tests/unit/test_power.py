"""Power: what could have been seen, checked against simulated launches."""

import numpy as np
import pytest

from collbench import power, stats


def test_detectable_is_never_below_the_threshold():
    """Even without noise a change must exceed the threshold to be called."""
    assert power.detectable(0.0, 10, 0.05) == pytest.approx(0.05)
    assert power.detectable(0.03, 10, 0.05) > 0.05


def test_too_few_launches_detect_nothing():
    """Five pairs cannot reach p = 5 %, six can; three launches a side cannot, four can."""
    assert power.detectable(0.01, 5, 0.05) is None
    assert power.detectable(0.01, 6, 0.05) is not None
    assert power.detectable(0.01, 3, 0.05, paired=False) is None
    assert power.detectable(0.01, 4, 0.05, paired=False) is not None


def test_needed_is_the_inverse_of_detectable():
    """The count that is said to be needed is the first with which the change is detectable."""
    count = power.needed(0.06, 0.10, 0.05)
    assert power.detectable(0.06, count, 0.05) <= 0.10
    assert count == 6 or power.detectable(0.06, count - 1, 0.05) > 0.10


def test_a_change_at_the_threshold_needs_infinitely_many():
    """A true 5 % at a 5 % threshold is a coin flip by construction."""
    assert power.needed(0.01, 0.05, 0.05) is None


@pytest.mark.parametrize("paired", [True, False])
def test_the_stated_change_is_found_about_eight_times_in_ten(paired):
    """Simulated launches with the detectable change: found in 70 to 92 % of the trials."""
    source = np.random.default_rng(5)
    change = power.detectable(0.04, 10, 0.05, paired=paired)
    function = stats.paired_ratio if paired else stats.unpaired_ratio
    found = 0
    for _ in range(400):
        base = np.exp(source.normal(0, 0.04 / 2**0.5, 10))
        new = np.exp(source.normal(np.log1p(change), 0.04 / 2**0.5, 10))
        ratio = function(new, base)
        found += ratio.p <= 0.05 and ratio.value >= 1.05
    assert 0.70 <= found / 400 <= 0.92


def test_spread_of_pairs_ignores_what_both_share():
    """A drift that both partners follow does not count in pairs, but does in groups."""
    drift = np.exp(np.linspace(0, 1, 8))
    assert power.spread(drift, drift * 1.1, paired=True) == pytest.approx(0, abs=1e-9)
    assert power.spread(drift, drift * 1.1, paired=False) > 0.3
    assert power.spread([1.0, 1.1], [1.0, 1.1], paired=True) is None
