"""``collbench run`` with real ranks: rows, faults with real signals, resume."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collbench import results
from collbench.processes import MARKER

pytestmark = pytest.mark.process

DEFAULT = ["--algorithms", "default"]
LONG = [
    "--collectives", "allreduce,bcast", "--sizes", "64K,256K", "--iterations", 20000, "--no-prove", "--no-repeat",
    "--seed", "7", "--algorithms", "default", "--ranks", 2,
]  # fmt: skip
"""Four cells of one launch on any library, long enough to be hit by a signal after the first."""
SMALL = ["--collectives", "allreduce,bcast", "--sizes", "8,4K", "--no-prove", "--seed", "7"]


def collbench(*words, cwd, **env):
    """Run the command line as a user does and return the finished process."""
    return subprocess.run(
        [sys.executable, "-m", "collbench", *map(str, words)],
        cwd=cwd, env={**os.environ, "PYTHONSAFEPATH": "1", **env}, capture_output=True, text=True, timeout=180,
        check=False,
    )  # fmt: skip


def start(*words, cwd):
    """Start the command line and return the running process."""
    return subprocess.Popen(
        [sys.executable, "-m", "collbench", *map(str, words)],
        cwd=cwd, env={**os.environ, "PYTHONSAFEPATH": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip


def cells(path: Path) -> list[dict]:
    return list(results.read(path).cells)


def wait_for_cells(path: Path, count: int, process) -> None:
    """Wait until the run file holds ``count`` cells."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if path.exists() and sum(b'"kind":"cell"' in x for x in path.read_bytes().splitlines()) >= count:
            return
        if process.poll() is not None:
            out, err = process.communicate()
            pytest.fail(f"the run ended early: {out}\n{err}")
        time.sleep(0.02)
    process.kill()
    pytest.fail("no cell was measured within 120 s")


