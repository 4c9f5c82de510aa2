"""Selection: rules leave the default only for a gain beyond noise, and cover every size once."""

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench import candidates, decision, pool, screening, selection, stacks
from collbench.decision import Policy
from collbench.errors import UnansweredError
from collbench.records import Case, Cell
from collbench.results import COLUMNS, Run, frame

SIZES = (8, 64, 512, 4096, 32768, 262144)


def row(algorithm, nbytes, time_s, **changes):
    base = {
        "run": "made", "launch": 0, "collective": "allreduce", "ranks": 4, "ranks_per_node": 4, "nbytes": nbytes,
        "dtype": "float32", "op": "sum", "in_place": False, "memory": "host", "groups": 1, "provider": "openmpi",
        "algorithm": algorithm, "component": None, "params": "{}", "nodes": 1, "evidence_status": "proven",
        "rank_reduction": "max", "sync": "barrier", "rotation": "none", "thread_level": "single", "library": "openmpi",
        "library_version": "5.0.11", "time_s": time_s, "iterations": 100, "blocks_s": [], "percentiles_s": {},
        "warnings": [], "oversubscribed": False, "emulated": False, "source": "collbench",
    }  # fmt: skip
    return {**base, **changes}


def table(rows):
    return pd.DataFrame(rows, columns=list(COLUMNS))


def noisy(random, time_s, blocks=12, noise=0.02):
    return [float(time_s * np.exp(random.normal(0, noise))) for _ in range(blocks)]


def planted(times, *, seed=0, launches=1, ranks=4, noise=0.02, blocks=12, **changes):
    """Rows of times[algorithm][nbytes] with block noise, interleaved in each launch."""
    random = np.random.default_rng(seed)
    rows = []
    for launch in range(launches):
        for algorithm, by_size in times.items():
            for nbytes, time_s in by_size.items():
                own = noisy(random, time_s, blocks, noise)
                rows.append(
                    row(algorithm, nbytes, float(np.median(own)), blocks_s=own, launch=launch + 100 * ranks,
                        ranks=ranks, ranks_per_node=ranks, **changes)
                )  # fmt: skip
    return rows


def measured(rules):
    return [r for r in rules if r.basis == "measured"]


def test_a_faster_algorithm_wins_where_it_is_faster():
    """Two straight curves give two rules with the border where they cross, and the library's choice above."""
    flat = {"default": {n: 1e-6 + n * 4e-9 for n in SIZES}, "ring": {n: 10e-6 + n * 1e-9 for n in SIZES}}
    decided = selection.select(table(planted(flat)))
    assert [r.algorithm for r in decided.rules] == ["default", "ring", "default"]
    ring = decided.rules[1]
    assert 1000 < ring.min_bytes < 6000  # the curves cross at 3000
    assert ring.max_bytes == 262144
    assert 0 < ring.gain_low < ring.gain < ring.gain_high


FINE = (512, 1024, 2048, 4096, 8192, 16384)


def jumping(lower, upper, sizes=FINE):
    """Where the table goes over from the algorithm that leads below 4 KiB to the one that leads from there on."""
    curves = {"default": dict.fromkeys(sizes, 2e-5)}
    for word, below, above in ((lower, 1.0, 2.5), (upper, 1.5, 1.0)):
        curves[word] = {n: 1e-6 * (below if n < 4096 else above) for n in sizes}
    rules = selection.select(table(planted(curves)), policy=Policy(allowance=0.0)).rules
    led = [r for r in rules if r.basis == "measured"]
    assert [r.algorithm for r in led] == [lower, upper]
    return led[1].min_bytes


def test_where_a_curve_jumps_between_neighbouring_sizes_it_does_so_at_the_upper_one():
    """An eager limit of 4 KiB less a header: what leads at 2 KiB leads at 3 KiB too. The default keeps any gap."""
    assert jumping("tree", "ring") == 4096
    assert jumping("default", "ring") == 4096
    assert jumping("ring", "default") == 2049


