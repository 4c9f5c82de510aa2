"""nccl-tests and rccl-tests: the text tables of every generation."""

import re
from dataclasses import replace

from collbench.importers import Importer, hints
from collbench.importers import nccl_header as header
from collbench.importers import nccl_rows as rows
from collbench.importers.model import Imported, Options, printable
from collbench.importers.nccl_log import LOG, NcclLog
from collbench.importers.nccl_resolve import RawTable
from collbench.importers.nccl_sign import detect, detect_rccl
from collbench.importers.nccl_split import LONGEST, Piece, Split, stitch
from collbench.importers.nccl_table import Context, finish
from collbench.importers.source import Source

_WORDS = frozenset(
    ("Rank", "nThread", "size", "Using", "Out", "Avg", "Collective", "nccl-tests", "rccl-tests:", "Blocking")
)
_TROUBLE = ("fail", "error:", "fault", "ABORT", "noticed")
_HEADING = re.compile(r"\b(NCCL_ALGO|NCCL_PROTO|ALGO|PROTO|GPUS|NGPUS|RANKS)=(\S+)")
_TASKS = re.compile(r"\b(?:SLURM_NTASKS|SLURM_NPROCS)=(\d{1,8})\b")
_FAILURE = re.compile(
    "Test failure|Test NCCL failure|Test CUDA failure|start failed on|srun: error:|Segmentation fault|MPI_ABORT"
    "|(?:prterun|mpirun) noticed"
)


def read(source: Source, options: Options) -> Imported:
    """Return the tables of an nccl-tests log.

    Raises:
        UsageError: a row that cannot be read (unless skipped), or an indispensable fact that nothing tells.
    """
    return _Reader(source, options, "nccl-tests").run()


def read_rccl(source: Source, options: Options) -> Imported:
    """Return the tables of an rccl-tests log (see ``read``)."""
    return _Reader(source, options, "rccl-tests").run()


