"""By what nccl-tests and rccl-tests output is recognised."""

import re

_HEADER = re.compile(r"size[ \t]+count[ \t]+type[ \t]")
_DEVICE = re.compile(r"Rank +\d+ (?:Group +\d+ )?Pid +\d+ on ")
_ROW = re.compile(
    r"(?:^|\n)[ \t]*\d+[ \t]+\d+[ \t]+(?:float|double|half|bfloat16|u?int(?:8|32|64))[ \t]+"
    r"(?:(?:sum|prod|min|max|avg|none)[ \t]+)?(?:-?\d+[ \t]+)?\d+(?:\.\d+)?[ \t]+\d+\.\d+[ \t]+\d+\.\d+[ \t]+\S"
)
_DEBUG = ("NCCL INFO", "Test NCCL failure", "CXI alloc failed")
_OTHERS = ("OSU MPI", "MPI Benchmarks", "Benchmarking ", "| payload |")


def detect(head: str) -> bool:
    """Say whether the text holds an nccl-tests header, parameters, device list or row.

    NCCL's debug lines alone are enough where no other benchmark that runs over NCCL has left its title.
    """
    if ("nThread " in head and "minBytes" in head) or "Collective test starting:" in head:
        return True
    if "algbw" in head and _HEADER.search(head) is not None:
        return True
    if ("Pid" in head and _DEVICE.search(head) is not None) or _ROW.search(head) is not None:
        return True
    return any(sign in head for sign in _DEBUG) and not any(sign in head for sign in _OTHERS)


def detect_rccl(head: str) -> bool:
    """Say whether the text is rccl-tests output."""
    return ("rccl-tests: " in head or "RCCL version" in head) and detect(head)
