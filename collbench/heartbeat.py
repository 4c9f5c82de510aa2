"""A worker's sign of life, for the driver that watches from outside."""

import json
import os
import time
from pathlib import Path
from typing import Any

STATUS_BYTES = 4096


class Status:
    """A small file that tells the driver what is in flight; overwritten in place by rank 0.

    Args:
        path: the file; None on other ranks.
    """

    def __init__(self, path: Path | None) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644) if path else -1

    def write(self, **facts: Any) -> None:
        """Replace the content; the driver takes the time of the write as a sign of life."""
        if self._fd >= 0:
            text = json.dumps({"at": time.time(), **facts}).encode()[:STATUS_BYTES]
            os.pwrite(self._fd, text.ljust(STATUS_BYTES), 0)
