"""What file names, command lines and stray log lines tell about ranks, collective, library and environment."""

import re
from collections.abc import Iterable

from collbench.errors import UsageError
from collbench.importers.model import Options

MAX_RANKS = 1 << 24
"""More ranks than any machine has: a larger number in a log is no rank count."""

LINE = 8192
"""So much of a stray line is looked at: no command line is longer, and hostile ones cost no time."""

_NAMES = {
    "all_reduce": "allreduce", "allreduce": "allreduce", "all_gather": "allgather", "allgather": "allgather",
    "reduce_scatter": "reduce_scatter", "reducescatter": "reduce_scatter", "broadcast": "bcast", "bcast": "bcast",
    "alltoallv": "alltoallv", "alltoall": "alltoall", "all_to_all": "alltoall", "sendrecv": "sendrecv",
    "gather": "gather", "scatter": "scatter", "reduce": "reduce",
}  # fmt: skip
_TEST = re.compile(r"\b([a-z_0-9]+)_perf(?:_mpi)?\b")
_NAME = re.compile(
    r"(?:^|[^a-z])(all_?reduce|all_?gather|reduce_?scatter|broadcast|bcast|alltoallv|all_?to_?all|sendrecv|gather"
    r"|scatter|reduce)(?![a-z])",
    re.IGNORECASE,
)
_LAUNCH = re.compile(
    r"\b(?:mpirun|mpiexec(?:\.hydra)?|prterun|orterun|srun|jsrun|aprun|ibrun)\b(.*)", re.DOTALL
)
_COUNT = re.compile(r"(?:^|\s)(?:-np|-n|-c|--np|--ntasks)(?:\s+|=)(\d+)\b")
_SRUN = re.compile(r"(?:^|\s)(?:-n|--ntasks)(?:\s+|=)(\d+)\b")
_PER_NODE = re.compile(
    r"(?:^|\s)(?:-ppn|--ppn|-npernode|--npernode|-N|--ntasks-per-node|--map-by\s+ppr:)(?:\s+|=)?(\d+)\b"
)
_FILE_RANKS = (
    re.compile(r"(?<![a-z0-9])0*(\d+)_?(?:r|ranks?|procs?|gpus?|np)(?![a-z0-9])", re.IGNORECASE),
    re.compile(r"(?<![a-z0-9])np?_?0*(\d+)(?:ranks?|procs?)(?![a-z0-9])", re.IGNORECASE),
    re.compile(r"(?<![a-z0-9])np[_-]?0*(\d+)(?![a-z0-9])", re.IGNORECASE),
)
_FILE_GRID = (
    re.compile(r"(?<![a-z0-9])n(\d+)[_.-]?(?:g|ppn)(\d+)(?![a-z0-9])", re.IGNORECASE),
    re.compile(r"(?<![a-z0-9])(\d+)n[_.-]?(\d+)(?:g|ppn)(?![a-z0-9])", re.IGNORECASE),
    re.compile(r"(?<![a-z0-9])(\d+)nodes?[_.x-]?(\d+)(?:gpus?|ppn|tasks?)", re.IGNORECASE),
)

PROVIDERS = {
    "openmpi": "openmpi", "ompi": "openmpi", "open mpi": "openmpi", "open-mpi": "openmpi", "mpich": "mpich",
    "intelmpi": "intelmpi", "impi": "intelmpi", "intel mpi": "intelmpi", "intel-mpi": "intelmpi", "nccl": "nccl",
    "rccl": "rccl", "mvapich": "mvapich", "mvapich2": "mvapich", "cray-mpich": "cray-mpich",
    "cray_mpich": "cray-mpich",
}  # fmt: skip
"""What people call a library → provider."""

