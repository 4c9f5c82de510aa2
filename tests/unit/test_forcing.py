"""Which variables a case needs at launch, and which launches can share them."""

from collbench import components, forcing
from collbench.records import Case, Cell


def case(provider, collective="allreduce", algorithm="ring", component=None):
    return Case(Cell(collective, 4, 4, 1024, op="sum"), provider, algorithm, component)


def test_the_default_never_needs_anything():
    """``default`` is the user's untouched stack on every library."""
    for library in ("openmpi", "mpich", "intelmpi", "cray_mpich"):
        assert forcing.settings(case(library, algorithm="default"), library, (1, 0)) == ()


def test_open_mpi_5_switches_without_launch_settings():
    """Control variables do it inside the process."""
    assert forcing.settings(case("openmpi"), "openmpi", (5, 0, 11)) == ()


def test_open_mpi_4_needs_dynamic_rules_from_the_start():
    """4.1 refuses to switch them on later."""
    assert forcing.settings(case("openmpi"), "openmpi", (4, 1, 4)) == ((forcing.DYNAMIC_RULES, "1"),)


def test_mpich_switches_without_launch_settings():
    """Its control variables, the device layer's included, act around each block."""
    assert forcing.settings(case("mpich"), "mpich", (5, 0, 2)) == ()


def test_portable_cases_run_in_the_untouched_launch():
    """Point-to-point needs no setting."""
    assert forcing.settings(case("portable"), "mpich", (5, 0, 2)) == ()


def test_launches_are_shared_where_variables_do_not_collide():
    """Preset 3 of allreduce and of bcast fit in one launch, two presets of allreduce do not."""
    a3, a4, b3 = (
        (("I_MPI_ADJUST_ALLREDUCE", "3"),),
        (("I_MPI_ADJUST_ALLREDUCE", "4"),),
        (("I_MPI_ADJUST_BCAST", "3"),),
    )
    merged = forcing.merge({(): [["d"]], a3: [["a3"]], a4: [["a4"]], b3: [["b3"]]})
    assert merged[()] == [["d"]]
    assert len(merged) == 3
    assert sum(len(v) for v in merged.values()) == 4


def test_proofs_get_their_own_launch_where_counting_slows_the_calls():
    """Open MPI's monitoring layer; elsewhere proofs run inside the measuring launch."""
    usual = {forcing.MONITORING: "1", components.VARIABLE: components.LEVEL}
    assert forcing.proof_settings("openmpi", (5, 0, 11), {}) == usual
    assert forcing.proof_settings("mpich", (5, 0, 2)) is None


def test_the_counting_layer_joins_the_users_list_of_layers():
    """A user's OMPI_MCA_pml=ucx would leave it out, and nothing would be counted; an exclusion leaves it in."""
    five = ("openmpi", (5, 0, 11))
    for given, planned in (("ucx", "ucx,monitoring"), ("ob1,monitoring", None), ("^cm", None), ("", None)):
        assert forcing.proof_settings(*five, {forcing.LAYERS: given}).get(forcing.LAYERS) == planned
