"""Catching what a library writes to stderr while one call runs: its logs know no other way out."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stderr_of(wanted: Callable[[str], bool]) -> Iterator[list[str]]:
    """Catch what this process writes to stderr inside the ``with`` block.

    Args:
        wanted: says of a line whether it is kept; the others are written to stderr afterwards.

    Yields:
        A list that holds the kept lines once the block has ended.
    """
    kept: list[str] = []
    sys.stderr.flush()
    outside = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield kept
        finally:
            sys.stderr.flush()
            os.dup2(outside, 2)
            os.close(outside)
            file.seek(0)
            for line in file.read().decode(errors="replace").splitlines(keepends=True):
                if wanted(line):
                    kept.append(line)
                else:
                    os.write(2, line.encode())
