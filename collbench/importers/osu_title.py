"""Titles of OSU tests: which operation, how timed, where the buffers are."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TITLE = re.compile(
    r"^\W*OSU (MPI|OpenSHMEM|UPC\+\+|UPC|NCCL|XCCL)(?:-(\w+))?(_\w+)? +(.*?) ?Test(?: v(\d[\w.]*))?\s*$"
)
_NAMES = {
    "allreduce": "allreduce", "allgather": "allgather", "allgatherv": "allgatherv", "alltoall": "alltoall",
    "all-to-all personalized exchange": "alltoall", "alltoallv": "alltoallv",
    "all-to-allv personalized exchange": "alltoallv", "all-to-all personalized exchange v": "alltoallv",
    "broadcast": "bcast", "bcast": "bcast", "reduce": "reduce", "reduce_scatter": "reduce_scatter_v",
    "reduce_scatter_block": "reduce_scatter", "gather": "gather", "scatter": "scatter", "barrier": "barrier",
}  # fmt: skip
_POINT = {
    "": "latency", "multi": "multi_lat", "multi-threaded": "latency_mt", "multi-process": "latency_mp",
}  # fmt: skip
_MEMORY = {"CUDA": "cuda", "ROCM": "rocm", "SYCL": "sycl", "": "host"}


@dataclass(slots=True)
class Test:
    """One output under one title.

    Attributes:
        line: line of the title.
        title: its text.
        timer: the tool, with the kind of test where several kinds time one operation.
        collective: None where the test is out of scope.
        kind: latency, rate, barrier or nonblocking.
        version: of the benchmarks.
        nccl: the test runs over NCCL, not MPI.
        memory: where the buffers are.
        dtype: element type, where a line says so.
        pairs: pairs of ranks at once.
        directions: 2 where the printed rate counts both.
        window: messages in flight.
        columns: header names.
        rows: (line, size, column → number, "Fail" or nothing).
    """

    line: int
    title: str
    timer: str = "osu"
    collective: str | None = None
    kind: str = "latency"
    version: str | None = None
    nccl: bool = False
    memory: str = "host"
    dtype: str | None = None
    pairs: int = 1
    directions: int = 1
    window: int | None = None
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, int, Mapping[str, float], str]] = field(default_factory=list)


def title(line: str, number: int) -> Test | None:
    """Return the test that a title line starts; None for another line. ``collective`` is None where out of scope."""
    match = _TITLE.match(line.strip())
    if match is None:
        return None
    model, device, one_sided, words, version = (
        match[1],
        (match[2] or "").upper(),
        match[3],
        match[4],
        match[5],
    )
    name = re.sub(r"\s*(?:latency|\(us\))\s*$", "", words.strip(), flags=re.IGNORECASE).lower()
    gpu_library = model in ("NCCL", "XCCL")
    memory = _MEMORY.get(device, device.lower())
    test = Test(
        number, line.strip(" #"), version=version, memory="cuda" if gpu_library and not device else memory
    )
    test.nccl = gpu_library
    if one_sided or model not in ("MPI", "NCCL", "XCCL"):
        return test
    if name.startswith("non-blocking "):
        test.kind, name = "nonblocking", name.removeprefix("non-blocking ")
        test.timer = "osu-nonblocking"
    test.collective = _NAMES.get(name)
    if test.collective == "barrier" and test.kind == "latency":
        test.kind = "barrier"
    if test.collective is None and test.kind == "latency":
        _point_to_point(test, name, words)
    return test


def _point_to_point(test: Test, name: str, words: str) -> None:
    lower = words.strip().lower()
    if lower.endswith("latency") and name in _POINT:
        test.collective, test.timer = "sendrecv", f"osu-{_POINT[name]}"
    elif "bandwidth" in lower:
        test.kind, test.collective = "rate", "sendrecv"
        test.directions = 2 if "bi-directional" in lower or "bidirectional" in lower else 1
        test.timer = (
            "osu-mbw_mr" if "message rate" in lower else ("osu-bibw" if test.directions == 2 else "osu-bw")
        )
