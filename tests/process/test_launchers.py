"""Launchers with real ranks: what was planned arrives on every rank, on every library that is here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from collbench import installation, launchers
from collbench.errors import UnansweredError

pytestmark = pytest.mark.process

ECHO = """\
import json, os, sys
import mpi4py
mpi4py.rc.thread_level = "single"
from mpi4py import MPI
found = MPI.COMM_WORLD.gather({n: os.environ.get(n) for n in sys.argv[1:]})
if MPI.COMM_WORLD.rank == 0:
    print("echo:", json.dumps(found), flush=True)
"""
PLANNED = {
    "COLLBENCH_TEST_PLAIN": "1", "COLLBENCH_TEST_EMPTY": "", "NCCL_ALGO": "Ring,Tree;x", "UCX_TLS": "self,sm",
    "COLLBENCH_TEST_QUOTES": "a \"b\" 'c' $HOME \\ = *", "PYTHONSAFEPATH": "1",
}  # fmt: skip


def _start(launcher: launchers.Launcher, spec: launchers.LaunchSpec) -> "subprocess.CompletedProcess[str]":
    command = launcher.command(spec)
    environ = {k: v for k, v in os.environ.items() if k not in spec.env}
    return subprocess.run(
        command.argv, env={**environ, **command.env}, capture_output=True, text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def _echo(launcher: launchers.Launcher, ranks: int, **spec) -> list[dict]:
    program = (str(launcher.installation.python), "-c", ECHO, *PLANNED)
    env = {**launcher.installation.env, **PLANNED}
    done = _start(launcher, launchers.LaunchSpec(ranks, program, env, **spec))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("echo:")]
    assert len(lines) == 1, f"{len(lines)} worlds instead of one: {done.stdout}"
    return json.loads(lines[0].removeprefix("echo:"))


@pytest.fixture(name="here", scope="module")
def _here() -> installation.Installation:
    """The MPI of the environment that runs the tests."""
    try:
        found = installation.discover()
    except UnansweredError as error:
        pytest.skip(str(error))
    if found.mpiexec is None:
        pytest.skip("no mpiexec belongs to the library of this environment")
    return found


def test_this_environments_own_mpi_is_found(here, mpi_library):
    """Library and launcher belong together, whatever comes first on PATH."""
    own = Path(sys.prefix) / "bin/mpiexec"
    assert here.library == mpi_library
    assert not own.exists() or here.mpiexec == own
    assert Path(here.libmpi).name.startswith("libmpi")
    assert here.version


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_planned_variable_arrives_on_every_rank(here, ranks):
    """Commas, quotes, dollar signs and the empty value come through, also with more ranks than cores."""
    assert _echo(launchers.choose(here, environ={}), ranks) == [PLANNED] * ranks


def test_a_named_host_takes_more_ranks_than_it_has_cores(here):
    """Hosts and ranks per node together still start when cores must be shared."""
    launcher = launchers.choose(here, hosts=("localhost",), ranks_per_node=4, environ={})
    assert len(_echo(launcher, 4)) == 4


def test_ranks_per_node_alone_start_here(here):
    """One node with all ranks is a placement too."""
    assert len(_echo(launchers.choose(here, ranks_per_node=3, environ={}), 3)) == 3


def test_a_template_carries_the_variables_by_itself(here):
    """A launcher that collbench does not know, with ``env`` before the program."""
    own = launchers.choose(here, environ={}).command(launchers.LaunchSpec(3, ()))
    launcher = launchers.choose(here, template=f"env {' '.join(f'{k}={v}' for k, v in own.env.items())} "
                                f"{here.mpiexec} -n {{ranks}}", environ={})  # fmt: skip
    assert _echo(launcher, 3) == [PLANNED] * 3


def test_a_rank_knows_that_it_is_inside_a_job(here):
    """Every launcher tells its ranks how many they are."""
    code = "import os; from collbench import launchers; print('inside:' + str(launchers.inside_job(os.environ)), flush=True)"
    launcher = launchers.choose(here, environ={})
    done = _start(launcher, launchers.LaunchSpec(2, (str(here.python), "-c", code), {"PYTHONSAFEPATH": "1"}))
    assert done.stdout.count("inside:2") == 2, done.stdout + done.stderr


def test_the_named_environment_is_found_as_prefix_and_as_mpiexec(here):
    """--mpi takes a virtual environment, a prefix or the mpiexec itself and finds the same library."""
    for place in (here.mpiexec, here.mpiexec.parent.parent):
        found = installation.discover(str(place))
        assert (found.library, found.mpiexec) == (here.library, here.mpiexec)


def test_a_launcher_of_another_library_is_refused_before_anything_starts(here, tmp_path):
    """mpi4py of one library and mpiexec of another would start singletons."""
    said = {"openmpi": "HYDRA build details:\\n    Version: 5.0.2"}.get(
        here.library, "mpiexec (Open MPI) 5.0.11"
    )
    foreign = tmp_path / "bin/mpiexec"
    foreign.parent.mkdir()
    foreign.write_text(f"#!/bin/sh\nprintf '{said}\\n'\n")
    foreign.chmod(0o755)
    (tmp_path / "lib").symlink_to(Path(here.libmpi).parent)
    with pytest.raises(UnansweredError, match="both must be of one MPI"):
        installation.discover(str(foreign))
