"""Finding mpiexec programs and telling whose they are."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collbench.mpi.library import Version, parse_version

QUERY_TIMEOUT_S = 60
"""A start on a cold shared file system can take long; a library that hangs while loading must end too."""

NAMES = ("mpiexec", "mpiexec.hydra", "mpiexec.openmpi", "mpiexec.mpich", "mpirun")
FLAVOURS = {
    "openmpi": "openmpi", "spectrum_mpi": "openmpi", "bull_openmpi": "openmpi", "mpich": "hydra", "mvapich": "hydra",
    "intelmpi": "intel",
}  # fmt: skip
"""Library → flavour of its mpiexec; libraries that are not here come with launchers of many kinds."""
_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclass(frozen=True)
class Starter:
    """An mpiexec and what its ``--version`` says.

    Attributes:
        path: the program.
        flavour: openmpi, hydra, intel or other.
        version: of the launcher; None = it states none.
    """

    path: Path
    flavour: str
    version: Version | None

    def fits(self, library: str, version: Version | None) -> bool:
        """Say whether it starts ranks of this library: same family, and for Open MPI the same major version.

        mpiexec of Open MPI 4 starts ranks of Open MPI 5 as singletons, and the other way round.
        """
        expected = FLAVOURS.get(library)
        if expected is None or self.flavour == "other":
            return True
        if self.flavour != expected:
            return False
        if self.flavour != "openmpi" or self.version is None or version is None:
            return True
        return self.version[0] == version[0]


def candidates(prefix: Path, libmpi: str | None) -> Iterator[Path]:
    """Yield launchers: of a Python environment, then beside the library, then on PATH and in the usual places.

    Args:
        prefix: of the Python environment.
        libmpi: file of the library; None = unknown.
    """
    folders = [prefix / "bin"]
    if libmpi:
        folders += [parent / "bin" for parent in list(Path(libmpi).parents)[1:-1]]
    folders += [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p]
    folders += [Path("/usr/local/bin"), Path("/usr/bin")]
    for folder in dict.fromkeys(folders):
        for name in NAMES:
            if os.access(folder / name, os.X_OK) and (folder / name).is_file():
                yield folder / name


def identify(mpiexec: Path) -> Starter:
    """Return the flavour and version of a launcher, from what ``mpiexec --version`` prints."""
    try:
        done = subprocess.run(
            [str(mpiexec), "--version"], capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, **_ROOT},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return Starter(mpiexec, "other", None)
    return Starter(mpiexec, *parse(done.stdout + done.stderr))


def parse(text: str) -> tuple[str, Version | None]:
    """Return (flavour, version) of a launcher's ``--version`` text."""
    for flavour, mark, number in (
        ("intel", r"Intel\(R\) MPI Library", r"Version ([\d.]+)"),
        (
            "openmpi",
            r"\(Open MPI\)|\(OpenRTE\)|Open MPI",
            r"(?:\(Open MPI\)|\(OpenRTE\)|Open MPI v?)\s*([\d.]+)",
        ),
        ("hydra", r"HYDRA", r"Version:\s*([\d.]+)"),
    ):
        if re.search(mark, text):
            match = re.search(number, text)
            return flavour, parse_version(match[1] if match else None)
    return "other", None
