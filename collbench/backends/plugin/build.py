"""Compiling the tuner plugin: a C compiler is enough, no CUDA and no NCCL header."""

import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from collbench.backends.plugin.grammar import TABLE_VARIABLE
from collbench.errors import UnansweredError, UsageError

LIBRARY = "libnccl-tuner-collbench.so"
SOURCES = ("tuner.c", "table.c", "versions.c")
HEADERS = ("interface.h", "table.h", "versions.h")
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror=implicit-function-declaration", "-fPIC", "-shared",
         "-fvisibility=hidden")  # fmt: skip
_TIMEOUT_S = 120


def source_folder() -> Path:
    """Return the folder of the C sources."""
    return Path(__file__).resolve().parent


def default_path() -> Path:
    """Return where the plugin is built by default: one place per version of its sources, in the user's cache."""
    digest = hashlib.sha256()
    for name in (*SOURCES, *HEADERS):
        digest.update((source_folder() / name).read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "collbench" / f"plugin-{digest.hexdigest()[:12]}-{os.uname().machine}" / LIBRARY


def compiler() -> str:
    """Return the C compiler: ``$CC``, the one Python was built with, cc, gcc or clang.

    Raises:
        UnansweredError: there is none.
    """
    configured = str(sysconfig.get_config_var("CC") or "").split()
    for name in (os.environ.get("CC", ""), *configured[:1], "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return name
    raise UnansweredError("no C compiler found to build the plugin: install gcc or clang, or set CC")


def command(output: Path) -> list[str]:
    """Return the exact command that compiles the plugin into ``output``."""
    folder = source_folder()
    return [compiler(), *FLAGS, "-o", str(output), *(str(folder / name) for name in SOURCES), "-ldl"]


def build(output: Path | None = None, *, force: bool = True) -> Path:
    """Compile the plugin and return its path.

    Args:
        output: file to write; None = ``default_path()``.
        force: compile even where the file is there.

    Raises:
        UsageError: the folder cannot be written.
        UnansweredError: no compiler, or it fails.
    """
    target = (output or default_path()).absolute()
    if target.exists() and not force:
        return target
    if target.is_dir():
        raise UsageError(f"{target} is a folder: name the file to build, for example {target / LIBRARY}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            made = Path(work) / LIBRARY
            words = command(made)
            done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
            if done.returncode:
                raise UnansweredError(f"{words[0]} cannot build the plugin: {done.stderr.strip()[:500]}")
            # A library that a running job has mapped is replaced by name, never rewritten in place.
            made.replace(target)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UnansweredError(f"the compiler did not end within {_TIMEOUT_S} s") from None
    return target


def built_path() -> Path:
    """Return the path of the plugin built before.

    Raises:
        UnansweredError: it was not built yet.
    """
    path = default_path()
    if not path.exists():
        raise UnansweredError("the tuner plugin is not built yet: run 'collbench plugin build'")
    return path


def activation(library: Path, table: str) -> dict[str, str]:
    """Return the environment that makes NCCL load the plugin with a table."""
    return {"NCCL_TUNER_PLUGIN": str(library), TABLE_VARIABLE: table}
