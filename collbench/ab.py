"""Environments measured interleaved: variants, their launches in pairs, suspects measured again on fresh launches."""

import os
import pwd
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from collbench import installation, plan
from collbench.errors import UnansweredError, UsageError
from collbench.installation import Installation
from collbench.plan import Group, Launch, Plan
from collbench.profile import Profile
from collbench.records import Case
from collbench.request import RunOptions
from collbench.runner import Runner

PAIRS = 10
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


def make_plan(
    profile: Profile,
    options: RunOptions,
    variants: Sequence[Variant],
    installations: Mapping[str, Installation],
    *,
    pairs: int,
    first: int = 0,
    ranks_per_node: int | None = None,
    keep: Callable[[Case], bool] = lambda _case: True,
) -> Plan:
    """Return launches of all variants, alternating, each repetition started by another one.

    Args:
        profile: with the options applied; its own number of launches does not count.
        options: as for a run.
        variants: at least two.
        installations: variant → its MPI.
        pairs: repetitions.
        first: number of the first repetition (confirmation goes on counting).
        ranks_per_node: that one node takes.
        keep: which cases to measure.

    Raises:
        UsageError: nothing is left to measure.
    """
    plans = {v.name: _one(profile, options, installations[v.name], pairs, ranks_per_node) for v in variants}
    groups: dict[tuple[int, int], dict[str, list[Launch]]] = {}
    for variant in variants:
        for launch in plans[variant.name].launches:
            kept = _kept(launch, variant, first, keep)
            if kept.groups:
                home = groups.setdefault((kept.repetition, kept.ranks), {})
                home.setdefault(variant.name, []).append(kept)
    launches: list[Launch] = []
    for (repetition, _ranks), found in groups.items():
        turn = repetition % len(variants)
        for variant in (*variants[turn:], *variants[:turn]):
            launches += found.get(variant.name, [])
    skipped = plans[variants[0].name].skipped
    return Plan(tuple(launches), skipped, profile.sampling)


def _one(
    profile: Profile, options: RunOptions, found: Installation, pairs: int, ranks_per_node: int | None
) -> Plan:
    return plan.make_plan(
        replace(profile, launches=pairs), replace(options, prove=False),
        library=found.library, version=found.version, ranks_per_node=ranks_per_node,
    )  # fmt: skip


def _kept(launch: Launch, variant: Variant, first: int, keep: Callable[[Case], bool]) -> Launch:
    groups = tuple(Group(cases) for g in launch.groups if (cases := tuple(c for c in g.cases if keep(c))))
    return replace(
        launch, repetition=launch.repetition + first, variant=variant.name, groups=groups,
        settings={**launch.settings, **variant.env},
    )  # fmt: skip


class AbRunner(Runner):
    """A runner whose launches may need a line of the login shell first.

    Attributes:
        setups: variant → its set-up line.
    """

    setups: Mapping[str, str]

    def command(self, launch: Launch, plan_file: Path) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the command, inside the login shell where the variant has a set-up line."""
        argv, env = super().command(launch, plan_file)
        setup = self.setups.get(launch.variant or "")
        return (with_setup(setup, argv) if setup else argv), env
