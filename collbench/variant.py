"""An environment under comparison: its variables, another MPI, a line of the login shell, a tuned table."""

import os
import pwd
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collbench import installation
from collbench.errors import UnansweredError, UsageError
from collbench.installation import Installation

SETUP_TIMEOUT_S = 120
_RUN = 'eval "$1" || exit; shift; exec "$@"'
_SHOW = "eval \"$1\" >&2 || exit; printf '\\0'; exec env -0"
SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "ash", "mksh")


@dataclass(frozen=True)
class Variant:
    """One environment under comparison.

    Attributes:
        name: A, B …
        env: variables that every rank gets.
        mpi: an mpiexec, a prefix or a virtual environment; None = this environment's own.
        setup: a line for the user's login shell before each launch; None = none.
        table: a tuned table; None = none.
    """

    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    mpi: str | None = None
    setup: str | None = None
    table: Path | None = None


def parse_env(words: Iterable[str]) -> dict[str, str]:
    """Return the variables of ``K=V`` words.

    Raises:
        UsageError: a word is not of this form.
    """
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.replace("_", "a").isalnum() or name[0].isdigit():
            raise UsageError(f"{word!r} is not a variable: write NAME=VALUE")
        found[name] = value
    return found


def parse_variant(text: str) -> Variant:
    """Return the variant of ``NAME:K=V,K=V``; ``NAME:`` alone is the untouched environment.

    A comma inside a value is kept where what follows it is no assignment (``mca=self,vader``).

    Raises:
        UsageError: not of this form.
    """
    name, colon, rest = text.partition(":")
    if not colon or not name:
        raise UsageError(
            f"{text!r} is not a variant: write NAME:K=V,K=V (NAME: alone is the untouched environment)"
        )
    words: list[str] = []
    for piece in rest.split(",") if rest else ():
        if "=" in piece or not words:
            words.append(piece)
        else:
            words[-1] += f",{piece}"
    return Variant(name, parse_env(words))


def login_shell() -> str:
    """Return the user's login shell.

    Raises:
        UsageError: it is not of the Bourne family.
    """
    try:
        shell = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        shell = os.environ.get("SHELL", "")
    shell = shell or "/bin/sh"
    if Path(shell).name not in SHELLS:
        raise UsageError(
            f"a set-up line needs a login shell of the Bourne family, not {shell}: use --variant instead"
        )
    return shell


def with_setup(setup: str, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs ``argv`` after ``setup`` in the login shell; both are arguments of that shell."""
    return (login_shell(), "-l", "-c", _RUN, "collbench", setup, *argv)


def environment_after(setup: str) -> dict[str, str]:
    """Return the environment that a set-up line leaves behind.

    Raises:
        UnansweredError: the line fails.
    """
    try:
        done = subprocess.run(
            (login_shell(), "-l", "-c", _SHOW, "collbench", setup), capture_output=True, stdin=subprocess.DEVNULL,
            timeout=SETUP_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UnansweredError(f"the set-up line {setup!r} does not end within {SETUP_TIMEOUT_S} s") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UnansweredError(f"the set-up line {setup!r} fails: {said[-1] if said else done.returncode}")
    # whatever the shell's own start-up files print stands before the first NUL
    words = done.stdout.decode(errors="surrogateescape").split("\0")[1:]
    return dict(word.split("=", 1) for word in words if "=" in word)


def discover(variant: Variant) -> Installation:
    """Return the MPI that a variant measures, found under its own set-up line.

    Raises:
        UsageError: its path is nothing of the kind.
        UnansweredError: no MPI, one that does not match, or a set-up line that fails.
    """
    changed = environment_after(variant.setup) if variant.setup else dict(os.environ)
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(changed)
        return installation.discover(variant.mpi)
    finally:
        os.environ.clear()
        os.environ.update(before)
