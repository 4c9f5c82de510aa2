"""Plans: which launches run which cases, in which order; what is skipped and why."""

from dataclasses import replace

import pytest

from collbench import plan, profile, refinement, request, words
from collbench.errors import UsageError

TEXT = """
[[sweep]]
collectives = ["allreduce", "alltoall"]
ranks = [2, 3]
sizes = "8,16,1K"
"""


def make(options=None, text=TEXT, library="openmpi", version=(5, 0, 11), **more):
    options = options or request.RunOptions(prove=False)
    chosen = request.with_options(profile.parse(text, "t.toml", "t"), options)
    return plan.make_plan(chosen, options, library=library, version=version, **more)


def test_one_launch_per_rank_count_serves_everything():
    """Open MPI 5 switches in the process."""
    found = make()
    assert [launch.ranks for launch in found.launches] == [2, 3]
    assert {c.cell.collective for c in found.launches[0].cases} == {"allreduce", "alltoall"}


def test_the_default_is_in_every_cell():
    """Nothing can be recommended without what the library does by itself."""
    for launch in make().launches:
        for group in launch.groups:
            assert "default" in {c.algorithm for c in group.cases}


def test_impossible_cases_are_skipped_with_the_reason():
    """two_proc at three ranks, ring with fewer elements than ranks."""
    reasons = {(c.cell.ranks, c.algorithm): r for c, r in make().skipped}
    assert "two ranks" in reasons[(3, "two_proc")]
    assert "element per rank" in reasons[(3, "ring")]


def test_a_group_is_one_cell():
    """Only algorithms of the same cell are interleaved."""
    for launch in make().launches:
        for group in launch.groups:
            assert len({c.cell for c in group.cases}) == 1


def test_sizes_are_whole_elements_per_rank_without_repeats():
    """alltoall at 3 ranks: 8 B holds no element a rank and is dropped, 1 KiB becomes 1020 B."""
    sizes = {c.cell.nbytes for c in make().launches[1].cases if c.cell.collective == "alltoall"}
    assert sizes == {12, 1020}


def test_the_same_seed_gives_the_same_order():
    """And another one another order of the same cases."""
    one, two = (make(request.RunOptions(prove=False, seed=1)) for _ in range(2))
    other = make(request.RunOptions(prove=False, seed=2))
    assert one == two
    assert one != other
    assert set(one.launches[0].cases) == set(other.launches[0].cases)


def test_launches_repeat_as_often_as_asked():
    """Every rank count gets each repetition; proofs only once."""
    found = make(request.RunOptions(launches=3))
    assert [(x.purpose, x.ranks, x.repetition) for x in found.launches[:4]] == [
        ("proof", 2, 0), ("measure", 2, 0), ("proof", 3, 0), ("measure", 3, 0),
    ]  # fmt: skip
    assert len(found.launches) == 2 + 6


def test_the_default_has_its_own_untouched_launch_where_forcing_needs_settings():
    """Open MPI 4.1 forces only with dynamic rules on, and those are no part of the user's stack."""
    found = make(version=(4, 1, 4))
    untouched = [x for x in found.launches if not x.settings]
    assert len(untouched) == 2
    assert {c.algorithm for x in untouched for c in x.cases} == {"default"}


def test_a_library_without_a_table_gets_its_default_only():
    """A derived library is never taken for its parent."""
    found = make(library="cray_mpich", version=(8, 1))
    assert {(c.provider, c.algorithm) for x in found.launches for c in x.cases} == {("cray_mpich", "default")}


def test_unknown_algorithms_answer_with_the_nearest():
    """A slip is caught before anything starts."""
    with pytest.raises(UsageError, match="did you mean 'rabenseifner'"):
        make(request.RunOptions(algorithms=("rabenseifer",)))


def test_parameters_are_read_from_brackets():
    """``pipeline[segment_bytes=4096]`` is the algorithm with that parameter."""
    assert words.split_params("pipeline[segment_bytes=4096]") == ("pipeline", (("segment_bytes", 4096),))
    with pytest.raises(UsageError, match="NAME"):
        words.split_params("pipeline[4096]")


def test_portable_cases_carry_the_reason_when_they_cannot_run():
    """Without the compiled extension they are skipped, not dropped."""
    found = make(
        request.RunOptions(prove=False, algorithms=("portable",)), portable_reason="needs the C extension"
    )
    assert {r for c, r in found.skipped if c.provider == "portable"} == {"needs the C extension"}


def test_options_override_the_profile():
    """Ranks, sizes and collectives of the command line win; an absent collective is added."""
    chosen = request.with_options(
        profile.parse(TEXT, "t.toml", "t"),
        request.RunOptions(collectives=("bcast",), ranks=(4,), sizes=(64,), iterations=10),
    )
    assert [s.collectives for s in chosen.sweeps] == [("bcast",)]
    assert (chosen.sweeps[0].ranks, chosen.sweeps[0].sizes) == ((4,), (64,))
    assert (chosen.sampling.mode, chosen.sampling.iterations) == ("fixed", 10)


