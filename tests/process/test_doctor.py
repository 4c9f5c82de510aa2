"""``collbench doctor`` where it really starts ranks."""

import json
import os
import subprocess
import sys

import pytest

from collbench import installation

pytestmark = pytest.mark.process


def doctor(*words, **env):
    """Run the doctor as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "collbench", "doctor", *map(str, words)],
        env={**os.environ, "PYTHONSAFEPATH": "1", **env}, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


def test_two_real_ranks_are_started_and_see_each_other(mpi_library):
    """Library, launcher and the start are reported; the machine is fit."""
    done = doctor("--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    by_name = {f["name"]: f for f in found["findings"]}
    assert found["fit"] is True
    assert by_name["MPI library"]["text"].startswith(mpi_library)
    assert by_name["start of 2 ranks"]["status"] == "ok"
    assert "see each other" in by_name["start of 2 ranks"]["text"]


def test_the_report_fits_into_80_columns(mpi_library):
    """Every finding stands in the report, wrapped."""
    done = doctor(COLUMNS="80")
    assert done.returncode == 0, done.stderr
    table, _, _ = done.stdout.partition(": to mend it")
    assert max(len(line) for line in table.splitlines()) <= 80
    assert "start of 2 ranks" in table


def test_singletons_are_a_fault(tmp_path, mpi_library):
    """A launcher that starts separate processes is found out by starting it."""
    fake = tmp_path / "bin/mpiexec"
    fake.parent.mkdir()
    # Passes for the real one, and starts the program twice, each on its own.
    real = installation.discover().mpiexec
    fake.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec {real} --version\n'
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
        'while [ "$1" ] && ! [ -x "$1" ]; do shift; done\n"$@"\n"$@"\n'
    )
    fake.chmod(0o755)
    done = doctor("--json", "--mpi", fake)
    faults = [f for f in json.loads(done.stdout)["findings"] if f["status"] == "fault"]
    assert done.returncode == 3
    assert [f["name"] for f in faults] == ["start of 2 ranks"], done.stdout
    assert "do not see each other" in faults[0]["text"]
    assert faults[0]["remedy"]
    assert done.stderr.strip() == "collbench: not fit to measure: start of 2 ranks"
