"""How long reading logs takes, as a multiple of ``str.splitlines`` and ``str.split`` of the same text.

Run it:  python tests/bench/import_speed.py [LOGS]
Prints one line for each kind of file: median ratio of interleaved repetitions. The aim is at most 5.
"""

import io
import statistics
import sys
import time

from collbench import importers
from collbench.importers.model import Options
from collbench.importers.source import Source

HEADER = """\
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""


def row(size: int, ranks: int) -> str:
    """Return one all-reduce row with invented times."""
    text = ""
    for base in (20.5, 21.25):
        us = f"{base + size / 9e4:.2f}"
        algbw = size / float(us) / 1e3
        text += f"  {us:>7}  {algbw:6.2f}  {algbw * 2 * (ranks - 1) / ranks:6.2f}       0"
    return f"{size:12d}  {size // 4:12d}     float     sum      -1{text}\n"


def log(ranks: int, per_node: int, *, prefix: str = "", noise: int = 0) -> str:
    """Return an nccl-tests log with one line for each rank, and ``noise`` lines of shell trace and binding before it."""
    lines = [f"+ export NCCL_SETTING_{i}=value-of-{i}\n" for i in range(min(noise, 40))]
    lines += [
        f"cpu-bind=MASK - node{i // 4}, task {i:2d} {i % 4:2d} [{280000 + i}]: mask 0x{'f' * 18}{'0' * (18 * (i % 4))} set\n"
        for i in range(noise)
    ]
    lines.append(
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 4294967296 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1\n"
    )
    lines += ["#\n", "# Using devices\n"]
    lines += [
        f"#  Rank {r:2d} Group  0 Pid {40000 + r:6d} on {'node' + str(r // per_node):>10} device {r % per_node:2d} "
        "[0x1b] NVIDIA A100-SXM4-40GB\n"
        for r in range(ranks)
    ]
    lines += HEADER.splitlines(keepends=True)
    lines += [row(8 << i, ranks) for i in range(30)]
    lines += ["# Out of bounds values : 0 OK\n", "# Avg bus bandwidth    : 42.0\n", "#\n"]
    return "".join(prefix + line for line in lines)


def baseline(texts: list[bytes]) -> float:
    """Return seconds that decoding, splitlines and split of all texts take."""
    start = time.perf_counter()
    for text in texts:
        for line in text.decode().splitlines():
            line.split()
    return time.perf_counter() - start


def importing(texts: list[bytes]) -> float:
    """Return seconds that importing all texts takes, detection included, to rows in memory."""
    options = Options(collective="allreduce")
    start = time.perf_counter()
    for text in texts:
        importers.read(Source(io.BytesIO(text), "log.txt"), options)
    return time.perf_counter() - start


def ratio(texts: list[bytes], repetitions: int) -> tuple[float, float]:
    """Return (median ratio, median seconds of an import of all texts), measured in turns."""
    pairs = [(baseline(texts), importing(texts)) for _ in range(repetitions)]
    return statistics.median(b / a for a, b in pairs), statistics.median(b for _, b in pairs)


def main(count: int) -> None:
    """Measure and print."""
    small = [log(448 + i % 8, 4).encode() for i in range(count)]
    large = [log(2048, 4, prefix="   0: ", noise=2048).encode()]
    for name, texts, repetitions in (
        (f"{count} logs of {len(small[0]) // 1000} kB", small, 3),
        (f"one log of {len(large[0]) // 1000} kB with 2048 rank lines", large, 15),
    ):
        found, seconds = ratio(texts, repetitions)
        print(f"{name}: {found:.2f} times splitlines and split ({seconds * 1e3:.0f} ms)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