def test_farther_apart_the_limit_may_lie_anywhere_and_the_crossing_decides():
    coarse = tuple(FINE[::2])
    assert 2048 < jumping("default", "ring", (256, *coarse)) < 8192


@pytest.mark.parametrize("gain", [0.0, 0.01])
def test_a_gain_below_the_margin_keeps_the_default(gain):
    times = {"default": dict.fromkeys(SIZES, 1e-5), "ring": dict.fromkeys(SIZES, 1e-5 / (1 + gain))}
    decided = selection.select(table(planted(times, noise=0.0005)))
    assert {"default"} == {r.algorithm for r in decided.rules}


def test_a_gain_within_noise_keeps_the_default():
    times = {"default": dict.fromkeys(SIZES, 1e-5), "ring": dict.fromkeys(SIZES, 0.95e-5)}
    decided = selection.select(table(planted(times, noise=0.6)))
    assert {"default"} == {r.algorithm for r in decided.rules}


@pytest.mark.parametrize(
    "kind", [{"launches": 1}, {"launches": 1, "blocks": 4}, {"launches": 3}, {"launches": 5}]
)
def test_on_equal_algorithms_at_most_five_percent_of_cells_leave_the_default(kind):
    """A/A: six identical algorithms and the default, nothing but noise."""
    left = total = 0
    for seed in range(12):
        names = ["default", *(f"a{i}" for i in range(6))]
        rows = planted({n: dict.fromkeys(SIZES, 1e-5) for n in names}, seed=seed, noise=0.05, **kind)
        series = candidates.build(table(rows))
        for one, chosen in zip(series, decision.decide(series, Policy()), strict=True):
            for first, last, column in chosen:
                total += last - first + 1
                left += (last - first + 1) * (column != one.default)
    assert left <= 0.05 * total


def test_three_launches_decide_by_launch_ratios():
    """A gain that one launch shows and the others deny is no gain, however many blocks back it."""
    rows = []
    for launch, factor in enumerate((0.5, 1.0, 1.02)):
        for name, time in (("default", 1e-5), ("ring", 1e-5 * factor)):
            rows.append(row(name, 64, time, launch=launch, blocks_s=[time] * 20))
    decided = selection.select(table(rows))
    assert {"default"} == {r.algorithm for r in decided.rules}


def test_imported_rows_never_pair():
    """Repetitions of an import give unpaired intervals, not pairs of whatever shares a launch number."""
    rows = [row(n, 64, t, launch=0, source="imb") for n, t in
            (("default", 1e-5), ("default", 3e-5), ("ring", 0.9e-5), ("ring", 2.9e-5))]  # fmt: skip
    (series,) = candidates.build(table(rows))
    assert np.isfinite(series.half[0]).all()
    assert {"default"} == {r.algorithm for r in selection.select(table(rows)).rules}


def test_one_repetition_works_and_is_labelled():
    rows = [row("default", 64, 2e-5), row("ring", 64, 1e-5)]
    decided = selection.select(table(rows))
    (rule,) = [r for r in decided.rules if r.algorithm == "ring"]
    assert rule.gain_low is None
    assert "no interval" in rule.note


def test_without_the_default_the_measured_ones_compete_and_it_is_said():
    times = {"tree": {n: 1e-6 + n * 4e-9 for n in SIZES}, "ring": {n: 10e-6 + n * 1e-9 for n in SIZES}}
    decided = selection.select(table(planted(times)))
    assert [r.algorithm for r in decided.rules] == ["tree", "ring"]
    assert decided.rules[-1].max_bytes is None
    assert "extended" in decided.rules[-1].note
    assert any("default was not measured" in e for e in decided.exclusions)


