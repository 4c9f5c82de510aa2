"""Writing a file as a whole: a reader sees the old text or the new one, never a part, never an addition."""

import os
import tempfile
from pathlib import Path

from collbench.errors import UsageError


def write_text(path: Path, text: str, *, force: bool = False) -> None:
    """Write ``text`` to ``path`` through a temporary file beside it.

    Args:
        path: the file.
        text: its whole new content.
        force: replace an existing file.

    Raises:
        UsageError: the file exists (without ``force``) or its folder cannot be written.
    """
    if path.exists() and not force:
        raise UsageError(f"{path} exists: choose another -o, or replace it with --force")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            Path(name).chmod(0o666 & ~umask)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
