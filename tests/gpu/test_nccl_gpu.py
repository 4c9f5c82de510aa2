"""What needs a GPU; one command runs all: ``pytest -m gpu tests/gpu``. Skipped with a reason elsewhere."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from collbench import results
from collbench.backends import nccl_presence

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        bool(nccl_presence.missing()), reason=f"missing {' and '.join(nccl_presence.missing())}"
    ),
]
several = pytest.mark.skipif(nccl_presence.gpus() < 2, reason="needs two GPUs")

PROFILE = """
backend = "nccl"
launches = 1
[nccl]
memory_gib = 4
timings = {timings}
[[sweep]]
collectives = ["allreduce", "allgather", "reduce_scatter", "bcast", "reduce", "alltoall", "sendrecv"]
ranks = {ranks}
sizes = "1K,64K,16M"
algorithms = {algorithms}
in_place = [false, true]
"""


def test_the_device_check_passes(tmp_path):
    """One rank and two ranks on one GPU, and the plugin in the real library."""
    script = Path(__file__).with_name("device_check.py")
    done = subprocess.run([sys.executable, script, "-o", tmp_path / "check.jsonl"], capture_output=True, text=True,
                          timeout=600, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert results.read(tmp_path / "check.jsonl").cells


@several
@pytest.mark.parametrize("timing", ["host", "events", "graph"])
def test_every_algorithm_runs_right_and_is_proven(tmp_path, cli, timing):
    """Default, forced and composed; each with a checked result and NCCL's own line."""
    profile = tmp_path / "p.toml"
    profile.write_text(
        PROFILE.format(timings=json.dumps([timing]), ranks=nccl_presence.gpus(), algorithms='"all"')
    )
    assert cli("run", str(profile), "-o", str(tmp_path / "r.jsonl")) == 0
    run = results.read(tmp_path / "r.jsonl")
    assert not run.failed
    forced = [c for c in run.cells if c["case"]["algorithm"] in ("ring", "tree")]
    assert forced
    assert {c["evidence"]["status"] for c in forced} == {"proven"}
    assert {c["checked"] for c in run.cells} <= {"device", "host"}
    assert all(c["time_s"] > 0 for c in run.cells)


@several
def test_more_channels_than_one_are_kept_where_the_plugin_has_no_rule(tmp_path, cli, monkeypatch):
    """With an empty table NCCL's log shows the same channels as without the plugin."""
    from collbench.backends.plugin import build, grammar

    def channels(path):
        assert cli("run", str(profile), "-o", str(path)) == 0
        return {p["key"]: p["params"].get("channels") for p in results.read(path).proofs}

    profile = tmp_path / "p.toml"
    profile.write_text(PROFILE.format(timings='["host"]', ranks=nccl_presence.gpus(), algorithms='"default"'))
    plain = channels(tmp_path / "a.jsonl")
    table = tmp_path / "table.txt"
    table.write_text(grammar.render(()))
    for name, value in build.activation(build.build(tmp_path / build.LIBRARY), str(table)).items():
        monkeypatch.setenv(name, value)
    assert channels(tmp_path / "b.jsonl") == plain
