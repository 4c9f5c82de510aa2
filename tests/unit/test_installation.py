"""Finding an MPI installation: version texts, which launcher fits which library, and the sentences for faults."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collbench import installation, mpiexec
from collbench.errors import UnansweredError, UsageError
from collbench.installation import Loaded
from collbench.mpiexec import Starter

VERSIONS = {
    "openmpi5": ("mpiexec (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n",
                 ("openmpi", (5, 0, 11))),
    "openmpi4": ("mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n",
                 ("openmpi", (4, 1, 4))),
    "hydra": ("HYDRA build details:\n    Version:                                 5.0.2\n    CC: cc\n",
              ("hydra", (5, 0, 2))),
    "intel": ("Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n",
              ("intel", (2021, 18, 1))),
    "other": ("mpiexec version 1.2.11 revision 0\n", ("other", None)),
    "nothing": ("", ("other", None)),
}  # fmt: skip


@pytest.mark.parametrize("name", VERSIONS)
def test_a_launcher_is_known_by_its_version_text(name):
    """``mpiexec --version`` tells flavour and version; what it does not tell is "other"."""
    text, expected = VERSIONS[name]
    assert expected == mpiexec.parse(text)


@pytest.mark.parametrize(
    ("flavour", "launcher", "library", "version", "fits"),
    [
        ("openmpi", (5, 0, 11), "openmpi", (5, 0, 11), True),
        ("openmpi", (5, 0, 3), "openmpi", (5, 0, 11), True),
        ("openmpi", (4, 1, 4), "openmpi", (5, 0, 11), False),
        ("openmpi", (5, 0, 11), "openmpi", (4, 1, 4), False),
        ("openmpi", None, "openmpi", (4, 1, 4), True),
        ("hydra", (5, 0, 2), "openmpi", (5, 0, 11), False),
        ("openmpi", (5, 0, 11), "mpich", (5, 0, 2), False),
        ("intel", (2021, 18), "mpich", (5, 0, 2), False),
        ("hydra", (4, 1), "mpich", (5, 0, 2), True),
        ("hydra", (4, 1), "mvapich", (4, 0), True),
        ("hydra", (4, 1), "cray_mpich", (8, 1), True),
        ("other", None, "openmpi", (5, 0, 11), True),
    ],
)
def test_a_launcher_fits_its_own_library_only(flavour, launcher, library, version, fits):
    """Another family, or another major version of Open MPI, would start singletons."""
    assert fits == Starter(Path("/x/mpiexec"), flavour, launcher).fits(library, version)


def _program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
    path.chmod(0o755)
    return path


def test_launchers_of_the_environment_come_first_then_the_librarys_then_path(tmp_path, monkeypatch):
    """One found first on PATH may be of another MPI, so PATH comes last."""
    for folder in ("env", "site", "path"):
        _program(tmp_path / folder / "bin/mpiexec", "x\n")
    monkeypatch.setenv("PATH", str(tmp_path / "path/bin"))
    found = list(mpiexec.candidates(tmp_path / "env", str(tmp_path / "site/lib/openmpi/libmpi.so.40")))
    assert found[:3] == [tmp_path / f / "bin/mpiexec" for f in ("env", "site", "path")]


def test_files_that_cannot_be_executed_are_no_launchers(tmp_path, monkeypatch):
    """A directory or a plain text called mpiexec is passed over."""
    monkeypatch.setenv("PATH", "")
    (tmp_path / "bin/mpirun").mkdir(parents=True)
    (tmp_path / "bin/mpiexec").write_text("not a program")
    assert tmp_path not in {p.parent.parent for p in mpiexec.candidates(tmp_path, None)}


def test_identify_runs_the_program(tmp_path):
    """The flavour comes from what the program says, not from its name."""
    found = mpiexec.identify(_program(tmp_path / "bin/mpiexec.hydra", VERSIONS["openmpi4"][0]))
    assert (found.flavour, found.version) == ("openmpi", (4, 1, 4))


@pytest.mark.parametrize("place", ["missing", "file"])
def test_a_place_without_mpi_is_wrong_use(tmp_path, place):
    """--mpi with nothing there, or with a file that is no program, ends in one sentence naming the value."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=rf"--mpi .*{place}.*there is no mpiexec"):
        installation.discover(str(tmp_path / place))


def test_a_prefix_without_mpiexec_is_wrong_use(tmp_path):
    """--mpi with a folder that holds no bin/mpiexec says what is missing."""
    with pytest.raises(UsageError, match="no bin/mpiexec"):
        installation.discover(str(tmp_path))


def test_a_launcher_of_another_library_is_refused(tmp_path):
    """The sentence names the launcher, both libraries and what mends it."""
    loaded = Loaded("4.1.2", "0", "mpich", (5, 0, 2), "MPICH Version: 5.0.2", None)
    error = installation._mismatch(Starter(Path("/a/mpiexec"), "openmpi", (5, 0, 11)), loaded)
    assert isinstance(error, UnansweredError)
    assert "/a/mpiexec belongs to Open MPI 5.0.11, but mpi4py loads MPICH Version: 5.0.2" in str(error)
    assert "collbench[mpich]" in str(error)


def test_a_python_without_mpi4py_is_named_with_the_command_that_mends_it(tmp_path):
    """A real, empty virtual environment has no mpi4py."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True, timeout=60
    )
    python = tmp_path / "v/bin/python"
    with pytest.raises(UnansweredError, match=r"mpi4py is not installed for .*pip install mpi4py"):
        installation.what_loads(python)


def test_a_library_that_does_not_exist_is_named(monkeypatch):
    """MPI4PY_LIBMPI pointing nowhere is one sentence, not a traceback."""
    with pytest.raises(UnansweredError, match=r"MPI4PY_LIBMPI=/nowhere/libmpi\.so"):
        installation.what_loads(Path(sys.executable), {"MPI4PY_LIBMPI": "/nowhere/libmpi.so"})


def test_a_python_that_cannot_start_is_named(tmp_path):
    """A missing interpreter is no traceback either."""
    with pytest.raises(UnansweredError, match="cannot start"):
        installation.what_loads(tmp_path / "python")


def test_the_driver_never_loads_mpi():
    """discover asks a subprocess; this process stays free of MPI."""
    code = "import sys; from collbench import installation, launchers, doctor; sys.exit('mpi4py.MPI' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False, timeout=60)
    assert done.returncode == 0
