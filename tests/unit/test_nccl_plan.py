"""Planning for NCCL without NCCL and without a GPU."""

import pytest

from collbench import profile
from collbench.backends import nccl_plan
from collbench.backends.nccl_model import Hardware, buffer_bytes, call_s, cannot_win
from collbench.backends.nccl_request import parse_version
from collbench.errors import UsageError
from collbench.records import Case, Cell
from collbench.request import RunOptions

TEXT = """
backend = "nccl"
ranks_per_node = 8
{top}
[nccl]
{nccl}
[[sweep]]
collectives = {collectives}
ranks = {ranks}
sizes = "{sizes}"
algorithms = {algorithms}
{sweep}
"""


def _plan(live=None, *, external=False, seed=0, nccl="", collectives='"allreduce"', ranks=8, sizes="1K:64M:x16",
          algorithms='"library"', top="", sweep=""):  # fmt: skip
    text = TEXT.format(nccl=nccl, collectives=collectives, ranks=ranks, sizes=sizes, algorithms=algorithms, top=top,
                       sweep=sweep)  # fmt: skip
    return nccl_plan.make_plan(
        profile.parse(text, "test", "test"), RunOptions(seed=seed), live, external=external
    )


def _labels(found):
    return {c.label for c in found.of(8)}


def test_every_algorithm_is_tried_with_every_protocol():
    """Beside the default; what one node cannot run is skipped with the reason."""
    found = _plan(sizes="1M")
    assert _labels(found) == {
        "default", "nvls[protocol=simple]", "symmetric",
        *(f"{a}[protocol={p}]" for a in ("ring", "tree") for p in ("ll", "ll128", "simple")),
    }  # fmt: skip
    assert {(c.algorithm, r) for c, r in found.skipped} == {
        (a, "needs more than one node") for a in ("collnet_direct", "collnet_chain", "nvls_tree")
    }


def test_without_a_library_the_newest_known_version_is_planned_for_and_said():
    """A live or named version is taken instead."""
    assert (_plan().version, _plan().assumed) == ((2, 32), True)
    older = _plan((2, 22, 3))
    assert (older.version, older.assumed) == ((2, 22, 3), False)
    assert "symmetric" not in _labels(older)
    assert _plan(nccl='version = "2.29.7"').assumed is False


def test_symmetric_kernels_need_a_call_by_call_choice():
    """Older NCCL has the kernels but no way to ask for them; nccl-tests has none at all."""
    assert {r for c, r in _plan((2, 28), sizes="1M").skipped if c.algorithm == "symmetric"} == {
        "needs a per-call choice of algorithm: NCCL 2.31 or newer"
    }
    assert "symmetric" not in _labels(_plan(external=True))


def test_low_latency_protocols_are_left_out_only_at_large_sizes():
    """Monotone in the size: once pruned, always pruned; small sizes keep all protocols."""
    found = _plan(sizes="1K:16G:x2", nccl="memory_gib = 200")
    for protocol in ("ll", "ll128"):
        kept = {
            c.cell.nbytes
            for c in found.of(8)
            if c.algorithm == "ring" and dict(c.params)["protocol"] == protocol
        }
        gone = {c.cell.nbytes for c, r in found.skipped if c.algorithm == "ring" and "cannot win" in r
                and dict(c.params)["protocol"] == protocol}  # fmt: skip
        assert kept
        assert gone
        assert max(kept) < min(gone)
        assert min(kept) == 1024
    assert not [
        c for c, r in _plan(sizes="16G", nccl="memory_gib = 200\nprune = false").skipped if "cannot win" in r
    ]


def test_pruning_spares_every_size_at_which_published_tables_use_the_protocol():
    """AWS's regions for 8 H200 a node take ring LL128 for all-gather up to 7.2 GB at 384 ranks, LL up to 13.6 MB."""
    hardware = Hardware()
    for protocol, nbytes in (("ll128", 7_200_000_000), ("ll", 13_600_000)):
        case = Case(Cell("allgather", 384, 8, nbytes), "nccl", "ring", None, (("protocol", protocol),))
        assert cannot_win(case, hardware) is None


def test_sizes_that_do_not_fit_the_memory_are_skipped_with_the_need():
    """Send, receive and a copy; in place needs less."""
    found = _plan(sizes="32G", nccl="memory_gib = 80\nprune = false", sweep="in_place = [false, true]")
    assert {c.cell.in_place for g in found.groups for c in g} == {True}
    assert any("of GPU memory" in r for _, r in found.skipped)
    assert buffer_bytes(Cell("allgather", 8, 8, 800)) == 100 + 800 + 800


