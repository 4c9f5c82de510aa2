"""ml-engineering's all_reduce_bench.py: a Markdown table of payload, busbw and algbw with units in the cells."""

import math
import re

from collbench.importers import Importer, hints
from collbench.importers.model import MAX_TIME_S, Imported, Options, Row, Table
from collbench.importers.source import Source

_SIGN = re.compile(r"^\s*\|\s*payload\s*\|\s*busbw\s*\|\s*algbw\s*\|")
_ROW = re.compile(r"^\s*\|(?P<size>[^|]*)\|(?P<busbw>[^|]*)\|(?P<algbw>[^|]*)\|\s*$")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?i?B)$")
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(B|b)ps$")
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
          "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip
_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_RANKS = re.compile(r"\bover (\d{1,8}) ranks")
_TRIALS = re.compile(r"/ (\d{1,7}) trials")


def detect(head: str) -> bool:
    """Say whether a line is the table's header."""
    return "payload" in head and any(_SIGN.match(line) for line in head.splitlines() if "payload" in line)


def read(source: Source, options: Options) -> Imported:
    """Return one table for each Markdown table in the file.

    Raises:
        UsageError: a row that cannot be read (unless skipped), or the number of ranks is told nowhere.
    """
    imported = Imported(source.name, "all-reduce-bench")
    ranks: int | None = None
    trials: int | None = None
    rows: list[tuple[int, float, float, float]] = []
    start = 0
    for number, line in enumerate(source.lines(), start=1):
        if _SIGN.match(line):
            _finish(imported, rows, ranks, trials, options, start)
            rows, start = [], number
        elif start and (match := _ROW.match(line)):
            if match["size"].strip(" -:"):
                _add(imported, rows, number, line, match, skip=options.skip_bad_rows)
        elif match := _RANKS.search(line):
            _finish(imported, rows, ranks, trials, options, start)
            rows, start, ranks = [], 0, int(match[1])
            found = _TRIALS.search(line)
            trials = int(found[1]) if found else None
    _finish(imported, rows, ranks, trials, options, start)
    return imported


def _add(
    imported: Imported, rows: list[tuple[int, float, float, float]], number: int, line: str,
    match: re.Match[str], *, skip: bool,
) -> None:  # fmt: skip
    size = _SIZE.match(match["size"].strip())
    busbw, algbw = (_RATE.match(match[name].strip()) for name in ("busbw", "algbw"))
    if size is None or busbw is None or algbw is None or size[2] not in _BYTES or len(size[1]) > 12:
        imported.reject(number, line, "a cell has no number with a unit", skip=skip)
        return
    rates = [float(c[1]) * _PREFIX[c[2]] * (1.0 if c[3] == "B" else 0.125) for c in (busbw, algbw)]
    size_bytes = float(size[1]) * _BYTES[size[2]]
    if not (all(0 < r < math.inf for r in rates) and 0 < size_bytes / rates[1] < MAX_TIME_S):
        imported.reject(number, line, "a bandwidth is not positive", skip=skip)
        return
    unit = _PREFIX[algbw[2]] * (1.0 if algbw[3] == "B" else 0.125)
    lost = 0.5 * unit * 10.0 ** -len(algbw[1].partition(".")[2])
    rows.append((int(size_bytes), rates[0], rates[1], lost))


def _finish(
    imported: Imported, rows: list[tuple[int, float, float, float]], ranks: int | None, trials: int | None,
    options: Options, line: int,
) -> None:  # fmt: skip
    if not rows:
        return
    known = ranks or ranks_of(rows) or options.ranks or hints.file_ranks(imported.file)
    if known is None:
        raise hints.need("how many ranks took part", imported.file, "the table", "--ranks N")
    if known == 1:
        imported.remarks.append(f"line {line}: refused, one rank measures no communication")
        return
    nodes, each = hints.per_node(known, options)
    provider = hints.gpu_provider(options, "nccl")
    imported.tables.append(
        Table(
            tool="all_reduce_bench", provider=provider, ranks=known, nodes=nodes, ranks_per_node=each,
            rows=[
                Row("allreduce", size, size / algbw, dtype="float32", op="sum", in_place=True, iterations=trials)
                for size, _, algbw, _ in rows
            ],
            rank_reduction="max", sync="unknown", timer="all_reduce_bench", file=imported.file, line=line,
            memory="rocm" if provider == "rccl" else "cuda", library={"name": provider, "version": None, "string": provider},
        )
    )  # fmt: skip


def ranks_of(rows: list[tuple[int, float, float, float]]) -> int | None:
    """Return the one rank count that busbw/algbw = 2(n−1)/n and rounding allow over all rows; None if several do."""
    low, high = 0.0, math.inf
    for _, busbw, algbw, lost in rows:
        low = max(low, (busbw - lost) / (algbw + lost))
        high = min(high, (busbw + lost) / max(algbw - lost, 1e-9))
    if not low <= high < 2:
        return None
    first, last = math.ceil(2 / (2 - low) - 1e-9), math.floor(2 / (2 - high) + 1e-9)
    return first if first == last and first > 1 else None


FORMAT = Importer("all-reduce-bench", "ml-engineering's all_reduce_bench.py", detect, read)
