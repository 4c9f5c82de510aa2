"""Emitted tables are loaded by the real library: what it runs under them is traced, never only looked at."""

import json
from pathlib import Path

import pytest

from collbench import algorithms, installation, tables
from collbench.records import Cell, Rule, Selection
from collbench.tables import mpich

pytestmark = pytest.mark.process

TRACE = """
import json, sys
import mpi4py
mpi4py.rc.thread_level = "single"
from mpi4py import MPI
from collbench.mpi.proof import trace_operator
from collbench.mpi.signatures import match_ops
from collbench.records import Case, Cell
comm = MPI.COMM_WORLD.Dup()
found = {}
for nbytes in map(int, sys.argv[2:]):
    cell = Cell("allreduce", comm.size, comm.size, nbytes, op="sum")
    for _ in range(6):  # MPICH changes the algorithm after some calls
        ops = trace_operator(MPI, comm, Case(cell, sys.argv[1], "default"))
    found[nbytes] = match_ops(sys.argv[1], "allreduce", ops, nbytes // 4)
if comm.rank == 0:
    print(json.dumps(found))
"""


def rule(provider, algorithm, first, last, **changes):
    base = {"collective": "allreduce", "ranks": 4, "ranks_per_node": 4, "min_bytes": first, "max_bytes": last,
            "provider": provider, "algorithm": algorithm}  # fmt: skip
    return Rule(**{**base, **changes})


def selection(provider, rules, **context):
    return Selection(tuple(rules), provider, {"runs": ["test"], "needs": {}, **context})


def traced(launch, ranks, library, environment, sizes):
    done = launch(ranks, TRACE, args=[library, *sizes], env=environment)
    assert done.returncode == 0, done.stderr[-800:]
    return json.loads(done.stdout.splitlines()[-1])


def written(tmp_path: Path, chosen: Selection, name: str) -> dict[str, str]:
    path = tmp_path / f"table{tables.FORMATS[name].suffix}"
    path.write_text(tables.render(chosen, name))
    return tables.FORMATS[name].activation(str(path), chosen)


def rules_format() -> str:
    """The format that this environment's Open MPI reads."""
    return "openmpi-json" if (installation.discover().version or ())[:1] >= (6,) else "openmpi"


def bordered():
    """Rules at 4 ranks: ring from 1000 B to 64 KiB, the built-in choice outside."""
    return [rule("openmpi", "default", 0, 999), rule("openmpi", "ring", 1000, 65536),
            rule("openmpi", "default", 65537, None, basis="unmeasured")]  # fmt: skip


def check_borders(launch, environment):
    """Ring runs between its borders and nowhere else, neither outside them nor at 2 ranks."""
    sizes = (256, 1000, 65536, 262144)
    before, after = (traced(launch, 4, "openmpi", env, sizes) for env in ({}, environment))
    assert "ring" in after["1000"]
    assert "ring" in after["65536"]
    assert "ring" not in before["1000"] + before["65536"]
    assert before["256"] == after["256"]
    assert before["262144"] == after["262144"]
    assert "ring" not in traced(launch, 2, "openmpi", environment, (1000,))["1000"]


def test_open_mpi_runs_what_the_rules_file_says(launch, mpi_library, tmp_path):
    """At 4 ranks ring between its borders, the built-in choice outside and at 2 ranks."""
    if mpi_library != "openmpi" or rules_format() != "openmpi":
        pytest.skip("needs Open MPI 4.1 or 5.0 in this environment")
    check_borders(launch, written(tmp_path, selection("openmpi", bordered()), "openmpi"))


def test_open_mpi_6_runs_what_the_json_says(launch, mpi_library, tmp_path):
    """Inclusive borders, gaps left to the library, other rank counts too; every collective's word is one it knows."""
    if mpi_library != "openmpi" or rules_format() != "openmpi-json":
        pytest.skip("needs Open MPI 6 in this environment")
    rules = bordered()
    for name in sorted({row.collective for row in algorithms.algorithms("openmpi")} - {"allreduce"}):
        first = algorithms.algorithms("openmpi", name)[0].name
        rules.append(rule("openmpi", first, 0, None, collective=name))
    check_borders(launch, written(tmp_path, selection("openmpi", rules), "openmpi-json"))