def test_composed_allreduces_are_planned_where_they_can_run():
    """The hierarchy needs several even nodes; nccl-tests can compose nothing."""
    one = _plan(algorithms='"all"', sizes="1M")
    assert ("portable", "reduce_scatter_allgather") in {(c.provider, c.algorithm) for c in one.of(8)}
    assert {r for c, r in one.skipped if c.algorithm == "hierarchical_sharded"} == {
        "needs several nodes with the same number of ranks, at least two"
    }
    several = _plan(algorithms='"all"', sizes="1M", ranks=16)
    assert {c.algorithm for c in several.of(16) if c.provider == "portable"} == set(nccl_plan.COMPOSED)
    assert not [
        c for g in _plan(algorithms='"all"', external=True).groups for c in g if c.provider == "portable"
    ]


def test_the_order_depends_on_the_seed_alone():
    """Same seed, same plan; another repetition is shuffled anew with the same cases."""
    assert _plan(seed=3) == _plan(seed=3)
    assert _plan(seed=3).groups != _plan(seed=4).groups
    again = nccl_plan.of_repetition(_plan(seed=3), 1, 3)
    assert again.groups != _plan(seed=3).groups
    assert sorted(map(repr, again.of(8))) == sorted(map(repr, _plan(seed=3).of(8)))


def test_forcing_sets_nccls_own_spellings():
    """Variables that NCCL reads at each communicator; channels only for a process of its own; the default sets none."""
    cell = Cell("allreduce", 16, 8, 1024, "float32", "sum", memory="cuda")
    case = Case(cell, "nccl", "nvls_tree", None, (("channels", 8), ("protocol", "simple")))
    assert nccl_plan.environment(case) == {"NCCL_ALGO": "NVLSTree", "NCCL_PROTO": "Simple"}
    assert nccl_plan.process_environment(case)["NCCL_MAX_CTAS"] == "8"
    assert nccl_plan.setting(case) == ("nvls_tree", "simple", 8)
    for other in (Case(cell, "nccl", "default"), Case(cell, "portable", "hierarchical_sharded")):
        assert nccl_plan.process_environment(other) == {}


def test_channels_multiply_the_cases():
    """NCCL's own number and each one asked for."""
    found = _plan(sizes="1M", nccl="channels = [4, 16]", algorithms='["ring[protocol=simple]"]')
    assert _labels(found) == {"default", "ring[protocol=simple]", "ring[channels=4,protocol=simple]",
                              "ring[channels=16,protocol=simple]"}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"algorithms": '"rong"'}, "did you mean 'ring'"),
        ({"collectives": '"barrier"'}, "collective of NCCL"),
        (
            {"collectives": '"bcast"', "algorithms": '"tree"'},
            "no collective of the profile has the algorithm 'tree'",
        ),
        ({"nccl": "colour = 1"}, "key of \\[nccl\\]"),
        ({"nccl": 'protocols = ["lll"]'}, "did you mean"),
        ({"nccl": "channels = [0]"}, "from 1 to 64"),
        ({"nccl": "node_gbs = -1"}, "above 0"),
        ({"nccl": 'version = "new"'}, "not an NCCL version"),
        ({"nccl": 'timings = "stopwatch"'}, "timing"),
        ({"sizes": "64G"}, "nothing is left"),
    ],
)
def test_a_bad_request_is_named(change, words):
    """One sentence with the value."""
    with pytest.raises(UsageError, match=words):
        _plan(**change)


def test_versions_are_numbers():
    """Two or three of them."""
    assert parse_version("2.30.7") == (2, 30, 7)
    assert parse_version(None) is None


@pytest.mark.parametrize("algorithm", ["ring", "tree", "nvls", "default"])
def test_the_estimate_grows_with_the_size(algorithm):
    """Positive and monotone, for every algorithm and also on several nodes."""
    params = () if algorithm == "default" else (("protocol", "simple"),)
    for ranks in (8, 128):
        times = [
            call_s(
                Case(Cell("allreduce", ranks, 8, 1 << k, "float32", "sum"), "nccl", algorithm, None, params),
                Hardware(),
            )
            for k in range(3, 34)
        ]
        assert times[0] > 0
        assert times == sorted(times)


def test_the_cost_counts_communicators_and_gpu_hours():
    """More settings cost more communicators; GPU-hours are wall time times ranks."""
    few, many = _plan(algorithms='"default"'), _plan()
    cost, more = nccl_plan.estimate(few, 8), nccl_plan.estimate(many, 8)
    assert (cost.communicators, more.communicators) == (2, 2 * 9)
    assert more.wall_s > cost.wall_s
    assert cost.gpu_s == pytest.approx(8 * cost.wall_s)


@pytest.mark.parametrize("name", ["nccl-8gpu", "nccl-multinode"])
def test_shipped_profiles_fit_their_budget(name):
    """The estimate of a shipped profile is below the budget it states."""
    chosen = profile.load(name)
    found = nccl_plan.make_plan(chosen, RunOptions())
    assert sum(nccl_plan.estimate(found, r).wall_s for r in found.ranks) < chosen.budget_s