_LIBRARY = (
    ("intelmpi", re.compile(r"Intel\(R\) MPI Library(?: for Linux)?(?:\*? OS)?,? (?:Version )?(\d[\w.]*)?")),
    ("intelmpi", re.compile(r"\b(?:intel-oneapi-mpi|intel-mpi|impi)[-/](\d+\.\d[\d.]*)|\bI_MPI_[A-Z]+=")),
    ("openmpi", re.compile(r"\(Open MPI\) v?(\d[\w.]*)|\bOpen MPI(?: v| )?(\d+\.\d[\w.]*)?")),
    (
        "openmpi",
        re.compile(
            r"\bopenmpi[-/](\d+\.\d+(?:\.\d+)?)|\bOMPI_MCA_|--mca\s|\bmpirun\b.*\s(?:-npernode|--map-by|-x\s+\w+)|\bprterun\b|\borterun\b"
        ),
    ),
    ("cray-mpich", re.compile(r"\bCRAY_MPICH[ /](\d[\d.]*)|\bcray-mpich[-/](\d[\d.]*)|MPICH_OFI_\w+=")),
    ("mvapich", re.compile(r"\bmvapich2?[-/](\d[\d.]*)", re.IGNORECASE)),
    ("mpich", re.compile(r"\bmpich[-/](\d+\.\d[\d.]*)|MPICH Version:\s*(\d[\w.]*)")),
)
_FILE_LIBRARY = (
    ("intelmpi", re.compile(r"(?<![a-z])(?:impi|intelmpi|intel-mpi)\d*(?![a-z])", re.IGNORECASE)),
    ("openmpi", re.compile(r"(?<![a-z])(?:openmpi|ompi|open-mpi)\d*(?![a-z])", re.IGNORECASE)),
    ("mvapich", re.compile(r"(?<![a-z])mvapich2?(?![a-z])", re.IGNORECASE)),
    ("mpich", re.compile(r"(?<![a-z])mpich\d*(?![a-z])", re.IGNORECASE)),
)
_VARIABLE = re.compile(
    r"(?:^|[\s'\"+])((?:NCCL|RCCL|UCX|FI|OMPI_MCA|MPICH|I_MPI|PSM3?|UCC|HCOLL)_[A-Z0-9_a-z]+)=(\"[^\"]*\"|'[^']*'|[^\s'\",]*)"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH", re.IGNORECASE)


def test_name(text: str) -> str | None:
    """Return the collective of an nccl-tests program named in ``text`` (``all_reduce_perf``); None if there is none."""
    for match in _TEST.finditer(text[:LINE]):
        if match[1] in _NAMES:
            return _NAMES[match[1]]
    return None


def name_in(text: str) -> str | None:
    """Return the collective that a file name or NCCL's function name tells; None if none or several."""
    found = {_NAMES[m.lower()] for m in _NAME.findall(text)}
    return found.pop() if len(found) == 1 else None


def command_ranks(line: str) -> int | None:
    """Return the number of processes that a launcher's command line asks for; None if it does not say."""
    match = _LAUNCH.search(line[:LINE])
    if match is None:
        return None
    pattern = _SRUN if "srun" in match[0][:5] else _COUNT
    count = pattern.search(match[1])
    return _plausible(int(count[1])) if count else None


def command_per_node(line: str) -> int | None:
    """Return the processes per node that a launcher's command line asks for; None if it does not say."""
    match = _LAUNCH.search(line[:LINE])
    if match is None or "srun" in match[0][:5]:
        return None
    count = _PER_NODE.search(match[1])
    return _plausible(int(count[1])) if count else None


def file_ranks(name: str) -> int | None:
    """Return the number of ranks that a file's name tells (``_64r_``, ``np8``, ``n2_g8``); None if it does not."""
    stem = name.rsplit("/", 1)[-1]
    for pattern in _FILE_RANKS:
        if match := pattern.search(stem):
            return _plausible(int(match[1][:9]))
    for pattern in _FILE_GRID:
        if match := pattern.search(stem):
            return _plausible(int(match[1][:9]) * int(match[2][:9]))
    return None


def _plausible(ranks: int) -> int | None:
    return ranks if 0 < ranks <= MAX_RANKS else None


def library_in(line: str) -> tuple[str, str | None] | None:
    """Return (provider, version or None) if the line betrays an MPI library."""
    for provider, pattern in _LIBRARY:
        if match := pattern.search(line[:LINE]):
            return provider, next((g for g in match.groups() if g), None)
    return None


def library_of_file(name: str) -> str | None:
    """Return the provider that a file's name tells (``…-ompi4-…``)."""
    stem = name.rsplit("/", 1)[-1]
    return next((provider for provider, pattern in _FILE_LIBRARY if pattern.search(stem)), None)


def provider_named(text: str) -> str:
    """Return the provider for a library's name; an unknown library keeps its exact name."""
    return PROVIDERS.get(text.strip().lower(), text.strip().lower())


def variables(line: str) -> list[tuple[str, str]]:
    """Return settings of communication libraries on the line (shell trace, ``-x NAME=VALUE``); secrets left out."""
    return [
        (name, value.strip("'\""))
        for name, value in _VARIABLE.findall(line[:LINE])
        if not _SECRET.search(name)
    ]


def keep_environment(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the variables that may be recorded: those of communication libraries, without secrets."""
    return {
        name: value[:200]
        for name, value in pairs
        if re.match(r"(?:NCCL|RCCL|UCX|FI|OMPI_MCA|MPICH|I_MPI|PSM3?|UCC|HCOLL)_", name)
        and not _SECRET.search(name)
    }


def per_node(ranks: int, options: Options) -> tuple[int | None, int | None]:
    """Return (nodes, ranks per node) from ``--ranks-per-node``; (None, None) without it."""
    each = options.ranks_per_node
    if each is None:
        return None, None
    return -(-ranks // each), min(each, ranks)


def need(name: str, file: str, what: str, option: str) -> UsageError:
    """Return the error for something indispensable that a log does not say."""
    return UsageError(f"{file}: {what} does not say {name}: add {option}")


def gpu_provider(options: Options, told: str) -> str:
    """Return ``nccl`` or ``rccl``: as ``--library`` says, which otherwise names the MPI library of other files."""
    named = provider_named(options.library) if options.library else told
    return named if named in ("nccl", "rccl") else told
