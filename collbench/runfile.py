"""Writing and following a run file: append-only JSON lines, each on disk when its cell ends. Imports nothing heavy.

Schema history:
    1: kinds run, launch, cell, failed, skipped; proof (what an untimed proof found) and launch_end (probe after).
"""

import contextlib
import errno
import io
import json
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from collbench.errors import UnansweredError, UsageError

SCHEMA = 1
CHUNK = 512
"""Lines parsed at a time."""


class Follower:
    """Reads the whole lines that others append to a run file, each once.

    Args:
        path: the run file; it need not exist yet.
        offset: bytes that are known already.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path, self._offset = path, offset

    def lines(self) -> list[bytes]:
        """Return the whole lines that are new; half a line is left for the next look."""
        if not self._path.exists() or self._path.stat().st_size == self._offset:
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        return data[:whole].splitlines()


class RunWriter:
    """Append lines to one run file. Each line is a single write to an O_APPEND descriptor.

    Args:
        path: the run file.
        create: make a new file and refuse an existing one; otherwise append to what is there.

    Raises:
        UsageError: the file exists (create), or the folder cannot be written.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | (os.O_EXCL if create else 0)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        try:
            self._fd = os.open(path, flags, 0o644)
        except FileExistsError:
            raise UsageError(
                f"{path} exists and is never overwritten: choose another -o, or continue it with --resume"
            ) from None
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one line; raises UnansweredError when the disk is full (what is written stays whole)."""
        data = (json.dumps(line, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n").encode()
        start = os.fstat(self._fd).st_size
        try:
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            # A half-written line would look like a torn cell: take it back, keep all before it.
            with contextlib.suppress(OSError):  # a device cannot be cut
                os.ftruncate(self._fd, start)
            raise UnansweredError(
                f"cannot go on writing {self.path}: {error.strerror}; all finished cells are kept, "
                "free some space and continue with --resume"
            ) from None

    def close(self) -> None:
        """Flush to disk and close; raises UnansweredError when the disk refuses (full, or broken)."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a device has nothing to flush
                raise UnansweredError(f"cannot finish writing {self.path}: {error.strerror}") from None
        finally:
            os.close(fd)

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _parsed(data: bytes) -> Iterator[tuple[int, Any, str]]:
    """Yield (line number, parsed line, what is wrong with it) for each line that is not empty.

    Lines are parsed many at a time, so that their keys are shared in memory; a chunk with a bad line goes one by one.
    """
    rows = enumerate(io.BytesIO(data), start=1)
    while chunk := list(islice(rows, CHUNK)):
        numbered = [(number, raw) for number, raw in chunk if raw.strip()]
        try:
            parsed = json.loads(b"[" + b",".join(raw for _, raw in numbered) + b"]")
        except (ValueError, RecursionError):
            parsed = None
        if parsed is not None and len(parsed) == len(numbered):
            yield from ((number, line, "") for (number, _), line in zip(numbered, parsed, strict=True))
            continue
        for number, raw in numbered:
            try:
                yield number, json.loads(raw), ""
            except (ValueError, RecursionError):
                yield number, None, "not JSON" if raw.endswith(b"\n") else "cut off"


def parse_lines(data: bytes, path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the whole lines of a run file and remarks on what could not be read.

    A torn last line (the writer was killed) is left out with a remark; a bad line elsewhere too.

    Raises:
        UsageError: not a run file, or one of a newer schema.
    """
    lines: list[dict[str, Any]] = []
    remarks: list[str] = []
    for number, line, remark in _parsed(data):
        if remark:
            remarks.append(f"{path}: line {number} is {remark} and was left out")
        elif isinstance(line, dict) and isinstance(line.get("kind"), str):
            lines.append(line)
        else:
            remarks.append(f"{path}: line {number} is not a run-file line and was left out")
    if not lines or lines[0]["kind"] != "run":
        raise UsageError(f"{path} is not a collbench run file: its first line must be of kind 'run'")
    schema = lines[0].get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise UsageError(
            f"{path} has schema {schema!r}, this collbench reads up to {SCHEMA}: install a newer collbench"
        )
    return lines, remarks
