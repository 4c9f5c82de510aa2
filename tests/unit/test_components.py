"""Open MPI's selection log: who serves what. The logs are excerpts of real ones (5.0.11 and 4.1.4), hosts renamed."""

from dataclasses import replace

import pytest

from collbench import components
from collbench.collectives import COLLECTIVES
from collbench.mpi.proof import served
from collbench.records import Case, Cell, Evidence

FIVE = """\
[node0:13983] coll:base:comm_select: new communicator: MPI_COMM_WORLD (cid 0)
[node0:13984] coll:base:comm_select: new communicator: MPI_COMM_WORLD (cid 0)
[node0:13983] (0/MPI_COMM_WORLD): no underlying reduce; disqualifying myself
[node0:13983] coll:base:comm_select: selecting       adapt, priority   0, Disabled
[node0:13984] coll:base:comm_select: selecting       adapt, priority   0, Disabled
[node0:13983] coll:base:comm_select: selecting          sm, priority   0, Disabled
[node0:13983] coll:base:comm_select: selecting       basic, priority  10, Enabled
[node0:13983] coll:base:comm_select: selecting      libnbc, priority  10, Enabled
[node0:13984] coll:base:comm_select: selecting       basic, priority  10, Enabled
[node0:13983] coll:base:comm_select: selecting       tuned, priority  30, Enabled
[node0:13983] coll:base:comm_select: new communicator: MPI_COMM_SELF (cid 1)
[node0:13983] coll:base:comm_select: selecting       basic, priority  10, Enabled
[node0:13983] coll:base:comm_select: selecting      libnbc, priority  10, Enabled
[node0:13983] coll:base:comm_select: selecting        self, priority  75, Enabled
[node0:13983] coll:base:comm_select: new communicator: MPI COMM 4 DUP FROM 0 (cid 4)
[node0:13983] coll:base:comm_select: selecting       basic, priority  10, Enabled
[node0:13983] coll:base:comm_select: selecting      libnbc, priority  10, Enabled
[node0:13983] coll:base:comm_select: selecting  monitoring, priority 100, Enabled
"""

FOUR = """\
[node0:22165] coll:base:comm_select: new communicator: MPI COMMUNICATOR 3 DUP FROM 0 (cid 3)
[node0:22165] coll:base:comm_select: selecting          sm, priority   0, Disabled
[node0:22165] (3/MPI COMMUNICATOR 3 DUP FROM 0): no underlying reduce; disqualifying myself
[node0:22165] coll:base:comm_select: selecting       adapt, priority   0, Disabled
[node0:22165] coll:base:comm_select: selecting      libnbc, priority  10, Enabled
[node0:22165] coll:base:comm_select: selecting       basic, priority  10, Enabled
[node0:22165] coll:base:comm_select: selecting       tuned, priority  30, Enabled
"""

PREFERRED = """\
[node0:21878] coll:base:comm_select: new communicator: MPI COMM 7 DUP FROM 0 (cid 7)
[node0:21878] coll:base:comm_select: selecting       basic, priority  10, Enabled
[node0:21878] coll:base:comm_select: selecting      libnbc, priority  10, Enabled
[node0:21878] coll:base:comm_select: selecting       tuned, priority  30, Enabled
[node0:21878] coll:base:comm_select: selecting          sm, priority   0, Enabled
[node0:21878] coll:base:comm_select: selecting       adapt, priority   0, Enabled
"""
"""The order of the lines counts, not the number: adapt was preferred by the communicator's info key."""


def test_each_communicator_of_the_first_process_is_read():
    """A second process's lines in between change nothing; what was disabled is not there."""
    world, own, copy = components.selections(FIVE)
    assert (world.name, world.components) == ("MPI_COMM_WORLD", ("basic", "libnbc", "tuned"))
    assert own.components == ("basic", "libnbc", "self")
    assert copy.components == ("basic", "libnbc", "monitoring")


@pytest.mark.parametrize(
    ("log", "at", "component"), [(FIVE, 0, "tuned"), (FIVE, 2, "basic"), (FOUR, 0, "tuned")]
)
def test_the_last_enabled_component_that_offers_a_collective_serves_it(log, at, component):
    """Of both versions; what only counts messages (monitoring) serves nothing itself."""
    found = components.selections(log)[at]
    assert {found.serving(name) for name in COLLECTIVES if name != "sendrecv"} == {component}
    assert found.serving("sendrecv") is None


