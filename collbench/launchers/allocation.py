"""What a batch system has given this process: hosts and slots, read from its variables and files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from collbench.errors import UnansweredError


@dataclass(frozen=True, slots=True)
class Allocation:
    """Nodes and slots at our disposal.

    Attributes:
        hosts: node names in the batch system's order; empty = this machine only, no batch system.
        slots: processes that fit, over all nodes.
        per_host: slots of each host, in the order of ``hosts``.
        system: slurm, pbs, lsf, sge; None = no batch system.
    """

    hosts: tuple[str, ...]
    slots: int
    per_host: tuple[int, ...] = ()
    system: str | None = None


def allocation(environ: Mapping[str, str], cores: int) -> Allocation:
    """Return what the batch system gives, else this machine with ``cores`` slots.

    Args:
        environ: the environment to read.
        cores: slots of this machine, and of a node whose slots the batch system does not tell.

    Raises:
        UnansweredError: the batch system's own description cannot be read.
    """
    if environ.get("SLURM_JOB_NODELIST"):
        return _slurm(environ, cores)
    if environ.get("PBS_NODEFILE"):
        return _from_lines("pbs", _lines(environ["PBS_NODEFILE"]))
    if environ.get("LSB_MCPU_HOSTS"):
        words = environ["LSB_MCPU_HOSTS"].split()
        pairs = dict(zip(words[::2], (_number(w) for w in words[1::2]), strict=False))
        return _from_counts("lsf", pairs)
    if environ.get("PE_HOSTFILE"):
        rows = [line.split() for line in _lines(environ["PE_HOSTFILE"])]
        return _from_counts("sge", {row[0]: _number(row[1]) for row in rows if len(row) > 1})
    return Allocation((), cores, (cores,))


def _slurm(environ: Mapping[str, str], cores: int) -> Allocation:
    hosts = expand_hosts(environ["SLURM_JOB_NODELIST"])
    text = environ.get("SLURM_TASKS_PER_NODE") or environ.get("SLURM_JOB_CPUS_PER_NODE") or ""
    counts = _repeated(text) or [cores]
    counts += [counts[-1]] * (len(hosts) - len(counts))
    return Allocation(tuple(hosts), sum(counts[: len(hosts)]), tuple(counts[: len(hosts)]), "slurm")


def _repeated(text: str) -> list[int]:
    """Return [8, 8, 4] for Slurm's ``8(x2),4``."""
    counts: list[int] = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(number)] * int(times or 1)
    return counts


def expand_hosts(text: str) -> list[str]:
    """Return the host names of Slurm's compressed form: ``n[01-03,07],gpu3`` → n01 n02 n03 n07 gpu3.

    Raises:
        UnansweredError: not such a list.
    """
    hosts: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        pieces = re.split(r"\[([^\]]*)\]", part)
        choices = [_ranges(p) if i % 2 else [p] for i, p in enumerate(pieces)]
        hosts += ["".join(combination) for combination in product(*choices)]
    if not hosts or text.count("[") != text.count("]") or not all(hosts):
        raise UnansweredError(f"SLURM_JOB_NODELIST={text!r} is not a list of hosts")
    return hosts


def _ranges(text: str) -> list[str]:
    values: list[str] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if not (first.isdigit() and last.isdigit()):
            raise UnansweredError(f"{part!r} is not a range of host numbers in SLURM_JOB_NODELIST")
        values += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return values


def _lines(name: str) -> list[str]:
    try:
        text = Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise UnansweredError(f"cannot read the batch system's host file {name}: {error.strerror}") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _number(text: str) -> int:
    if not text.isdigit():
        raise UnansweredError(f"{text!r} in the batch system's host list is not a number of slots")
    return int(text)


def _from_lines(system: str, lines: list[str]) -> Allocation:
    counts: dict[str, int] = {}
    for host in lines:
        counts[host] = counts.get(host, 0) + 1
    return _from_counts(system, counts)


def _from_counts(system: str, counts: Mapping[str, int]) -> Allocation:
    return Allocation(tuple(counts), sum(counts.values()), tuple(counts.values()), system)