def test_mislabelled_rows_never_win_and_are_listed():
    rows = [
        row("default", 64, 2e-5),
        row("ring", 64, 1e-6, evidence_status="contradicted", effective="linear"),
    ]
    decided = selection.select(table(rows))
    assert {"default"} == {r.algorithm for r in decided.rules}
    assert any("ring" in e and "linear" in e for e in decided.exclusions)


@pytest.mark.parametrize("reason", ["wrong_result", "timeout"])
def test_a_case_that_failed_once_never_wins(reason):
    """A wrong result in one launch rules the case out, however fast the others were."""
    rows = [row("default", 64, 2e-5), row("ring", 64, 1e-6)]
    case = {"collective": "allreduce", "ranks": 4, "ranks_per_node": 4, "nbytes": 64, "dtype": "float32", "op": "sum",
            "in_place": False, "memory": "host", "provider": "openmpi", "algorithm": "ring", "component": None}  # fmt: skip
    failed = [{"kind": "failed", "launch": 1, "case": case, "reason": reason}]
    decided = selection.select(table(rows), failed=failed)
    assert {"default"} == {r.algorithm for r in decided.rules}
    assert any(reason in e for e in decided.exclusions)


def test_a_bandwidth_beyond_what_a_core_copies_is_warned_about_and_kept():
    """4 ranks, allreduce: 1 MiB at 150 GB/s bus bandwidth where one core copies 10 GB/s; without a probe nothing is said."""
    nbytes = 1 << 20
    rows = planted({"default": {nbytes: 2e-4}, "ring": {nbytes: 1.05e-5}}, launches=3)
    rates = {("made", 400): 1e10, ("made", 401): 1e10}
    decided = selection.select(table(rows), rates=rates)
    (warning,) = decided.context["warnings"]
    assert "allreduce ring, 4 ranks: 1 MiB" in warning
    assert "2 row(s)" in warning
    assert "ring" in {r.algorithm for r in decided.rules}
    assert selection.select(table(rows)).context["warnings"] == []
    elsewhere = [{**r, "nodes": 2} for r in rows]
    assert screening.beyond_links(table(elsewhere), rates) == []
    assert screening.beyond_links(table([{**r, "memory": "cuda"} for r in rows]), rates) == []


def test_a_time_that_falls_with_the_size_is_warned_about_and_kept():
    rows = [row("default", n, t) for n, t in ((64, 1e-5), (128, 1e-3), (256, 1e-5))]
    rows += [row("ring", n, 1.5e-5) for n in (64, 128, 256)]
    decided = selection.select(table(rows))
    assert any("256 B" in w and "--sizes" in w for w in decided.context["warnings"])
    assert "ring" in {r.algorithm for r in decided.rules}


def test_rows_of_another_context_are_kept_out_and_named():
    rows = [row(a, 64, t) for a, t in (("default", 2e-5), ("ring", 1e-5), ("tree", 2e-5))]
    rows += [row("tree", 64, 1e-9, dtype="int8")]
    screened = screening.screen(table(rows))
    assert len(screened.rows) == 3
    assert any("int8" in e for e in screened.exclusions)


def test_portable_algorithms_never_enter_a_library_table():
    rows = [row("default", 64, 2e-5), row("tree", 64, 1e-6, provider="portable")]
    decided = selection.select(table(rows))
    assert {"default"} == {r.algorithm for r in decided.rules}
    with pytest.raises(UnansweredError):
        selection.select(table([row("tree", 64, 1e-6, provider="portable")]))


@pytest.mark.parametrize("change", [{"oversubscribed": True}, {"emulated": True}])
def test_a_crowded_or_emulated_machine_gives_a_demonstration(change):
    assert selection.select(table([row("default", 64, 2e-5, **change)])).demonstration
    assert not selection.select(table([row("default", 64, 2e-5)])).demonstration


def test_ties_prefer_fewer_channels():
    rows = []
    for channels in (32, 8):
        rows += [row("ring", n, 1e-5, params=f'{{"channels": {channels}}}', provider="nccl") for n in SIZES]
    decided = selection.select(table(rows))
    assert [r.params for r in decided.rules] == [(("channels", 8),)]


