"""The race: losers drop out, winners and ties end it, budgets and fixed modes hold."""

import numpy as np
import pytest

from collbench.samplers import LEAST_ROUNDS, Race, Series, block_length, doubts, fixed_blocks, percentiles


def run(race: Race, rates: list[float], noise: float = 0.01, seed: int = 0, limit: int = 200) -> Race:
    """Drive a race with synthetic blocks around ``rates`` until it ends."""
    random = np.random.default_rng(seed)
    for _ in range(limit):
        for index in race.order():
            race.series[index].add(rates[index] * np.exp(noise * random.standard_normal(20)))
        if race.end_round():
            return race
    pytest.fail("the race did not end")


def make(cases: int, **change) -> Race:
    settings = {"min_rounds": 5, "max_rounds": 40, "precision": 0.02, **change}
    return Race(cases, **settings)


def test_a_clear_loser_is_dropped_after_the_first_decision():
    """Twice as slow costs no more than the rounds before anything is decided."""
    race = run(make(3), [1e-6, 2e-6, 3e-6])
    assert [len(s.blocks) for s in race.series] == [5, 5, 5]
    assert race.stopped_by == "precision"


def test_the_default_is_never_dropped():
    """A rule is judged by its gain over the default, so the default keeps being measured."""
    race = run(make(3, protected=frozenset({2})), [1e-6, 1.01e-6, 3e-6], noise=0.05)
    assert len(race.series[2].blocks) == race.rounds


def test_equals_end_as_a_tie_within_the_precision():
    """Two equal cases end once neither can lead by the precision; none of them is dropped for noise."""
    race = run(make(2), [1e-6, 1e-6], noise=0.01)
    assert race.stopped_by == "precision"
    assert race.rounds < 40


def test_noise_is_ended_by_the_rounds():
    """A case that never becomes as precise as asked ends at the cap and says so."""
    race = run(make(1, precision=0.0001), [1e-6], noise=0.5)
    assert (race.stopped_by, race.rounds) == ("rounds", 40)


def test_fixed_mode_keeps_every_case():
    """Without the race each case gets the same number of blocks."""
    race = run(make(3, race=False, max_rounds=7), [1e-6, 2e-6, 3e-6])
    assert [len(s.blocks) for s in race.series] == [7, 7, 7]


def test_an_exhausted_budget_still_gives_the_least_rounds():
    """Nothing is decided on fewer blocks than an interval needs."""
    race = make(2)
    random = np.random.default_rng(1)
    rounds = 0
    while True:
        for index in race.order():
            race.series[index].add(1e-6 * (1 + 0.01 * random.random(5)))
        rounds += 1
        if race.end_round(out_of_time=True):
            break
    assert rounds == LEAST_ROUNDS
    assert race.stopped_by == "budget"


def test_each_case_comes_first_in_turn():
    """The order rotates, so that no case always follows the same neighbour."""
    race = make(3)
    firsts = []
    for _ in range(3):
        order = race.order()
        firsts.append(order[0])
        for index in order:
            race.series[index].add(np.full(3, 1e-6))
        race.end_round()
    assert sorted(firsts) == [0, 1, 2]


def test_a_failed_case_leaves_the_race():
    """The others go on without it."""
    race = make(2)
    race.retire(0)
    assert race.order() == [1]


def test_a_block_has_a_few_hundred_microseconds_within_bounds():
    """Fast calls come in blocks of up to 200, slow ones of at least 3."""
    assert block_length(1e-6, 300e-6) == 200
    assert block_length(10e-6, 300e-6) == 30
    assert block_length(1.0, 300e-6) == 3


def test_percentiles_are_ordered():
    """min ≤ p10 ≤ p50 ≤ p90 ≤ p99 ≤ max."""
    values = list(percentiles(np.random.default_rng(2).random(500)).values())
    assert values == sorted(values)


def series(blocks) -> Series:
    found = Series()
    for block in blocks:
        found.add(np.full(10, float(block)))
    return found


@pytest.mark.parametrize(
    ("blocks", "kind"),
    [
        ([1e-6, 2.7e-6] * 8, "bimodal"),
        (np.linspace(1e-6, 2e-6, 20), "drifting"),
        ([1e-8] * 10, "coarse_clock"),
    ],
)
def test_doubts_are_data(blocks, kind):
    """Two modes, a drift and a clock too coarse are told apart."""
    assert kind in {d["kind"] for d in doubts(series(blocks), 1e-8)}


def test_a_quiet_series_has_no_doubts():
    """One percent of noise is no reason to warn."""
    random = np.random.default_rng(3)
    assert doubts(series(1e-5 * (1 + 0.01 * random.standard_normal(30))), 1e-9) == []


@pytest.mark.parametrize(
    ("iterations", "expected"), [(5, (5, 1)), (40, (40, 1)), (100, (34, 3)), (4000, (40, 100))]
)
def test_a_fixed_number_of_calls_is_spread_over_blocks(iterations, expected):
    """At least as many calls as asked, in no more blocks than allowed."""
    blocks, length = fixed_blocks(iterations, 40)
    assert (blocks, length) == expected
    assert blocks * length >= iterations


def test_a_race_goes_on_while_no_window_was_met():
    """A round without a single valid block ends nothing; only when every case is retired has the cell failed."""
    race = Race(2, min_rounds=1, max_rounds=4, precision=0.02)
    assert not race.end_round()
    race.series[1].add(np.array([1e-6]))
    assert not race.end_round()
    assert race.order() == [0, 1]
    race.retire(0)
    race.retire(1)
    assert race.end_round()
    assert race.stopped_by == "failed"
