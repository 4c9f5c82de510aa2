"""The ranks of the NCCL back end as real processes, on a machine without a GPU."""

import json
import subprocess
import sys

import pytest

from collbench.backends import nccl_presence
from collbench.backends.nccl_worker import EXIT_UNUSABLE

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        bool(nccl_presence.gpus()), reason="this machine has a GPU: tests/gpu runs the real thing"
    ),
]


def _start(tmp_path, ranks, spawned):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({
        "launch": 1, "purpose": "measure", "repetition": 0, "ranks": ranks, "ranks_per_node": ranks, "groups": [],
        "timings": ["host"], "iterations": 1, "output": str(tmp_path / "run.jsonl"), "status": str(tmp_path / "s"),
        "evidence": {}, "sampling": {},
    }))  # fmt: skip
    words = [
        sys.executable,
        "-m",
        "collbench.backends.nccl_worker",
        "--plan",
        str(plan),
        "--spawn",
        str(spawned),
    ]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_without_a_gpu_every_rank_ends_with_a_sentence(tmp_path):
    """The ranks find each other, share the plan, and say that there is no CUDA; nothing is written, no traceback."""
    done = _start(tmp_path, 3, 3)
    assert done.returncode == EXIT_UNUSABLE
    assert "collbench.nccl_worker: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run.jsonl").exists()


def test_another_number_of_ranks_is_refused(tmp_path):
    """Two came up where three were planned."""
    done = _start(tmp_path, 3, 2)
    assert done.returncode == EXIT_UNUSABLE
    assert "2 ranks came up where 3 were asked for" in done.stderr


def test_ranks_that_mpi_started_agree_through_mpi(launch):
    """The same agreement as over sockets: rank 0's bytes, the maximum, and a rank on the node."""
    done = launch(
        3,
        """
        import numpy as np
        from collbench.backends.nccl_control import MpiControl, connect
        control = connect()
        assert isinstance(control, MpiControl)
        shared = control.share(b"abc" if control.rank == 0 else b"")
        most = control.maximum(np.array([control.rank, -control.rank], float)).tolist()
        control.barrier()
        print("agreed", shared == b"abc", most == [2.0, 0.0], 0 <= control.local_rank < 3, flush=True)
        control.close()
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("agreed True True True") == 3
