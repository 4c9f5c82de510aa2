"""What is recorded of a machine, what never is, and what redaction leaves."""

import json
import os
import socket
import subprocess
import sys

import pytest

from collbench import environment
from collbench.environment import redact


def test_the_description_is_json_and_names_what_matters():
    """A launch line can hold it as it is."""
    found = json.loads(json.dumps(environment.capture()))
    assert found["usable_cores"] == len(os.sched_getaffinity(0))
    assert 1 <= found["physical_cores"] <= found["usable_cores"] <= found["cores"]
    assert found["memory_bytes"] > 2**20
    assert found["versions"]["collbench"]
    assert {"cpu", "kernel", "container", "governor", "clock_mhz", "throttled", "load", "numa_nodes"} <= set(
        found
    )


def test_usable_cores_follow_the_affinity():
    """A batch system's core binding counts, not the machine's size."""
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from collbench.environment import usable_cores as cores; print(cores(), cores(physical=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["1", "1"]


def test_only_what_can_change_a_measurement_is_recorded():
    """Settings stay; secrets, launcher internals and everything else go."""
    kept = {
        "OMPI_MCA_coll": "^han", "MPIR_CVAR_BCAST_TREE_KVAL": "4", "I_MPI_ADJUST_BCAST": "3", "NCCL_ALGO": "Ring",
        "FI_PROVIDER": "tcp", "UCX_TLS": "tcp", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "SLURM_JOB_ID": "7",
        "LD_PRELOAD": "x.so", "KMP_AFFINITY": "none", "I_MPI_PIN_MAPPING": "1:0 0",
    }  # fmt: skip
    dropped = {
        "HOME": "/root", "AWS_SECRET_ACCESS_KEY": "s", "NCCL_AUTH_TOKEN": "t", "OMPI_MCA_password": "p",
        "UCX_API_KEY": "k", "OMPI_MCA_orte_hnp_uri": "1.0;tcp://192.0.2.1:5", "PMIX_SERVER_URI2": "x",
        "OMPI_MCA_ess_base_vpid": "0", "I_MPI_HYDRA_UUID": "u", "I_MPI_INFO_CORE": "0,1", "SLURM_JOB_USER": "me",
        "PMI_FD": "9",
    }  # fmt: skip
    assert kept == environment.variables({**kept, **dropped})


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_a_containers_share_of_the_cores_is_read(tmp_path, files, quota):
    """cgroup v2 and v1; no limit is None."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert quota == environment.cpu_quota(tmp_path)


LINE = {
    "kind": "launch",
    "hosts": ["login1.site.org", "node07"],
    "library": {"string": "Open MPI v5.0.11, package: Open MPI builder@ci-3 Distribution",
                "path": "/home/alice/mpi/lib/libmpi.so.40"},
    "environment": {"hostname": "login1",
                    "variables": {"LD_LIBRARY_PATH": "/opt/a/lib:/home/alice/lib", "X": "node07:8,node070"}},
    "argv": ["run", "--hosts", "login1,extra9:4", "-o", "/home/alice/r.jsonl", "--mpi=/home/alice"],
    "note": "see http://example.org/a/b; 3/4 of 12 GB/s; extra9 was slow",
    "case": {"collective": "allreduce", "algorithm": "node07"},
}  # fmt: skip


def test_redaction_replaces_hosts_users_and_paths():
    """No host, user, address or folder is left; what was measured is."""
    mapping: dict[str, str] = {}
    text = json.dumps(redact(LINE, mapping))
    for secret in ("login1", "site.org", "alice", "builder", "ci-3", "/home", "/opt", "extra9", "node07:8"):
        assert secret not in text, secret
    found = json.loads(text)
    assert found["library"]["path"] == "<path>/libmpi.so.40"
    assert found["hosts"] == [mapping["login1"], mapping["node07"]]
    assert found["environment"]["hostname"] == found["hosts"][0]
    assert found["argv"][1:3] == ["--hosts", f"{mapping['login1']},{mapping['extra9']}:4"]


def test_redaction_leaves_other_text_and_the_case_alone():
    """Addresses of the web, rates, longer names and the case stay, also where a host is called like an algorithm."""
    found = redact(LINE, {})
    assert found["note"].startswith("see http://example.org/a/b; 3/4 of 12 GB/s")
    assert found["environment"]["variables"]["X"].endswith(",node070")
    assert found["case"] == LINE["case"]
    assert found["kind"] == "launch"


def test_redaction_gives_one_host_one_name_over_all_lines():
    """The mapping grows from line to line; a second pass changes nothing."""
    mapping: dict[str, str] = {}
    first = redact({"kind": "launch", "hosts": ["b", "a"]}, mapping)
    second = redact({"kind": "launch", "hosts": ["a", "c", "b"]}, mapping)
    assert len(set(second["hosts"])) == 3
    assert [second["hosts"][2], second["hosts"][0]] == first["hosts"]
    assert redact(LINE, mapping) == redact(redact(LINE, mapping), {h: h for h in mapping.values()})


def test_this_machines_own_name_is_replaced_too():
    """A command line may mention it though no line lists it."""
    name = socket.gethostname()
    assert name not in redact({"kind": "run", "label": f"on {name} today"}, {})["label"].split()