def test_a_preferred_component_serves_only_what_it_offers():
    """adapt has bcast and reduce; what sm has depends on the version, so it is not told."""
    found = components.selections(PREFERRED)[0]
    assert [found.serving(name) for name in ("bcast", "reduce", "alltoall")] == ["adapt", "adapt", "tuned"]
    assert [found.serving(name) for name in ("allreduce", "barrier")] == [None, None]


@pytest.mark.parametrize("stranger", ["hcoll", "ucc", "xhc", "brandnew"])
def test_what_a_component_of_unknown_reach_outranks_is_unknown(stranger):
    """Nothing is claimed for a component that settles at run time what it serves."""
    found = components.Selected("x", ("basic", "libnbc", "tuned", stranger))
    assert {found.serving(name) for name in COLLECTIVES} == {None}


def test_han_outranks_tuned_for_what_it_offers():
    """On several nodes han takes allreduce; reduce_scatter stays with tuned; alltoall came in later versions."""
    found = components.Selected("x", ("basic", "libnbc", "tuned", "han"))
    names = ("allreduce", "bcast", "reduce_scatter", "reduce_scatter_v", "alltoall")
    assert [found.serving(name) for name in names] == ["han", "han", "tuned", "tuned", None]


def test_the_log_is_told_from_what_else_is_said():
    """A failing launch's words stay when the log is taken out."""
    said = "[node0:1] *** An error occurred in MPI_Allreduce\n"
    text = FIVE + said + FOUR
    assert [line for line in text.splitlines(keepends=True) if not components.is_log(line)] == [said]


def test_no_log_no_claim():
    """An older version, or a launch without the variable."""
    assert components.selections("warming up\n") == []
    assert components.Selected("x", ()).serving("bcast") is None


CASE = Case(Cell("allreduce", 4, 4, 1024, "float32", "sum"), "openmpi", "ring", "tuned")
FOUND = Evidence("proven", "operator_trace", "ring", (), "operator calls")
TUNED, HAN, HCOLL = (
    components.Selected("x", ("basic", "tuned", *more)) for more in ((), ("han",), ("hcoll",))
)


def test_another_component_than_asked_for_contradicts():
    """A ring asked of tuned that han served is no ring of tuned, whatever its trace looks like."""
    assert served(CASE, FOUND, TUNED) == replace(FOUND, component="tuned")
    wrong = served(CASE, FOUND, HAN)
    assert (wrong.status, wrong.by, wrong.effective, wrong.component) == (
        "contradicted", "selection_log", "han", "han",
    )  # fmt: skip
    assert served(CASE, FOUND, None) == FOUND


def test_the_default_takes_whatever_serves_it():
    """Nothing was asked for, so nothing is contradicted; what tuned did is called by tuned's names."""
    case = Case(CASE.cell, "openmpi", "default")
    assert served(case, FOUND, TUNED) == replace(FOUND, component="tuned")


def test_what_another_component_did_is_not_called_by_tuneds_names():
    """On two nodes han's allreduce traces like tuned's nonoverlapping; it is han's all the same, and hcoll's is unknown."""
    case = Case(CASE.cell, "openmpi", "default")
    for selected, component in ((HAN, "han"), (HCOLL, None)):
        found = served(case, FOUND, selected)
        assert (found.status, found.effective, found.component) == ("unknown", None, component)
        assert "hcoll" in found.detail or component == "han"


def test_without_a_log_the_default_on_several_nodes_is_not_called_by_tuneds_names():
    """Inside a job nothing is logged, and on several nodes Open MPI prefers others to tuned; what is forced stays shown."""
    case = Case(CASE.cell, "openmpi", "default")
    found = served(case, FOUND, None, several_nodes=True)
    assert (found.status, found.effective, found.component) == ("unknown", None, None)
    assert served(case, FOUND, None) == FOUND
    assert served(CASE, FOUND, None, several_nodes=True) == FOUND


def test_mpich_has_no_log_but_its_algorithms_belong_to_a_component():
    """release_gather is the device layer's, ring is MPIR's; of a set only what all share is said."""
    case = Case(CASE.cell, "mpich", "default")

    def component(*names):
        return served(case, Evidence("not_separable", "operator_trace", names[0], names), None).component

    assert component("release_gather") == "posix"
    assert component("ring", "recursive_doubling") == "mpir"
    assert component("ring", "release_gather") is None
    assert served(case, Evidence(), None).component is None