TIMES = st.lists(st.floats(1e-6, 1e-4), min_size=4, max_size=4)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(default=TIMES, ring=TIMES, tree=TIMES, margin=st.floats(0, 0.2), allowance=st.floats(0, 0.1))
def test_every_size_has_exactly_one_rule(default, ring, tree, margin, allowance):
    """From 0 to infinity rules follow each other without hole or overlap, at every rank count."""
    sizes = (0, 7, 100, 5000)
    rows = []
    for ranks in (2, 7):
        for name, times in (("default", default), ("ring", ring), ("tree", tree)):
            rows += [
                row(name, n, t, ranks=ranks, ranks_per_node=ranks) for n, t in zip(sizes, times, strict=True)
            ]
    decided = selection.select(table(rows), policy=Policy(margin, allowance))
    for ranks in {r.ranks for r in decided.rules}:
        own = [r for r in decided.rules if r.ranks == ranks]
        assert own[0].min_bytes == 0
        assert own[-1].max_bytes is None
        assert all(a.max_bytes + 1 == b.min_bytes for a, b in pairwise(own))
        assert all(a.min_bytes <= a.max_bytes for a in own[:-1])


@settings(deadline=None, derandomize=True, max_examples=60)
@given(seed=st.integers(0, 10**6), allowance=st.floats(0, 0.05))
def test_the_loss_of_few_rules_stays_within_the_allowance(seed, allowance):
    """On rows without noise the mean loss against each size's best is at most the allowance."""
    random = np.random.default_rng(seed)
    rows = [row(a, n, float(np.exp(random.normal(-11, 0.2)))) for a in ("a", "b", "c") for n in SIZES]
    (series,) = candidates.build(table(rows))
    (chosen,) = decision.decide([series], Policy(allowance=allowance))
    best = series.log_time.min(axis=1)
    loss = sum(float((series.log_time[i : j + 1, c] - best[i : j + 1]).sum()) for i, j, c in chosen)
    assert loss <= np.log1p(allowance) * len(SIZES) + 1e-9


def test_unmeasured_rank_counts_between_get_interpolated_rules_with_doubt():
    """3, 5, 6 and 7 ranks follow 2, 4 and 8; beyond 8 nothing is said."""
    rows = []
    for ranks in (2, 4, 8):
        times = {"default": dict.fromkeys(SIZES, 2e-05), "ring": dict.fromkeys(SIZES, 1e-05)}
        rows += planted(times, ranks=ranks)
    decided = selection.select(table(rows))
    between = [r for r in decided.rules if r.basis == "interpolated"]
    covered = {p for r in between for p in range(r.ranks, (r.ranks_max or r.ranks) + 1)}
    assert {3, 5, 6, 7} == covered
    assert {"ring"} == {r.algorithm for r in between}
    assert all("leaving one rank count out" in r.note for r in between)
    assert max((r.ranks_max or r.ranks) for r in decided.rules) == 8


def test_what_neither_neighbour_shows_is_not_inferred_between_them():
    """Noise at 2 and 4 ranks does not become a rule at 3."""
    rows = []
    for seed, ranks in enumerate((2, 4, 8)):
        times = {"default": dict.fromkeys(SIZES, 1.4e-5), "ring": dict.fromkeys(SIZES, 1e-5)}
        rows += planted(times, ranks=ranks, noise=1.5, blocks=5, seed=seed)
    decided = selection.select(table(rows))
    assert {"default"} == {r.algorithm for r in decided.rules if r.basis == "measured"}
    assert {"default"} == {r.algorithm for r in decided.rules if r.ranks_max is not None}