def test_nothing_left_is_an_error():
    """Sizes below one element a rank leave no cell."""
    with pytest.raises(UsageError, match="nothing is left"):
        make(request.RunOptions(collectives=("alltoall",), sizes=(1,)))


def test_a_proof_stands_for_a_size_class_and_the_default_for_its_size():
    """The default may change its algorithm at any size, a forced one only where a fallback can hit."""
    case = next(c for c in make().launches[0].cases if c.algorithm == "ring")
    larger = replace(case, cell=replace(case.cell, nbytes=case.cell.nbytes * 2))
    assert plan.proof_key(case) == plan.proof_key(larger)
    default = case.with_algorithm("default")
    assert plan.proof_key(default) != plan.proof_key(larger.with_algorithm("default"))


def refined(text=TEXT, sizes="8:1M:x2", refine=True):
    options = request.RunOptions(prove=False, seed=5, algorithms=("default", "ring"))
    chosen = request.with_options(profile.parse(text.replace("8,16,1K", sizes), "t.toml", "t"), options)
    chosen = replace(chosen, sampling=replace(chosen.sampling, refine=refine))
    return plan.make_plan(chosen, options, library="openmpi", version=(5, 0, 11))


def test_sizes_come_from_coarse_to_fine_where_they_are_refined():
    """Each collective's sizes have levels of their own; within a level the order is the shuffled one."""
    one, other = refined(), refined(refine=False)
    for launch, plain in zip(one.launches, other.launches, strict=True):
        levels = [g.level for g in launch.groups]
        assert levels == sorted(levels)
        assert set(levels) == {0, 1, 2}
        coarse = [g.cases[0].cell.nbytes for g in launch.groups if not g.level]
        assert coarse != sorted(coarse)
        for level in set(levels):
            mine = [g.cases for g in launch.groups if g.level == level]
            assert mine == [g.cases for g in plain.groups if g.cases in mine]
        for name in ("allreduce", "alltoall"):
            own = {
                g.cases[0].cell.nbytes: g.level for g in launch.groups if g.cases[0].cell.collective == name
            }
            assert own == refinement.levels(own)


def test_without_refinement_every_size_is_measured_in_any_case():
    """The plan is the same as ever, and every group of level 0."""
    assert {g.level for x in refined(refine=False).launches for g in x.groups} == {0}
    assert set(refined().launches[0].cases) == set(refined(refine=False).launches[0].cases)


def test_every_second_size_is_measured_where_no_launch_sees_all_cases():
    """Open MPI 4.1 measures the default in a launch of its own: nobody sees it race, so nobody decides."""
    options = request.RunOptions(prove=False, refine=True)
    chosen = request.with_options(profile.parse(TEXT.replace("8,16,1K", "8:1M"), "t.toml", "t"), options)
    found = plan.make_plan(chosen, options, library="openmpi", version=(4, 1, 4))
    assert len(found.launches) == 4
    assert {g.level for x in found.launches for g in x.groups} == {0}
    sizes = sorted(
        {c.cell.nbytes for x in found.launches for c in x.cases if c.cell.collective == "allreduce"}
    )
    assert sizes == [*(8 << n for n in range(0, 18, 2)), 1 << 20]
    proven = plan.make_plan(
        chosen, replace(options, prove=True), library="openmpi", version=(4, 1, 4)
    ).launches
    assert {c.cell.nbytes for x in proven if x.purpose == "proof" for c in x.cases} <= {
        c.cell.nbytes for x in found.launches for c in x.cases
    }


@pytest.mark.parametrize(
    ("sizes", "asked", "expected"),
    [(None, None, True), ((8, 64), None, False), ((8, 64), True, True), (None, False, False)],
)
def test_sizes_that_are_named_are_measured(sizes, asked, expected):
    """A profile's refinement holds for the profile's sizes; --refine and --no-refine have the last word."""
    loaded = profile.parse("[sampling]\nrefine = true\n" + TEXT, "t.toml", "t")
    chosen = request.with_options(loaded, request.RunOptions(sizes=sizes, refine=asked))
    assert chosen.sampling.refine is expected


@pytest.mark.parametrize(
    ("launches", "budget", "expected"), [(None, None, 60), (3, None, 180), (3, 20.0, 20)]
)
def test_a_profile_s_budget_is_for_its_own_number_of_launches(launches, budget, expected):
    """Three launches of a profile made for one take three times its time; a budget that was given holds as it is."""
    options = request.RunOptions(launches=launches, budget_s=budget)
    assert request.with_options(profile.load("quick"), options).budget_s == expected
