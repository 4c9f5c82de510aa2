"""Time and memory of a decision on 100,000 rows, against parsing the same file's JSON.

Usage: python tests/bench/recommend_speed.py [ROWS]. Exit status 1 when a decision takes more than 3 times the parsing
or more than 500 MiB. Best of three for both, in one process; the peak is that of the first decision.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from collbench import results, selection
from collbench.records import Case, Cell, Measurement

LIMIT, MEMORY_MIB = 3.0, 500


def write(path: Path, rows: int) -> None:
    """Write a run file of made cells: collectives × ranks × sizes × algorithms × launches with eight blocks each."""
    random = np.random.default_rng(1)
    with path.open("w") as file:
        file.write(
            json.dumps({"kind": "run", "schema": 1, "tool": "collbench", "profile": "made", "seed": 1}) + "\n"
        )
        count = launch = 0
        while count < rows:
            ranks = 2 ** (1 + launch % 8)
            library = {"name": "openmpi", "version": "5.0.11"}
            line = {"kind": "launch", "launch": launch, "ranks": ranks, "nodes": 1, "ranks_per_node": ranks}
            file.write(json.dumps({**line, "library": library, "thread_level": "single"}) + "\n")
            for name in ("allreduce", "bcast", "allgather", "reduce_scatter", "alltoall"):
                for power in range(3, 26):
                    for number in range(8):
                        algorithm = f"a{number}" if number else "default"
                        blocks = 1e-5 * np.exp(random.normal(0.1 * number, 0.05, 8))
                        case = Case(Cell(name, ranks, ranks, 1 << power), "openmpi", algorithm)
                        cell = Measurement(
                            case, launch, float(np.median(blocks)), tuple(blocks.tolist()), iterations=99
                        )
                        file.write(json.dumps(cell.to_json()) + "\n")
                        count += 1
            launch += 1


def main() -> int:
    """Measure and print; return the exit status."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.jsonl"
        write(path, rows)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        parse = decide = float("inf")
        selection.from_runs([results.read(path)])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        for _ in range(3):
            start = time.perf_counter()
            for line in path.read_bytes().splitlines():
                json.loads(line)
            parse = min(parse, time.perf_counter() - start)
            start = time.perf_counter()
            decided = selection.from_runs([results.read(path)])
            decide = min(decide, time.perf_counter() - start)
    print(f"{rows} rows: parsing {parse:.2f} s, deciding {decide:.2f} s = {decide / parse:.2f} times (limit {LIMIT}); "
          f"peak {peak:.0f} MiB (before {before:.0f}, limit {MEMORY_MIB}); {len(decided.rules)} rules")  # fmt: skip
    return int(decide > LIMIT * parse or peak > MEMORY_MIB)


if __name__ == "__main__":
    raise SystemExit(main())