@pytest.mark.parametrize("slow", ["equal", "not measured"])
def test_what_one_neighbour_does_not_show_is_not_inferred_from_the_other(slow):
    """Ring wins at 2 ranks; at 4 it is no faster, or nobody knows: nothing is said of 3."""
    default, ring = dict.fromkeys(SIZES, 2e-5), dict.fromkeys(SIZES, 1e-5)
    rows = planted({"default": default, "ring": ring}, ranks=2)
    at_four = (
        {"default": default, "ring": default} if slow == "equal" else {"default": default, "tree": default}
    )
    rows += planted(at_four, ranks=4) + planted({"default": default, "ring": ring}, ranks=8)
    decided = selection.select(table(rows))
    assert {"ring"} == {r.algorithm for r in decided.rules if r.ranks == 2 and r.basis == "measured"}
    assert {"default"} == {r.algorithm for r in decided.rules if r.basis == "interpolated"}


def test_an_algorithm_for_powers_of_two_is_not_interpolated():
    rows = []
    for ranks in (4, 8):
        times = {"default": dict.fromkeys(SIZES, 2e-5), "recursive_doubling": dict.fromkeys(SIZES, 1e-5)}
        rows += [{**r, "collective": "allgather", "op": None} for r in planted(times, ranks=ranks)]
    decided = selection.select(table(rows))
    assert "recursive_doubling" in {r.algorithm for r in measured(decided.rules)}
    assert {"default"} == {r.algorithm for r in decided.rules if r.ranks_max is not None}


def test_single_threaded_mpich_is_decided_anew_without_its_shared_memory_layer():
    """A rule switches a collective's device layer off: then every size of that collective needs a choice."""
    fast, slow = dict.fromkeys(SIZES, 1e-5), dict.fromkeys(SIZES, 4e-5)
    times = {
        "default": {**slow, 8: 1.2e-5},
        "ring": {**fast, 8: 1.2e-5},
        "recexch": dict.fromkeys(SIZES, 3e-5),
    }
    rows = planted(times, provider="mpich", library="mpich")
    decided = selection.select(table(rows))
    assert "default" not in {r.algorithm for r in measured(decided.rules)}
    assert decided.context["needs"] == {"MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE": "0"}
    assert any("decided anew" in e for e in decided.exclusions)


def test_mpich_keeps_its_shared_memory_where_switching_it_off_costs_more():
    times = {"default": {n: (4e-5 if n == 8 else 1e-5) for n in SIZES}, "ring": dict.fromkeys(SIZES, 3e-05)}
    rows = planted(times, provider="mpich", library="mpich")
    decided = selection.select(table(rows))
    assert {"default"} == {r.algorithm for r in decided.rules}
    assert not decided.context["needs"]


def test_a_table_that_must_replace_the_default_everywhere_is_given_up_where_one_size_pays_for_the_others():
    """A mean gain never buys a proven loss of more than a quarter at one size; the remark names it."""
    times = {"default": {n: (1e-6 if n == 8 else 4e-5) for n in SIZES}, "ring": dict.fromkeys(SIZES, 3e-06)}
    decided = selection.select(table(planted(times, provider="mpich", library="mpich")))
    assert {"default"} == {r.algorithm for r in decided.rules}
    assert any("makes allreduce of 8 B on 4 ranks 3.0× as slow" in x for x in decided.exclusions)


@pytest.mark.parametrize(("provider", "nodes", "kept"), [("mpich", 1, True), ("openmpi", 2, False)])
def test_one_collective_alone_is_left_to_the_library_for_any_proven_loss(provider, nodes, kept):
    """A tenth at one size: MPICH's table can do without this collective; Open MPI's HAN goes for all or for none."""
    times = {"default": {n: (1e-6 if n == 8 else 4e-5) for n in SIZES},
             "ring": {n: (1.1e-6 if n == 8 else 1e-5) for n in SIZES}}  # fmt: skip
    rows = [{**r, "nodes": nodes} for r in planted(times, provider=provider, library=provider)]
    assert ({r.algorithm for r in selection.select(table(rows)).rules} == {"default"}) is kept


