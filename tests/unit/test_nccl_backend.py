"""The NCCL back end on a machine without a GPU."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from collbench import profile
from collbench.backends import nccl, nccl_presence
from collbench.errors import UnansweredError
from collbench.request import RunOptions

no_gpu = pytest.mark.skipif(bool(nccl_presence.gpus()), reason="this machine has a GPU")


def test_the_dry_run_prints_the_exact_plan(golden):
    """Cases with all sizes, what is left out and why, wall time, GPU-hours: no NCCL, no GPU."""
    text = nccl.Backend().dry_run(profile.load("nccl-8gpu"), RunOptions(seed=7))
    golden("nccl_dry_run.txt", text.replace(sys.executable, "PYTHON") + "\n")


def test_the_dry_run_of_several_nodes_names_the_launcher():
    """mpirun where there is nothing else; a template's fields are filled in."""
    chosen = profile.load("nccl-multinode")
    assert "mpirun -n 128 -N 8" in nccl.Backend().dry_run(chosen, RunOptions())
    text = nccl.Backend().dry_run(chosen, RunOptions(launcher="srun -n {ranks} -N {nodes}"))
    assert "srun -n 128 -N 16 " in text


@pytest.mark.parametrize("backend", ["nccl", "nccl-tests"])
def test_the_dry_run_as_data_holds_the_same_plan(cli, tmp_path, backend):
    """Cases as a run file has them, seconds, commands as words; the text's totals agree."""
    path = tmp_path / "p.toml"
    path.write_text(
        f'backend = "{backend}"\n[[sweep]]\ncollectives = "allreduce"\nranks = 8\nsizes = "1K,1M"\n'
        'algorithms = ["ring"]\n'
    )
    found = json.loads(cli("run", path, "--dry-run", "--seed", "3", "--json").stdout)
    text = cli("run", path, "--dry-run", "--seed", "3").stdout
    (count,) = found["rank_counts"]
    assert f"{len(count['cases'])} cases" in text
    assert {(c["provider"], c["ranks"]) for c in count["cases"]} == {("nccl", 8)}
    assert f"{found['gpu_s'] / 3600:.2f} GPU-hours" in text
    assert all(" ".join(words) in text for words in found["commands"])
    assert found["commands"]
    assert found["seed"] == 3


@no_gpu
def test_a_missing_gpu_is_one_sentence_and_exit_3(cli, tmp_path):
    """It says what is missing and what works without it."""
    result = cli("run", "nccl-8gpu", "-o", tmp_path / "x.jsonl")
    assert result == 3
    assert "missing an NVIDIA GPU" in result.stderr
    assert "--dry-run" in result.stderr
    assert result.stderr.count("\n") == 1


def test_too_few_gpus_are_counted(tmp_path, monkeypatch):
    """Only whole devices count, not the control files beside them."""
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(nccl_presence, "PACKAGES", {})
    assert nccl_presence.gpus(tmp_path) == 2
    nccl_presence.require(2, tmp_path)
    with pytest.raises(UnansweredError, match="needs 8 GPUs on this node and the driver shows 2"):
        nccl_presence.require(8, tmp_path)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    """With the command that installs it; behind a launcher the GPUs are elsewhere."""
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(nccl_presence, "PACKAGES", {"no_such_module_here": "nccl4py"})
    with pytest.raises(UnansweredError, match=r"nccl4py.*pip install 'collbench\[nccl\]'"):
        nccl_presence.require(0, tmp_path)


def test_planning_and_missing_gpus_load_nothing_of_cuda():
    """The driver's side of the back end, the doctor's included, imports no CUDA package."""
    code = (
        "import sys\n"
        "from collbench import profile\n"
        "from collbench.backends import BACKENDS, gpu\n"
        "from collbench.request import RunOptions\n"
        "for n in ('nccl', 'nccl-tests'):\n"
        "    BACKENDS[n]().dry_run(profile.load('nccl-8gpu'), RunOptions())\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('nccl', 'cuda', 'pynvml', 'cupy')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_only_one_module_imports_cuda_at_its_top():
    """nccl_bind is the whole surface."""
    root = Path(nccl.__file__).parent.parent
    found = {
        p.name for p in root.rglob("*.py")
        if any(line.startswith(("import nccl", "from nccl", "import cuda", "from cuda", "import cupy", "import pynvml"))
               for line in p.read_text().splitlines())
    }  # fmt: skip
    assert found == {"nccl_bind.py"}


@pytest.mark.skipif(find_spec("nccl") is None, reason="nccl4py is not installed")
def test_the_version_and_an_identity_need_no_gpu():
    """The library loads and answers."""
    from collbench.backends import nccl_bind

    assert nccl_bind.version() >= (2, 27)
    assert len(nccl_bind.unique_id()) == 128