ROOTED = """
import mpi4py
mpi4py.rc.thread_level = "single"
from mpi4py import MPI
import numpy as np
comm = MPI.COMM_WORLD
for count in (1, 100, 20000):
    whole = np.arange(comm.size * count, dtype="f4")
    part = np.zeros(count, "f4")
    comm.Scatter(whole if comm.rank == 0 else None, part, 0)
    assert (part == whole[comm.rank * count:][:count]).all()
    found = whole.copy() if comm.rank == 0 else part
    if comm.rank == 0:
        found[count:] = 0
        comm.Gather(MPI.IN_PLACE, found, 0)
        assert (found == whole).all()
    else:
        comm.Gather(part, None, 0)
print("right", flush=True)
"""


def test_calls_whose_ranks_know_the_size_differently_end_well_under_a_table(launch, mpi_library, tmp_path):
    """Only the root's send count means anything in a scatter, and none does at the root of an in-place gather."""
    if mpi_library != "openmpi":
        pytest.skip("needs Open MPI in this environment")
    rules = [rule("openmpi", "binomial", 0, None, collective=c) for c in ("gather", "scatter")]
    done = launch(4, ROOTED, env=written(tmp_path, selection("openmpi", rules), rules_format()))
    assert done.returncode == 0, done.stderr[-800:]
    assert done.stdout.count("right") == 4


def test_mpich_runs_what_the_merged_table_says(launch, mpi_library, tmp_path):
    """At 4 ranks ring up to its border and Rabenseifner's relative above, in the sixth call too."""
    if mpi_library != "mpich":
        pytest.skip("needs MPICH in this environment")
    rules = [rule("mpich", "ring", 0, 65536), rule("mpich", "k_reduce_scatter_allgather", 65537, None)]
    needs = {"MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE": "0"}
    environment = written(tmp_path, selection("mpich", rules, needs=needs), "mpich")
    after = traced(launch, 4, "mpich", environment, (1024, 65536, 262144))
    before = traced(launch, 4, "mpich", {}, (1024, 65536))
    assert "ring" in after["1024"]
    assert "ring" in after["65536"]
    assert "k_reduce_scatter_allgather" in after["262144"]
    assert "ring" not in before["1024"]


CALLS = """
import mpi4py
mpi4py.rc.thread_level = "single"
from mpi4py import MPI
from collbench.mpi.calls import prepare
from collbench.mpi.timed import block
from collbench.records import Case, Cell
import sys
comm = MPI.COMM_WORLD.Dup()
for name in sys.argv[1:]:
    op = "sum" if "reduce" in name else None
    nbytes = 0 if name == "barrier" else 4096
    block(prepare(MPI, comm, Case(Cell(name, comm.size, comm.size, nbytes, op=op), "mpich", "default")), 3, sync="none")
if comm.rank == 0:
    print("ran")
"""


def test_mpich_loads_a_table_with_every_algorithm_of_every_collective(launch, mpi_library, tmp_path):
    """All leaves and guards are accepted in MPI_Init, and one call of each collective goes through."""
    if mpi_library != "mpich":
        pytest.skip("needs MPICH in this environment")
    by_turn: dict[int, list[Rule]] = {}
    for name in dict.fromkeys(row.collective for row in algorithms.algorithms("mpich")):
        if name in ("allgatherv", "alltoallv", "reduce_scatter_v"):
            continue
        cell = Cell(name, 4, 4, 0 if name == "barrier" else 4096, op="sum" if "reduce" in name else None)
        rows = [
            r
            for r in algorithms.algorithms("mpich", name)
            if r.component == "mpir" and not r.impossible(cell)
        ]
        for turn, row in enumerate(rows):
            by_turn.setdefault(turn, []).append(rule("mpich", row.name, 0, None, collective=name))
    for rules in by_turn.values():
        names = [r.collective for r in rules]
        needs = {f"MPIR_CVAR_{mpich.WORDS.get(n, n).upper()}_DEVICE_COLLECTIVE": "0" for n in names}
        environment = written(tmp_path, selection("mpich", rules, needs=needs), "mpich")
        done = launch(4, CALLS, args=names, env=environment)
        assert done.returncode == 0, (rules, done.stderr[-800:])
        assert "ran" in done.stdout