UNIFORM = Policy(uniform=frozenset({"scatter"}))


@pytest.mark.parametrize(
    ("ring", "expected"),
    [
        (dict.fromkeys(SIZES, 1.5e-05), ["ring"]),
        ({n: (1.5e-5 if n < 5000 else 3e-5) for n in SIZES}, ["default"]),
        ({n: (1.5e-5 if n < 5000 else 2e-5) for n in SIZES}, ["ring"]),
        (dict.fromkeys(SIZES, 1.99e-05), ["default"]),
    ],
    ids=["faster at all sizes", "slower at some", "faster at some, equal at others", "below the margin"],
)
def test_where_one_algorithm_must_serve_all_sizes_it_harms_at_none(ring, expected):
    """The same rows without that demand give a rule by size; the open end belongs to the one algorithm too."""
    rows = table(
        planted({"default": dict.fromkeys(SIZES, 2e-5), "ring": ring}, collective="scatter", op=None)
    )
    (rule,) = selection.select(rows, policy=UNIFORM).rules
    assert [rule.algorithm] == expected
    assert (rule.min_bytes, rule.max_bytes) == (0, None)
    assert len(selection.select(rows).rules) > 1 or expected == ["default"]
    others = table(planted({"default": dict.fromkeys(SIZES, 2e-5), "ring": ring}))
    assert selection.select(others, policy=UNIFORM).rules == selection.select(others).rules


def test_one_algorithm_for_all_sizes_needs_to_be_known_at_both_ends():
    """Sizes left out between agreeing neighbours do not matter; what was measured at one end only cannot serve the other."""
    times = {"default": dict.fromkeys(SIZES, 2e-5), "ring": dict.fromkeys(SIZES, 1e-5)}
    rows = planted(times, collective="scatter", op=None)

    def without(*sizes):
        kept = [r for r in rows if r["algorithm"] == "default" or r["nbytes"] not in sizes]
        return {r.algorithm for r in selection.select(table(kept), policy=UNIFORM).rules}

    assert without(SIZES[2], SIZES[3]) == {"ring"}
    assert without(SIZES[-1]) == {"default"}
    assert without(SIZES[0]) == {"default"}
    never = selection.select(table(rows), policy=dataclasses.replace(UNIFORM, keep_default=False))
    assert {r.algorithm for r in never.rules} == {"ring"}


def test_a_loss_that_noise_hides_is_not_taken_for_none_where_the_default_is_switched_off():
    """MPICH at 4 ranks: too noisy to prove anything, but the rule would make all its sizes slower on the whole."""
    gain = {"default": dict.fromkeys(SIZES, 2e-5), "ring": dict.fromkeys(SIZES, 1e-5)}
    loss = {"default": dict.fromkeys(SIZES, 1e-5), "ring": dict.fromkeys(SIZES, 1.3e-5)}
    rows = planted(gain, ranks=2, provider="mpich", library="mpich")
    alone = selection.select(table(rows))
    assert {"ring"} == {r.algorithm for r in alone.rules}
    rows += planted(loss, ranks=4, noise=1.0, blocks=5, seed=2, provider="mpich", library="mpich")
    decided = selection.select(table(rows))
    assert {"default"} == {r.algorithm for r in decided.rules}
    assert any("on 4 ranks" in x and "as slow" in x for x in decided.exclusions)


def test_an_interval_of_orders_of_magnitude_is_not_stated():
    """What two rank counts cannot say of the one between them is no number."""
    crowded = {"default": dict.fromkeys(SIZES, 1e-2), "ring": dict.fromkeys(SIZES, 1e-5)}
    calm = {"default": dict.fromkeys(SIZES, 1e-5), "ring": dict.fromkeys(SIZES, 0.9e-5)}
    rows = [*planted(calm, ranks=2), *planted(calm, ranks=3), *planted(crowded, ranks=8)]
    decided = selection.select(table(rows), policy=decision.Policy(keep_default=False))
    between = [r for r in decided.rules if r.basis == "interpolated"]
    assert between
    assert {(r.gain_low, r.gain_high) for r in between} == {(None, None)}
    assert all("factor of ten" in r.note for r in between)


