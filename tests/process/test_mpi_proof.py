"""What really ran, shown on real ranks: forced algorithms, silent fall-backs, settings that were ignored."""

import json

import pytest

pytestmark = pytest.mark.process

PROVE = """
    import json, os, sys
    from collbench.algorithms import algorithms
    from collbench.errors import CollbenchError
    from collbench.mpi import library, proof, start, switch
    from collbench.records import Case, Cell

    MPI = start.start()
    world = MPI.COMM_WORLD
    lib = library.identify(MPI)
    chooser = switch.Switch(MPI, world, lib)
    nbytes, wanted = int(sys.argv[1]), json.loads(sys.argv[2])
    monitoring = os.environ.get("OMPI_MCA_pml_monitoring_enable") == "1"
    for collective, names in wanted.items():
        for row in algorithms(lib.name, collective, lib.version):
            if names and row.name not in names:
                continue
            op = "sum" if "reduce" in collective else None
            cell = Cell(collective, world.size, world.size, 0 if collective == "barrier" else nbytes, "float64", op)
            if not names and row.impossible(cell):
                continue
            case = Case(cell, lib.name, row.name, row.component)
            try:
                found = proof.prove(MPI, chooser.select(case), case, lib, monitoring=monitoring)
                line = {"status": found.status, "effective": found.effective, "detail": found.detail}
            except CollbenchError as error:
                line = {"status": "error", "effective": None, "detail": str(error)}
            if world.rank == 0:
                print(json.dumps({"collective": collective, "name": row.name, **line}))
    chooser.close()
"""

COUNTED = ("allreduce", "reduce", "reduce_scatter", "reduce_scatter_v", "bcast", "allgather", "alltoall",
           "gather", "scatter", "barrier")  # fmt: skip
TRACED = COUNTED[:4]
MONITORING = {"OMPI_MCA_pml_monitoring_enable": "1"}
DYNAMIC = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1"}

# Takes built-in operators only, so no user-defined operator can trace it.
BUILT_IN_ONLY = {("allreduce", "reduce_scatter_allgather"), ("reduce", "reduce_scatter_gather")}


def prove(launch, ranks, nbytes, wanted, env=None):
    done = launch(ranks, PROVE, args=[nbytes, json.dumps(wanted)], env=env, timeout=150)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_open_mpi_s_algorithms_are_confirmed_by_message_counts(launch, mpi_library, ranks):
    """Every algorithm that is possible there ran as asked, each collective of the table."""
    if mpi_library != "openmpi":
        pytest.skip(f"{mpi_library} counts no messages")
    found = prove(launch, ranks, 8192 * ranks, {c: [] for c in COUNTED}, {**MONITORING, **DYNAMIC})
    assert len(found) > 40
    if all("does not count" in line["detail"] for line in found if line["collective"] not in TRACED):
        # Debian's 4.1 has no counters: its reductions are shown by their operator traces, the rest says so.
        found = [line for line in found if line["collective"] in TRACED]
    for line in found:
        assert line["status"] in ("proven", "not_separable"), line
        assert line["effective"] == line["name"], line
    proven = [line for line in found if line["status"] == "proven"]
    if ranks == 8:
        assert len(proven) > 0.6 * len(found)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_mpich_s_reductions_are_confirmed_by_operator_traces(launch, mpi_library, ranks):
    """MPIR and shared-memory algorithms alike, all switched inside one single-threaded launch."""
    if mpi_library != "mpich":
        pytest.skip(f"{mpi_library} is not MPICH")
    found = prove(launch, ranks, 1024 * ranks, {c: [] for c in TRACED})
    assert len(found) >= 20
    for line in found:
        if (line["collective"], line["name"]) in BUILT_IN_ONLY:
            assert line["status"] == "not_separable" or ranks == 2, line
            assert "user-defined operator" in line["detail"], line
            assert line["effective"] == line["name"], line
        else:
            assert line["status"] in ("proven", "not_separable"), line
            assert line["effective"] == line["name"], line


def test_a_ring_with_fewer_elements_than_ranks_is_shown_to_be_something_else(launch, mpi_library):
    """Open MPI runs recursive doubling under ring's name, and a linear reduction under Rabenseifner's."""
    if mpi_library != "openmpi":
        pytest.skip("the silent fall-back is Open MPI's")
    wanted = {"allreduce": ["ring", "rabenseifner"]}
    found = {line["name"]: line for line in prove(launch, 8, 32, wanted, {**MONITORING, **DYNAMIC})}
    assert found["ring"]["status"] == "contradicted"
    assert found["ring"]["effective"] == "recursive_doubling"
    assert found["rabenseifner"]["status"] == "contradicted"
    assert found["rabenseifner"]["effective"] == "basic_linear"


def test_mpich_reports_an_error_instead_of_falling_back(launch, mpi_library):
    """An algorithm outside its limits is refused with the reason, not replaced."""
    if mpi_library != "mpich":
        pytest.skip(f"{mpi_library} is not MPICH")
    wanted = {"allreduce": ["reduce_scatter_allgather"], "reduce_scatter": ["noncommutative"]}
    found = {line["name"]: line for line in prove(launch, 3, 8 * 3, wanted)}
    assert found["noncommutative"]["status"] == "error"
    assert "power of two" in found["noncommutative"]["detail"]
    assert found["reduce_scatter_allgather"]["status"] == "unknown"
    assert "not usable for the provided arguments" in found["reduce_scatter_allgather"]["detail"]