def test_the_installed_mpich_carries_its_defaults(mpi_library):
    if mpi_library != "mpich":
        pytest.skip("needs MPICH in this environment")
    own = mpich.defaults(Path(installation.discover().libmpi))
    assert {"collective=allreduce", "collective=bcast", "collective=allgather"} <= own.keys()


def test_verify_shows_that_a_table_acts_and_measures_it(cli, mpi_library, tmp_path):
    """The live library runs ring under a rules file: loaded, with a speed-up and an interval for the cell."""
    if mpi_library != "openmpi":
        pytest.skip("needs Open MPI in this environment")
    path = tmp_path / "rules.conf"
    rules = [rule("openmpi", "ring", 0, None, ranks=2, ranks_per_node=2)]
    path.write_text(tables.render(selection("openmpi", rules), rules_format()))
    found = cli("verify", path, "--ranks", "2", "--sizes", "64", "--launches", "3", "--json")
    shown = json.loads(found.stdout)
    assert shown["loaded"] is True
    assert len(shown["cells"]) == 1
    assert shown["cells"][0]["low"] <= shown["cells"][0]["speedup"] <= shown["cells"][0]["high"]
    assert int(found) == (1 if shown["slower"] else found.status)


INTEL = (("rabenseifner", 0, 32768), ("ring", 32769, None))


def test_intel_mpi_runs_the_presets_of_an_emitted_table(launch, mpi_library, tmp_path):
    """At 4 ranks preset 2 runs up to its border and preset 8 above, where the library by itself runs something else."""
    if mpi_library != "intelmpi":
        pytest.skip("needs Intel MPI in this environment")
    rules = [rule("intelmpi", name, first, last) for name, first, last in INTEL]
    environment = written(tmp_path, selection("intelmpi", rules), "intelmpi")
    assert environment == {"I_MPI_ADJUST_ALLREDUCE": "2:0-32768;8:32769-2147483647"}
    sizes = (1024, 4096, 32768, 32784, 1 << 20)
    before, after = (traced(launch, 4, "intelmpi", env, sizes) for env in ({}, environment))
    for nbytes in ("1024", "4096", "32768"):
        assert "rabenseifner" in after[nbytes], (nbytes, after)
    for nbytes in ("32784", "1048576"):
        assert "ring" in after[nbytes], (nbytes, after)
        assert "ring" not in before[nbytes]
    assert "rabenseifner" not in before["1024"] + before["4096"]


def test_verify_says_why_a_table_counts_as_loaded(cli, mpi_library, tmp_path):
    """MPICH: a table whose cells no proof separates was read, because a bad one aborts; a bad one is exit 3."""
    if mpi_library != "mpich":
        pytest.skip("needs MPICH in this environment")
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    rules = [rule("mpich", "binomial", 0, None, collective="bcast", ranks=2, ranks_per_node=2)]
    good.write_text(tables.render(selection("mpich", rules), "mpich"))
    bad.write_text(good.read_text().replace("MPIR_Bcast_intra_binomial", "MPIR_Bcast_intra_unheard_of"))
    options = ("--ranks", "2", "--sizes", "64", "--launches", "3")
    found = cli("verify", good, *options, "--json")
    assert json.loads(found.stdout)["evidence"] == "read"
    assert "aborts in MPI_Init" in found.stderr
    assert cli("verify", bad, *options).status == 3


def test_verify_does_not_call_a_table_loaded_that_nothing_shows(cli, mpi_library, tmp_path):
    """Open MPI starts with any file: a table that asks for what runs anyway is exit 3, in one clear sentence."""
    if mpi_library != "openmpi":
        pytest.skip("needs Open MPI in this environment")
    path = tmp_path / "rules.conf"
    rules = [rule("openmpi", "recursive_doubling", 0, None, ranks=2, ranks_per_node=2)]
    path.write_text(tables.render(selection("openmpi", rules), rules_format()))
    found = cli("verify", path, "--ranks", "2", "--sizes", "64", "--launches", "3", "--json")
    shown = json.loads(found.stdout)
    assert shown["loaded"] is None
    # Looking a rule up costs time of its own (Open MPI 6: 10 % of 64 B), which comes before the question of loading.
    assert found.status == (1 if shown["slower"] else 3)
    assert shown["slower"] or "nothing tells whether" in found.stderr
