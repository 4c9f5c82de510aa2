"""The tables of algorithms against the library that is here: its control variables' own lists and ranges."""

import json
import re

import pytest

from collbench.algorithms import TABLES, algorithms, intelmpi, mpich, openmpi

pytestmark = pytest.mark.process

ASK = """\
import json, sys
import mpi4py
mpi4py.rc.thread_level = "single"
from mpi4py import MPI
from collbench.mpi.cvars import ControlVariables
from collbench.mpi.library import identify
variables = ControlVariables(MPI)
if MPI.COMM_WORLD.rank == 0:
    names = [name for name in sys.argv[1:] if variables.exists(name)]
    print(json.dumps({"version": identify(MPI).version,
                      "variables": {n: [variables.enum(n), variables.description(n)] for n in names}}), flush=True)
"""


@pytest.fixture(name="ask")
def _ask(launch):
    """``ask(names)`` → (version, name → (enumeration, description)) of the live library."""

    def ask(names):
        done = launch(1, ASK, args=list(names))
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.strip().splitlines()[-1])
        return tuple(found["version"]), found["variables"]

    return ask


def _collectives(provider):
    return list(dict.fromkeys(row.collective for row in TABLES[provider]))


def test_open_mpis_numbers_are_the_librarys(ask, mpi_library):
    """Number and name of every row stand in MPI_T's enumeration, and the table misses none of this version's."""
    if mpi_library != "openmpi":
        pytest.skip("this environment has another library")
    names = {collective: openmpi.cvar(collective) for collective in _collectives("openmpi")}
    version, found = ask(names.values())
    for collective, name in names.items():
        live = {int(number): word for number, word in found[name][0].items() if int(number)}
        assert live == {r.native_id: r.name for r in algorithms("openmpi", collective, version)}, collective


def test_mpichs_numbers_are_positions_in_the_librarys_list(ask, mpi_library):
    """MPICH publishes no enumeration; the order of its description is the number."""
    if mpi_library != "mpich":
        pytest.skip("this environment has another library")
    rows = [
        (r, mpich.cvar(r.collective, "INTRA" if r.component == "mpir" else "POSIX_INTRA"))
        for r in TABLES["mpich"]
    ]
    version, found = ask(dict.fromkeys(name for _, name in rows))
    if version < (5, 0):
        pytest.skip("the table is of MPICH 5.0")
    for row, name in rows:
        live = re.findall(r"^\s*(\w+)\s+-\s", found[name][1], re.MULTILINE)
        assert live[row.native_id] == row.name, f"{name}: {live}"


def test_intel_mpis_presets_end_where_the_librarys_do(ask, mpi_library):
    """Presets run from 1 to the end of the range that the description states."""
    if mpi_library != "intelmpi":
        pytest.skip("this environment has another library")
    names = {collective: intelmpi.cvar(collective) for collective in intelmpi.PRESETS}
    _, found = ask(names.values())
    live = {c: int(re.search(r"range: 0-(\d+)", found[name][1])[1]) for c, name in names.items()}
    assert live == intelmpi.PRESETS