def ranks_of(process) -> list[int]:
    """Return the worker processes that ``process`` started, found by what they inherited."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if b"collbench.worker" in command and MARKER.encode() in environment and b"python" in command[0]:
            plan = command[command.index(b"--plan") + 1].decode()
            if _driver(Path(plan)) == process.pid:
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    """Say whether a process still runs; one that only waits to be collected by its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _driver(plan: Path) -> int | None:
    try:
        return json.loads(plan.read_text())["driver_pid"]
    except (OSError, ValueError):
        return None


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_every_cell_is_measured_and_validated(ranks, tmp_path, mpiexec):
    """Rows carry the shape, a time, blocks and what more ranks than cores mean; exit status 0."""
    done = collbench(
        "run",
        *SMALL,
        "--algorithms",
        "ring,recursive_doubling",
        "--ranks",
        ranks,
        "--iterations",
        10,
        "-o",
        "r.jsonl",
        "--json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    run = results.read(tmp_path / "r.jsonl")
    assert json.loads(done.stdout)["cells"] == len(run.cells) > 0
    launch = next(iter(run.launches.values()))
    assert launch["oversubscribed"] == (ranks > len(os.sched_getaffinity(0)))
    for cell in run.cells:
        assert cell["case"]["ranks"] == cell["case"]["ranks_per_node"] == ranks
        assert cell["time_s"] > 0
        assert cell["blocks_s"]
        crowded = any(w["kind"] == "oversubscribed" for w in cell["warnings"])
        assert crowded == launch["oversubscribed"]
    assert not run.failed


def test_all_collectives_run(tmp_path, mpiexec):
    """The ten of the design, the default algorithm, two ranks."""
    names = "allreduce,bcast,allgather,reduce_scatter,reduce,alltoall,gather,scatter,barrier,sendrecv"
    done = collbench(
        "run", "--collectives", names, "--algorithms", "default", "--ranks", 2, "--sizes", "64", "--no-prove",
        "-o", "r.jsonl", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {c["case"]["collective"] for c in cells(tmp_path / "r.jsonl")} == set(names.split(","))


def test_a_results_file_is_never_overwritten(tmp_path, mpiexec):
    """An existing file is refused with exit 2 and stays as it was."""
    (tmp_path / "r.jsonl").write_text("precious\n")
    done = collbench("run", *SMALL, *DEFAULT, "--ranks", 2, "-o", "r.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert "never overwritten" in done.stderr
    assert (tmp_path / "r.jsonl").read_text() == "precious\n"


def test_kill_9_of_the_driver_leaves_a_readable_file(tmp_path, mpiexec):
    """Every finished cell is there, and the ranks end by themselves."""
    path = tmp_path / "r.jsonl"
    process = start("run", *LONG, "-o", path, cwd=tmp_path)
    wait_for_cells(path, 2, process)
    ranks = ranks_of(process)
    assert len(ranks) == 2
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(alive(pid) for pid in ranks):
        time.sleep(0.05)
    assert not [pid for pid in ranks if alive(pid)]
    run = results.read(path)
    assert len(run.cells) >= 2
    assert all(c["time_s"] > 0 for c in run.cells)


def test_a_killed_rank_costs_the_cell_in_flight_only(tmp_path, mpiexec):
    """SIGKILL of one rank: that case fails with a reason, a new launch measures the rest."""
    path = tmp_path / "r.jsonl"
    process = start("run", *LONG, "-o", path, cwd=tmp_path)
    wait_for_cells(path, 1, process)
    os.kill(ranks_of(process)[0], signal.SIGKILL)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    run = results.read(path)
    assert [f["reason"] for f in run.failed] == ["crashed"]
    assert len(run.launches) == 2
    assert "failed" in err + out
    cases = [json.dumps(c["case"], sort_keys=True) for c in (*run.cells, *run.failed)]
    assert len(cases) == len(set(cases))


def test_a_stopped_rank_is_a_hang_and_nothing_survives(tmp_path, mpiexec):
    """SIGSTOP of one rank: the launch is ended with all its processes, the sweep goes on."""
    path = tmp_path / "r.jsonl"
    process = start("run", *LONG, "--timeout", "6s", "-o", path, cwd=tmp_path)
    wait_for_cells(path, 1, process)
    stopped = ranks_of(process)
    os.kill(stopped[0], signal.SIGSTOP)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    run = results.read(path)
    # A busy machine may make a second case look hung; what counts is that the stopped one was found.
    assert {f["reason"] for f in run.failed} == {"timeout"}
    assert not [pid for pid in stopped if alive(pid)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_signals_end_with_130_and_resume_goes_on(number, tmp_path, mpiexec):
    """What was measured is kept; --resume measures exactly what is missing, in a new launch."""
    path = tmp_path / "r.jsonl"
    process = start("run", *LONG, "-o", path, cwd=tmp_path)
    wait_for_cells(path, 1, process)
    ranks = ranks_of(process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert number.name in err
    assert "--resume" in err
    assert not [pid for pid in ranks if alive(pid)]
    before = len(cells(path))
    if number != signal.SIGTERM:
        return
    done = collbench("run", "--resume", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = cells(path)
    keys = [json.dumps(c["case"], sort_keys=True) for c in after]
    assert len(after) > before
    assert len(keys) == len(set(keys))
    assert {c["launch"] for c in after} == {0, 1}


def test_a_full_disk_keeps_what_was_written(tmp_path, mpiexec):
    """A real ENOSPC on a small file system ends with a sentence and whole lines."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        done = collbench(
            "run", *SMALL, *DEFAULT, "--ranks", 2, "--sizes", "8:64K", "-o", small / "r.jsonl", cwd=tmp_path
        )
        assert done.returncode == 3
        assert "No space left" in done.stderr
        assert "Traceback" not in done.stderr
        assert cells(small / "r.jsonl")
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_an_mpiexec_of_another_library_is_one_clear_sentence(tmp_path, mpiexec):
    """A launcher that starts singletons is found out before anything is measured; exit 3."""
    fake = tmp_path / "mpiexec"
    fake.write_text(
        "#!/bin/sh\n# starts the program as often as asked, without any MPI around it\n"
        'while [ "$1" != "-n" ] && [ "$1" != "-np" ]; do shift; done\nn=$2; shift 2\n'
        'while [ "${1#-}" != "$1" ]; do shift 2; done\n'
        'i=0; while [ $i -lt $n ]; do "$@" & i=$((i+1)); done; wait\nexit 86\n'
    )
    fake.chmod(0o755)
    done = collbench(
        "run",
        *SMALL,
        *DEFAULT,
        "--ranks",
        2,
        "--launcher",
        f"{fake} -n {{ranks}}",
        "-o",
        "r.jsonl",
        cwd=tmp_path,
    )
    assert done.returncode == 3, done.stderr
    assert "do not see each other" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dry_run_starts_nothing_and_prints_the_commands(tmp_path, mpiexec):
    """The exact command lines, the number of cases, no run file."""
    done = collbench("run", *SMALL, *DEFAULT, "--ranks", "2,4", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("collbench.worker") == 2
    assert not list(tmp_path.iterdir())


def test_the_installed_package_measures_not_the_working_directory(tmp_path, mpiexec):
    """A folder called collbench beside the user is never imported by the workers."""
    fake = tmp_path / "collbench"
    fake.mkdir()
    (fake / "__init__.py").write_text("raise SystemExit('the clone in the working directory was imported')\n")
    done = collbench("run", *SMALL, *DEFAULT, "--ranks", 2, "-o", "r.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert cells(tmp_path / "r.jsonl")


def test_inside_a_job_it_takes_the_ranks_it_has(tmp_path, mpiexec, launch):
    """``mpiexec -n 2 collbench run`` starts no ranks of its own; rank 0 writes the file and speaks."""
    done = launch(
        2,
        "import sys; from collbench.cli.__main__ import main; main(sys.argv[1:])",
        args=["run", *SMALL, *DEFAULT, "-o", str(tmp_path / "r.jsonl")],
    )
    assert done.returncode == 0, done.stderr
    assert {c["case"]["ranks"] for c in cells(tmp_path / "r.jsonl")} == {2}
    assert done.stdout.count("cases measured") == 1


@pytest.mark.parametrize(
    "words", [["--algorithms", "portable"], ["--algorithms", "all", "--virtual-nodes", "2"]]
)
def test_portable_algorithms_run_validated_beside_the_librarys(words, tmp_path, mpiexec, mpi_library):
    """Every cell is right; hierarchical ones run where there are (virtual) nodes."""
    if "all" in words and mpi_library == "intelmpi":
        pytest.skip("every preset of Intel MPI takes a launch of its own: too long for a test")
    done = collbench(
        "run", *words, "--collectives", "allreduce,bcast,sendrecv", "--sizes", "64K", "--ranks", 4, "--no-prove",
        "--seed", 3, "--iterations", 4, "-o", "r.jsonl", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = results.read(tmp_path / "r.jsonl")
    assert not run.failed
    names = {c["case"]["algorithm"] for c in run.cells if c["case"]["provider"] == "portable"}
    assert {"ring", "rabenseifner", "pipeline", "pingpong"} <= names
    assert ("hierarchical_sharded" in names) == ("--virtual-nodes" in words)


def test_a_redacted_run_names_no_host_and_no_path(tmp_path, mpiexec):
    """Host names become h0 …, paths lose their folders, in the driver's lines and the workers' alike."""
    done = collbench(
        "run",
        *SMALL,
        *DEFAULT,
        "--ranks",
        2,
        "--redact",
        "--label",
        f"in {tmp_path}/x",
        "-o",
        "r.jsonl",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "r.jsonl").read_text()
    assert str(tmp_path) not in text
    assert f'"{socket.gethostname()}"' not in text
    assert next(iter(results.read(tmp_path / "r.jsonl").launches.values()))["hosts"] == ["h0"]


def test_a_library_that_aborts_at_start_is_one_sentence(tmp_path, mpiexec, mpi_library):
    """MPI_Init fails in every launch: exit 3, the library's words, no traceback, no endless retries."""
    broken = {"openmpi": {"OMPI_MCA_pml": "nosuch"}, "mpich": {"MPIR_CVAR_BCAST_INTRA_ALGORITHM": "nosuch"}}
    if mpi_library not in broken:
        pytest.skip(f"no setting is known that makes {mpi_library} abort in MPI_Init")
    done = collbench(
        "run", *SMALL, *DEFAULT, "--ranks", 2, "-o", "r.jsonl", cwd=tmp_path, **broken[mpi_library]
    )
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.jsonl")) or not cells(tmp_path / "r.jsonl")