class _Reader:
    """Goes through the lines once, keeping what belongs to the next table."""

    def __init__(self, source: Source, options: Options, tool: str) -> None:
        self.source = source
        self.options = options
        self.imported = Imported(source.name, tool)
        self.context = Context(tool=tool, file=source.name, options=options)
        self.log = NcclLog()
        self.next = RawTable()
        self.table: RawTable | None = None
        self.layouts: dict[int, rows.Columns] = {}
        self.width = 0
        self.split: Split | None = None
        self.headed: tuple[int, str] | None = None
        self.aborted = ""

    def run(self) -> Imported:
        number, feed = 0, self.feed
        for batch in self.source.batches():
            for line in batch:
                number += 1
                # A log of a large machine is nearly all device lines: kept as words, converted when needed.
                if line[:7] == "#  Rank":
                    words = line.split(None, 9)
                    if len(words) > 9 and words[7] == "on" and self.next.gpu is not None:
                        self.next.devices.append((words[2], words[8], words[4]))
                    else:
                        header.device(self.next, line.split()[1:])
                elif tokens := line.split():
                    feed(number, line, tokens)
        self.drop_split(last=True)
        self.close()
        self.bare_heading()
        self.context.conclude(self.imported, self.next, self.aborted)
        return self.imported

    def feed(self, number: int, line: str, tokens: list[str]) -> None:
        first = tokens[0]
        mark = first[0]
        if mark == "#":
            bare = first.lstrip("#")
            words = [bare, *tokens[1:]] if bare else tokens[1:]
            if words:
                self.comment(number, line, words)
        elif mark.isdecimal() and ("NCCL " not in line or not LOG.search(line)):
            self.numbers(number, line, tokens)
        elif first in _WORDS:
            self.comment(number, line, tokens)
        else:
            self.other(number, line, tokens)

    def comment(self, number: int, line: str, words: list[str]) -> None:
        """Take a line of the tool itself, with or without its ``#``."""
        word = words[0]
        if word == "Rank":
            header.device(self.next, words)
        elif word == "size" and words[1:3] == ["count", "type"]:
            self.header(number, words)
        elif word == "nThread":
            self.close()
            header.parameters(self.next, words)
        elif word == "Out" and "bounds" in words:
            self.drop_split()
            if self.table is not None:
                counts = [int(w[:12]) for w in words if w.isdecimal()]
                self.table.out_of_bounds = counts[0] if counts else None
                self.table.ended = True
        elif word in ("Avg", "Collective", "nccl-tests", "rccl-tests:", "Using", "Blocking"):
            self.section(line, words)
        elif "=" in line:
            self.heading(number, line)

    def section(self, line: str, words: list[str]) -> None:
        """Take a line that ends one table or begins what belongs to the next."""
        word = words[0]
        if self.table is not None:
            self.table.ended = self.table.ended or word == "Avg" or "concluded:" in words
        self.close()
        if word == "Using":
            self.next.devices = []
        elif word == "Blocking":
            self.next.blocking = "barrier" in line
        elif word == "Collective" and "starting:" in words:
            self.next.name = hints.test_name(line)
        elif word == "nccl-tests":
            self.next = RawTable(processes=self.next.processes, per_node=self.next.per_node)
            self.context.header_version(words)

    def header(self, number: int, words: list[str]) -> None:
        """Begin a table under its column line."""
        self.close()
        self.layouts = rows.columns_of(words)
        self.width = max(self.layouts, default=0)
        self.open(number, tuple(words))

    def open(self, number: int, names: tuple[str, ...]) -> None:
        self.headed = None
        self.table = replace(self.next, line=number, header=names, cpu_time="cputime" in names, rows=[])
        if not names:
            self.layouts, self.width = {}, 0

    def numbers(self, number: int, line: str, tokens: list[str]) -> None:
        """Take a line that begins with a digit: a row, the rest of a split one, or noise."""
        if (
            len(tokens) == self.width
            and tokens[2] in rows.TYPES
            and self.table is not None
            and self.split is None
        ):
            self.row(number, line, tokens, self.layouts[self.width])
            return
        tokens = rows.without_stamp(tokens)
        columns = self.layouts.get(len(tokens)) if self.table else None
        if rows.looks_like_row(tokens):
            if self.table is None:
                self.open(number, ())
            columns = columns or (None if self.layouts else rows.columns_from_right(tokens))
            usual = not self.layouts or len(tokens) == self.width
            if columns is not None and (usual or rows.fits(tokens, columns)):
                self.drop_split()
                self.row(number, line, tokens, columns)
            else:
                self.begin_split(number, Piece(line, ""))
        elif self.split is not None:
            self.add_piece(Piece(line, ""))
        elif columns is not None and sum(map(_numeric, tokens)) > len(tokens) // 2:
            self.imported.reject(
                number, line, "size, count or type is missing", skip=self.options.skip_bad_rows
            )
        elif len(tokens) >= 3 and tokens[1].isdecimal() and tokens[2] in rows.TYPES and self.table:
            self.begin_split(number, Piece(line, ""))

    def row(self, number: int, line: str, tokens: list[str], columns: rows.Columns) -> None:
        assert self.table is not None
        try:
            self.table.rows.append(rows.read_row(number, tokens, columns))
        except rows.BadRowError as error:
            self.imported.reject(number, line, str(error), skip=self.options.skip_bad_rows)

    def other(self, number: int, line: str, tokens: list[str]) -> None:
        """Take a line that is not the tool's: NCCL's debug output, pieces of rows, launcher and shell noise."""
        match = LOG.search(line) if "NCCL " in line else None
        if match is not None:
            before, host = line[: match.start()], match[1]
            beginning = before.split()
            if rows.looks_like_row([*beginning, "", ""]) or (
                len(beginning) >= 3 and beginning[2] in rows.TYPES and beginning[0].isdecimal()
            ):
                if self.table is None:
                    self.open(number, ())
                self.begin_split(number, Piece(before, host))
            elif self.split is not None and (beginning or (before and host[:1].isdecimal())):
                self.add_piece(Piece(before, host))
            elif not before:
                self.log.hosts.add(host)
            self.log.take(line)
        elif self.split is not None and all(map(_numeric, tokens)):
            self.add_piece(Piece(line, ""))
        else:
            self.noise(number, line, tokens)

    def noise(self, number: int, line: str, tokens: list[str]) -> None:
        columns = self.layouts.get(len(tokens)) if self.table else None
        if columns is not None and len(tokens) > 8 and sum(map(_numeric, tokens)) > len(tokens) // 2:
            reason = "it stands in the table and its size is no number"
            self.imported.reject(number, line, reason, skip=self.options.skip_bad_rows)
            return
        if "=" in line and "_" in line:
            self.log.environment.update(hints.variables(line))
            if "SLURM_N" in line and (match := _TASKS.search(line)):
                self.next.processes = int(match[1]) or None
        if "_perf" in line:
            if hints.test_name(line):
                self.close()
            header.command(self.next, line)
        if "CCL version" in line:
            self.log.take(line)
        if not self.aborted and any(map(line.__contains__, _TROUBLE)) and _FAILURE.search(line):
            self.aborted = line.strip()

    def bare_heading(self) -> None:
        """Say so when the last heading stands over no row: that combination failed."""
        if self.headed is not None:
            number, text = self.headed
            self.imported.remarks.append(f"line {number}: {printable(text, 60)!r} has no row, it failed")
            self.headed = None

    def heading(self, number: int, line: str) -> None:
        """Take ``### ALGO=Ring size=…`` of a hand-made summary."""
        found = dict(_HEADING.findall(line[: hints.LINE]))
        if not found:
            return
        self.close()
        self.bare_heading()
        self.headed = (number, line.strip(" #"))
        self.context.heading(self.log, found)
        ranks = found.get("GPUS") or found.get("NGPUS") or found.get("RANKS") or ""
        self.next.stated_ranks = int(ranks[:8]) if ranks.isdecimal() else self.next.stated_ranks

    def begin_split(self, number: int, piece: Piece) -> None:
        self.drop_split()
        if len(piece.text) + len(piece.glued) > LONGEST:
            return
        self.split = Split(number, [piece])

    def add_piece(self, piece: Piece) -> None:
        """Add a part to the split row; a row that is whole by now is taken."""
        assert self.split is not None
        if len(piece.text) + len(piece.glued) > LONGEST:
            self.drop_split()
            return
        self.split.pieces.append(piece)
        row = stitch(self.split.line, self.split.pieces, self.layouts, self.log.hosts)
        if row is not None and self.table is not None:
            self.table.rows.append(row)
            self.split = None
        elif self.split.hopeless:
            self.drop_split()

    def drop_split(self, *, last: bool = False) -> None:
        """Give up on a split row that nothing completed."""
        split, self.split = self.split, None
        if split is None:
            return
        if last:
            self.imported.remarks.append(f"line {split.line}: the last row is cut off and was left out")
            return
        reason = "it is split and its parts make no row whose size, time and algbw agree"
        self.imported.reject(split.line, split.text, reason, skip=self.options.skip_bad_rows)

    def close(self) -> None:
        """End the open table: everything known, it becomes rows."""
        table, self.table = self.table, None
        if table is None:
            return
        self.drop_split(last=not table.ended)
        finish(table, self.log, self.context, self.imported)
        self.next = replace(self.next, stated_ranks=None, blocking=False)
        self.log.next_table()


def _numeric(word: str) -> bool:
    if word == "N/A":
        return True
    try:
        float(word)
    except ValueError:
        return False
    return True


FORMAT = Importer("nccl-tests", "nccl-tests text output, every generation", detect, read)
RCCL = Importer("rccl-tests", "rccl-tests text output", detect_rccl, read_rccl)
