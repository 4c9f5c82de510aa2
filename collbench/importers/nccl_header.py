"""What stands above an nccl-tests table: device lines, the parameter line, the command line."""

import itertools
import re

from collbench.importers import hints
from collbench.importers.nccl_resolve import RawTable

_REDUCTIONS = {"0": "rank0", "1": "avg", "2": "min", "3": "max"}
_AVERAGE = re.compile(r"_perf\b.*?\s(?:-a|--average)[ =]?([0-3])\b")
_GPUS = re.compile(r"_perf\b.*?\s(?:-g|--ngpus)[ =]?(\d{1,4})\b")


def device(raw: RawTable, words: list[str]) -> None:
    """Take ``Rank 0 Group 0 Pid 1 on HOST device 0 [PCI] NAME`` (first generation: without the group)."""
    try:
        at = words.index("on", 3)
        grouped = words[2] == "Group"
        raw.devices.append((words[1], words[at + 1], words[3] if grouped else "0"))
    except (ValueError, IndexError):
        return
    if raw.gpu is None:
        bracket = next((i for i, w in enumerate(words) if w.endswith("]")), len(words))
        raw.gpu = " ".join(words[bracket + 1 :]) or None


def parameters(raw: RawTable, words: list[str]) -> None:
    """Take ``nThread 1 nGpus 8 … iters: 20 agg iters: 1``."""
    values = dict(itertools.pairwise(words))
    iters = [
        int(words[i + 1][:9])
        for i, w in enumerate(words[:-1])
        if w == "iters:" and words[i - 1] not in ("warmup", "agg") and words[i + 1].isdecimal()
    ]
    threads, gpus = values.get("nThread", "1"), values.get("nGpus", "1")
    raw.iterations = iters[0] if iters else None
    if threads.isdecimal() and gpus.isdecimal():
        raw.per_process = max(1, int(threads[:4]) * int(gpus[:4]))


def command(raw: RawTable, line: str) -> None:
    """Take a command line that starts a test."""
    line = line[: hints.LINE]
    raw.name = hints.test_name(line) or raw.name
    raw.processes = hints.command_ranks(line) or raw.processes
    raw.per_node = hints.command_per_node(line) or raw.per_node
    if match := _GPUS.search(line):
        raw.per_process = max(1, int(match[1]))
    if match := _AVERAGE.search(line):
        raw.reduction = _REDUCTIONS[match[1]]
