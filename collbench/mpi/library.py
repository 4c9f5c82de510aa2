"""Which MPI library is loaded: its exact name, version and file. Parsing needs no MPI."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Version = tuple[int, ...]

# Order matters: derived libraries mention their parent too, so they come first and keep their own name.
_DERIVED = (
    ("cray_mpich", r"CRAY\s*MPICH\s*version\s*[:=]?\s*([\d.]+)"),
    ("mvapich", r"MVAPICH\d*\s*Version\s*[:=]?\s*([\d.]+)"),
    ("mvapich", r"MVAPICH[-\w]*\s*[:=]?\s*v?([\d.]+)"),
    ("parastation_mpi", r"ParaStation\s*MPI\s*(?:version)?\s*[:=]?\s*v?([\d.]+)?"),
    ("fujitsu", r"Fujitsu\s*MPI\s*(?:Library)?\s*v?([\d.]+)?"),
    ("spectrum_mpi", r"(?:IBM\s*)?Spectrum\s*MPI[^\d]*([\d.]+)?"),
    ("hpe_mpt", r"(?:HPE|SGI)\s*(?:HMPT|MPT)\s*([\d.]+)?"),
    ("bull_openmpi", r"bullx?\s*(?:Open\s*)?MPI\s*v?([\d.]+)?"),
    ("sunway_mpi", r"Sunway\s*MPI[^\d]*([\d.]+)?"),
    ("microsoft_mpi", r"Microsoft\s*MPI\s*([\d.]+)?"),
    ("intelmpi", r"Intel\(R\)\s*MPI\s*Library\s*(?:for\s*\S+\s*)?([\d.]+)?"),
    ("mpc", r"^\s*MPC[^\n]*?([\d.]+)?"),
    ("mpitrampoline", r"MPItrampoline\s*([\d.]+)?"),
    ("mukautuva", r"Mukautuva[^\d]*([\d.]+)?"),
)
_PLAIN = (
    ("openmpi", r"^\s*Open MPI v?([\d.]+)"),
    ("mpich", r"^\s*MPICH Version\s*:\s*([\d.]+)"),
)
_KNOWN = ("openmpi", "mpich", "intelmpi")


@dataclass(frozen=True, slots=True)
class Library:
    """A loaded MPI library.

    Attributes:
        name: openmpi, mpich, intelmpi, or the exact name of a derived or unknown library.
        version: numbers of its version, (5, 0, 11); None when it states none.
        string: first line of what MPI_Get_library_version returns.
        path: file of the loaded libmpi; None when not found in the process's memory map.
    """

    name: str
    version: Version | None
    string: str
    path: str | None = None

    @property
    def known(self) -> bool:
        """Say whether collbench has an algorithm table for it."""
        return self.name in _KNOWN


def parse_version_string(text: str) -> tuple[str, Version | None]:
    """Return (name, version) of what MPI_Get_library_version says.

    A library derived from another keeps its own name; one that nobody knows is named by its first word.
    MPICH is only what calls itself MPICH and nothing else: sharing its binary interface is not enough.
    """
    for name, pattern in (*_DERIVED, *_PLAIN):
        match = re.search(pattern, text, flags=re.IGNORECASE | re.MULTILINE)
        if match:
            return name, parse_version(match.group(1))
    words = re.sub(r"[^a-z0-9]+", "_", text.strip().splitlines()[0].lower() if text.strip() else "")
    first = words.strip("_").split("_")[0]
    numbers = re.search(r"\d+(?:\.\d+)+", text)
    return (f"unknown_{first}" if first in _KNOWN or not first else first), parse_version(
        numbers.group() if numbers else None
    )


def parse_version(text: str | None) -> Version | None:
    """Return (5, 0, 11) for ``5.0.11``; None for nothing."""
    numbers = re.findall(r"\d+", text or "")
    return tuple(int(n) for n in numbers) or None


def identify(MPI: Any) -> Library:
    """Return the library behind an imported ``mpi4py.MPI``."""
    string = MPI.Get_library_version().rstrip("\0").strip()
    name, version = parse_version_string(string)
    return Library(name, version, string.splitlines()[0].strip() if string else "", loaded_path())


def loaded_path(maps: Path = Path("/proc/self/maps")) -> str | None:
    """Return the file of the libmpi that this process has mapped; None when there is none to see."""
    try:
        text = maps.read_text()
    except OSError:
        return None
    for line in text.splitlines():
        path = line.split(maxsplit=5)[-1]
        if re.fullmatch(r"libmpi(_abi|_cray|_gnu\w*|ch)?(-[\w.]+)?\.so[\d.]*", Path(path).name):
            return path
    return None