def test_open_mpi_on_several_nodes_is_decided_for_all_collectives_together():
    times = {"default": dict.fromkeys(SIZES, 2e-5), "ring": dict.fromkeys(SIZES, 1e-5)}
    decided = selection.select(table([{**r, "nodes": 2} for r in planted(times)]))
    assert stacks.settings("openmpi", ["allreduce"]) == decided.context["needs"]


def test_the_selection_does_not_depend_on_the_order_of_rows():
    times = {"default": {n: 1e-6 + n * 4e-9 for n in SIZES}, "ring": {n: 10e-6 + n * 1e-9 for n in SIZES}}
    rows = planted(times)
    shuffled = [rows[i] for i in np.random.default_rng(3).permutation(len(rows))]
    assert selection.select(table(rows)).rules == selection.select(table(shuffled)).rules
    assert dataclasses.is_dataclass(selection.select(table(rows)))


def interleaved(variants):
    """A run of one cell in which each environment's default and ring took the given times."""
    launches = {n: {"kind": "launch", "launch": n, "ranks": 4, "nodes": 1, "ranks_per_node": 4, "repetition": 0,
                    "variant": name} for n, name in enumerate(variants)}  # fmt: skip
    cell = Cell("allreduce", 4, 4, 1024, "float32", "sum")
    cells = [
        {"kind": "cell", "launch": n, "case": Case(cell, "openmpi", word).to_json(), "time_s": time_s, "sync": "barrier",
         "blocks_s": [time_s * (1 + 0.001 * i) for i in range(12)], "rank_reduction": "max", "timer": "c"}
        for n, times in enumerate(variants.values())
        for word, time_s in times.items()
    ]  # fmt: skip
    return Run(Path("both.jsonl"), {}, launches, cells, [], [])


def test_another_environment_measured_beside_never_passes_for_the_default():
    """The run file of ``ab`` or ``verify`` decides for its first environment alone, and says what it left out."""
    run = interleaved(
        {"untouched": {"default": 1e-5, "ring": 5e-6}, "table": {"default": 1e-6, "ring": 5e-6}}
    )
    decided = selection.from_runs([run])
    assert "ring" in {r.algorithm for r in decided.rules}
    assert any("2 row(s) of table, measured beside untouched" in x for x in decided.exclusions)
    mixed = selection.select(frame([run]))
    assert "ring" not in {r.algorithm for r in mixed.rules}


def test_a_size_that_one_rank_count_lacks_is_read_off_between_its_neighbours():
    """Evidence of one rank count alone never speaks for a size that the other has measured around it."""
    fast = {n: {"default": 2e-6, "ring": 1e-6} for n in (512, 1024, 2048)}
    slow = {n: {"default": 1e-6, "ring": 4e-6} for n in (512, 2048)}
    rows = [
        row(word, n, t, ranks=ranks, ranks_per_node=ranks)
        for ranks, times in ((2, fast), (4, slow))
        for n, words in times.items()
        for word, t in words.items()
    ]
    aligned = pool.align(candidates.build(screening.screen(table(rows)).rows))
    assert aligned.measured.tolist() == [[True] * 3, [True, False, True]]
    ring = [c.algorithm for c in aligned.choices].index("ring")
    assert np.exp(aligned.log_time[1, 1, ring]) == pytest.approx(4e-6)
    assert np.isnan(aligned.actual(1)[1]).all()
    assert pool.expected_loss(aligned, 3)[1, aligned.default] < pool.expected_loss(aligned, 3)[1, ring]
