"""Reading a file of unknown origin in bounded memory: gzip, encodings, launcher prefixes, hostile input."""

import codecs
import gzip
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from collbench.errors import UsageError
from collbench.importers.model import printable

CHUNK = 1 << 20
MAX_LINE = 1 << 20
"""Longest line that is read; NCCL's longest log lines have some 10 kB."""
MAX_TEXT = 2 << 30
"""Largest text that is read from one file."""
MAX_RATIO, RATIO_FROM = 300, 64 << 20
"""A gzip file that grows more than this, once it is this large, is no log (logs reach about 50)."""
MAX_WHOLE = 256 << 20
"""Largest file that has to be read as a whole (JSON, Parquet)."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Open MPI --tag-output, --timestamp-output, PRRTE: "[1,0]<stdout>:", "Thu Jul 18 15:41:05 2024<stdout>:".
_TAGGED = re.compile(r"^[^<]{0,120}<std(?:out|err|diag)>: ?")
# srun -l "0: ", ISO time stamps, MPICH -prepend-rank "[0] ", pdsh "host: ".
_PREFIX = re.compile(
    r"(?:[ \t]*\d{1,7}:[ ]"
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?[ ]"
    r"|\[\d{1,7}\][ ](?=[ \t]*[#\d])"
    r"|[A-Za-z][\w.-]{0,80}:[ ](?=#|[ ]*\d+[ ]+\d)){1,3}"
)


def clean(lines: list[str]) -> list[str]:
    """Return the lines without colours and without what launchers put before each."""
    text = "\n".join(lines)
    return _clean(lines, colours="\x1b" in text, tags="<std" in text)


def _clean(lines: list[str], *, colours: bool, tags: bool) -> list[str]:
    if colours:
        lines = [_ANSI.sub("", line) for line in lines]
    if tags:
        lines = [_TAGGED.sub("", line) for line in lines]
    match = _PREFIX.match
    first = next(filter(None, map(match, lines)), None)
    if first is None:
        return lines
    # Most lines carry the very same prefix: comparing is much cheaper than matching.
    usual, length = first[0], len(first[0])
    return [
        line[length:] if line.startswith(usual) else (line[m.end() :] if (m := match(line)) else line)
        for line in lines
    ]


class _Counted:
    """A binary file that counts what was read, with some bytes put back in front."""

    def __init__(self, handle: BinaryIO, front: bytes) -> None:
        self._handle = handle
        self._front = front
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        if self._front:
            size = len(self._front) if size < 0 else size
            data, self._front = self._front[:size], self._front[size:]
        else:
            data = self._handle.read(size)
        self.count += len(data)
        return data


class Source:
    """One file to import.

    Args:
        handle: open for reading bytes.
        name: as the user gave it, for messages and for what a file name tells.

    Attributes:
        truncated: the compressed file ended early.
    """

    def __init__(self, handle: BinaryIO, name: str) -> None:
        self.name = printable(name)
        self.truncated = False
        first = handle.read(4096)
        self._raw = _Counted(handle, first)
        self._gzip = first[:2] == b"\x1f\x8b"
        self._reader = self._read_gzip() if self._gzip else self._read_plain()
        self._head: list[bytes] = []

    def _read_plain(self) -> Iterator[bytes]:
        while data := self._raw.read(CHUNK):
            yield data

    def _read_gzip(self) -> Iterator[bytes]:
        with gzip.GzipFile(fileobj=cast("BinaryIO", self._raw), mode="rb") as unpacked:
            total = 0
            while True:
                try:
                    data = unpacked.read1(CHUNK)
                except EOFError:
                    self.truncated = True
                    return
                except (OSError, zlib.error) as error:
                    raise UsageError(f"{self.name} is not a readable gzip file: {str(error)[:60]}") from None
                if not data:
                    return
                total += len(data)
                if total > RATIO_FROM and total > MAX_RATIO * self._raw.count:
                    raise UsageError(
                        f"{self.name} unpacks to more than {MAX_RATIO} times its size: this is not a log"
                    )
                yield data

    def chunks(self) -> Iterator[bytes]:
        """Yield the unpacked bytes, the part that was peeked at included.

        Raises:
            UsageError: larger than MAX_TEXT, or not gzip.
        """
        total = 0
        while True:
            data = self._head.pop(0) if self._head else self._next()
            if not data:
                return
            total += len(data)
            if total > MAX_TEXT:
                raise UsageError(f"{self.name} holds more than {MAX_TEXT >> 30} GiB of text: split it")
            yield data

    def _next(self) -> bytes:
        try:
            return next(self._reader, b"")
        except OSError as error:
            raise UsageError(f"cannot read {self.name}: {error.strerror or error}") from None

    def peek(self) -> bytes:
        """Return the first bytes (at most about CHUNK) and keep them for ``chunks``."""
        while sum(map(len, self._head)) < CHUNK:
            data = self._next()
            if not data:
                break
            self._head.append(data)
        return b"".join(self._head)

    def whole(self) -> bytes:
        """Return everything; raises UsageError beyond MAX_WHOLE."""
        parts, total = [], 0
        for data in self.chunks():
            total += len(data)
            if total > MAX_WHOLE:
                raise UsageError(
                    f"{self.name} holds more than {MAX_WHOLE >> 20} MiB in one document: split it"
                )
            parts.append(data)
        return b"".join(parts)

    def head(self) -> str:
        """Return the beginning as text, for detection."""
        data = self.peek()
        return codecs.decode(data, _encoding(data), "replace")

    def batches(self, *, cleaned: bool = True) -> Iterator[list[str]]:
        """Yield the lines in lists of about CHUNK bytes.

        Raises:
            UsageError: binary data, or a line longer than MAX_LINE.
        """
        encoding = _encoding(self.peek())
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        rest, number = "", 1
        for data in self.chunks():
            text = rest + decoder.decode(data)
            if "\0" in text:
                raise UsageError(
                    f"{self.name} is a binary file, not a log: unpack it, or give the text it was made from"
                )
            plain = encoding == "utf-8" and "\r" not in text
            lines = text.split("\n") if plain else text.splitlines(keepends=True) or [""]
            rest = lines.pop()
            if not plain:
                lines = [line.rstrip("\r\n") for line in lines]
            if len(rest) > MAX_LINE:
                raise UsageError(
                    f"{self.name}: line {number + len(lines)} is longer than {MAX_LINE >> 20} MiB: not a log"
                )
            number += len(lines)
            if cleaned:
                lines = _clean(lines, colours="\x1b" in text, tags="<std" in text)
            yield lines
        rest += decoder.decode(b"", final=True)
        if rest:
            yield clean(rest.splitlines()) if cleaned else rest.splitlines()

    def lines(self, *, cleaned: bool = True) -> Iterator[str]:
        """Yield the lines one by one (see ``batches``)."""
        for batch in self.batches(cleaned=cleaned):
            yield from batch


def _encoding(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if data.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    sample = data[:200]
    if len(sample) >= 8 and sample.count(0) > len(sample) // 3:
        if not any(sample[::2]):
            return "utf-16-be"
        if not any(sample[1::2]):
            return "utf-16-le"
    return "utf-8"


def find_files(paths: list[Path]) -> list[Path]:
    """Return the files to import: files as given, folders recursively (sorted, regular files only).

    Links inside a folder are not followed, so that a folder never leads out of itself; hidden files are left out.

    Raises:
        UsageError: a path that does not exist, or a folder without files.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if str(path) == "-" or path.is_file():
            found[path] = None
        elif path.is_dir():
            inside = sorted(p for p in path.rglob("*") if _importable(p, path))
            if not inside:
                raise UsageError(f"the folder {printable(str(path))} holds no files to import")
            found.update(dict.fromkeys(inside))
        elif path.exists():
            found[path] = None
        else:
            raise UsageError(f"no file {printable(str(path))}: give logs, folders, or - for standard input")
    # The same file given twice is one log, not two repetitions.
    return list({_identity(path): path for path in found}.values())


def _identity(path: Path) -> tuple[int, int] | Path:
    try:
        status = path.stat()
    except OSError:
        return path
    return status.st_dev, status.st_ino


def _importable(path: Path, root: Path) -> bool:
    with suppress(OSError):
        hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
        return not hidden and stat.S_ISREG(path.lstat().st_mode)
    return False