READ_BACK = """
    from collbench.mpi import cvars, library, proof, start
    from collbench.records import Case, Cell

    MPI = start.start()
    world = MPI.COMM_WORLD
    variables = cvars.ControlVariables(MPI)
    variables.write("coll_tuned_allreduce_algorithm", 4)
    comm = world.Dup()
    case = Case(Cell("allreduce", 8, 8, 65536, "float64", "sum"), "openmpi", "ring")
    found = proof.prove(MPI, comm, case, library.identify(MPI), monitoring=False)
    if world.rank == 0:
        print(variables.read("coll_tuned_allreduce_algorithm"), found.status, found.effective)
"""


def test_a_control_variable_that_reads_back_is_no_evidence(launch, mpi_library):
    """Without dynamic rules Open MPI keeps ring in the variable and runs its built-in choice."""
    if mpi_library != "openmpi":
        pytest.skip("the variable is Open MPI's")
    done = launch(8, READ_BACK)
    assert done.stdout.split() == ["4", "contradicted", "rabenseifner"], done.stdout + done.stderr
    forced = launch(8, READ_BACK, env=DYNAMIC)
    assert forced.stdout.split()[:2] == ["4", "not_separable"], forced.stdout + forced.stderr


def test_open_mpi_4_refuses_to_force_without_its_launch_variable(launch, mpi_library, tmp_path):
    """The naive sweep would time one algorithm under every name; the switch says what is missing."""
    if mpi_library != "openmpi":
        pytest.skip("Open MPI only")
    version = launch(1, "from mpi4py import MPI; print(MPI.get_vendor()[1][0])").stdout.strip()
    found = prove(launch, 2, 4096, {"allreduce": ["ring", "rabenseifner"]})
    if version == "4":
        assert [line["status"] for line in found] == ["error", "error"]
        assert "OMPI_MCA_coll_tuned_use_dynamic_rules=1" in found[0]["detail"]
    else:
        assert {line["status"] for line in found} <= {"proven", "not_separable"}


RULES = "1\n2\n1\n8\n1\n0 4 0 0\n"
DEFAULT = """
    import os
    from collbench.mpi import library, proof, start
    from collbench.records import Case, Cell

    MPI = start.start()
    world = MPI.COMM_WORLD
    case = Case(Cell("allreduce", 8, 8, 65536, "float64", "sum"), "openmpi", "default")
    found = proof.prove(MPI, world.Dup(), case, library.identify(MPI), monitoring=False)
    if world.rank == 0:
        print(found.effective)
"""


def test_an_ignored_rules_file_is_seen(launch, mpi_library, tmp_path):
    """A good file makes the default run its ring; one with a syntax fault is ignored without a word."""
    if mpi_library != "openmpi":
        pytest.skip("rules files are Open MPI's")
    effective = {}
    for name, text in {"good": RULES, "broken": RULES.replace("1\n2\n", "1\ntwo\n")}.items():
        rules = tmp_path / f"{name}.conf"
        rules.write_text(text)
        env = {**DYNAMIC, "OMPI_MCA_coll_tuned_dynamic_rules_filename": str(rules)}
        done = launch(8, DEFAULT, env=env)
        assert done.returncode == 0, done.stderr
        effective[name] = done.stdout.strip()
    assert effective == {"good": "ring", "broken": "rabenseifner"}


@pytest.mark.parametrize(("preset", "name"), [(1, "recursive_doubling"), (2, "rabenseifner"), (8, "ring")])
def test_intel_s_named_presets_run_what_their_name_says(launch, mpi_library, preset, name):
    """The launch's environment decides, and the operator trace shows it; other presets are refused there."""
    if mpi_library != "intelmpi":
        pytest.skip("presets are Intel MPI's")
    env = {"I_MPI_ADJUST_ALLREDUCE": str(preset)}
    found = {line["name"]: line for line in prove(launch, 4, 32768, {"allreduce": [name, "preset_20"]}, env)}
    assert found[name]["status"] in ("proven", "not_separable"), found
    assert found[name]["effective"] == name
    assert found["preset_20"]["status"] == "error"
    assert "I_MPI_ADJUST_ALLREDUCE=20" in found["preset_20"]["detail"]


def test_intel_ignores_a_control_variable_that_reads_back(launch, mpi_library):
    """Writing preset 8 by MPI_T returns success and reads 8; the trace stays the default's."""
    if mpi_library != "intelmpi":
        pytest.skip("presets are Intel MPI's")
    code = """
        from collbench.mpi import cvars, proof, start
        from collbench.records import Case, Cell

        MPI = start.start()
        world = MPI.COMM_WORLD
        case = Case(Cell("allreduce", 4, 4, 32768, "float64", "sum"), "intelmpi", "default")
        before = proof.trace_operator(MPI, world.Dup(), case)
        variables = cvars.ControlVariables(MPI)
        variables.write("MPIR_CVAR_USE_ALLREDUCE", 8)
        after = proof.trace_operator(MPI, world.Dup(), case)
        if world.rank == 0:
            print(variables.read("MPIR_CVAR_USE_ALLREDUCE"), after == before, after[0] == [1024] * 3)
    """
    done = launch(4, code)
    assert done.stdout.split() == ["8", "True", "False"], done.stdout + done.stderr
