"""The serving component as the real library logs it."""

import json

import pytest

from collbench import components

pytestmark = pytest.mark.process

LOGGED = {components.VARIABLE: components.LEVEL}


def test_open_mpi_names_the_component_of_each_communicator(launch, mpi_library):
    """The untouched stack is tuned's, one that prefers basic is basic's; unlogged, nothing is known."""
    if mpi_library != "openmpi":
        pytest.skip("only Open MPI logs its components")
    program = """
        import json, os, sys
        from collbench.mpi import library, start, switch
        from collbench.records import Case, Cell

        MPI = start.start()
        world = MPI.COMM_WORLD
        made = switch.Switch(MPI, world, library.identify(MPI))
        found = []
        for algorithm, component in (("default", None), ("default", "basic"), ("default", "^tuned")):
            case = Case(Cell("bcast", 2, 2, 64), "openmpi", algorithm, component)
            made.select(case)
            selected = made.selected(case)
            found.append(selected and selected.serving("bcast"))
        print("still heard", file=sys.stderr, flush=True)
        if world.rank == 0:
            print(json.dumps(found))
        """
    done = launch(2, program, env=LOGGED)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["tuned", "basic", "basic"]
    assert "still heard" in done.stderr
    assert "DUP FROM 0" not in done.stderr
    assert json.loads(launch(2, program).stdout) == [None, None, None]


def test_rows_name_the_component(cli, tmp_path, mpi_library):
    """Open MPI's default is served by tuned on one node; what MPICH's trace shows belongs to a layer; others say nothing."""
    known = {"openmpi": {"tuned"}, "mpich": {"mpir", "posix", None}}
    output = tmp_path / "run.jsonl"
    done = cli("run", "--collectives", "allreduce", "--ranks", "2", "--sizes", "1K", "--algorithms", "default",
               "--iterations", "20", "-o", output)  # fmt: skip
    assert done.status == 0, done.stderr
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    found = {line["evidence"].get("component") for line in lines if line["kind"] == "cell"}
    assert found <= known.get(mpi_library, {None})
    assert found
    shown = cli("show", output, "--evidence")
    assert shown.status == 0
    assert ("(tuned)" in shown.stdout) == (mpi_library == "openmpi")
