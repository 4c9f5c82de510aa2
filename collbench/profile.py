"""Profiles: TOML sweeps that say what to measure. A broken one is named by file, line and key."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from collbench import units
from collbench.collectives import collective
from collbench.errors import CollbenchError, UsageError, unknown_name
from collbench.records import ITEMSIZE

OPS = ("sum", "max", "min", "prod")
MODES = ("race", "fixed")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a cell is sampled (facts: timing-and-statistics §9).

    Attributes:
        mode: "race" drops clear losers and stops early; "fixed" takes every case the same number of calls.
        iterations: calls per case in fixed mode; None = the race decides.
        block_s: aimed length of one block, seconds.
        min_rounds: blocks per case before anything is decided.
        max_rounds: blocks per case at most.
        precision: a race ends when no other case can be faster than the leader by more than this share.
        warmup: calls before the first timed one, per case.
        rotate_buffers: pairs of buffers that the calls of a case go through in turn (against cache effects).
        rotate_root: the root of rooted collectives moves on by one rank with each call.
        refine: measure sizes from coarse to fine, the finer ones only where the coarser ones disagree (``refinement``).
    """

    mode: str = "race"
    iterations: int | None = None
    block_s: float = 300e-6
    min_rounds: int = 5
    max_rounds: int = 40
    precision: float = 0.02
    warmup: int = 2
    rotate_buffers: int = 1
    rotate_root: bool = False
    refine: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """One product of collectives × ranks × sizes × algorithms.

    Attributes:
        collectives: names.
        ranks: rank counts, ascending.
        sizes: total bytes, ascending.
        algorithms: names, or the words ``library`` (all of the library's), ``portable``, ``all``, ``default``.
        dtypes: element types.
        ops: operators, used where the collective reduces.
        in_place: which forms to measure.
        memory: host, cuda …
    """

    collectives: tuple[str, ...]
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    algorithms: tuple[str, ...] = ("library",)
    dtypes: tuple[str, ...] = ("float32",)
    ops: tuple[str, ...] = ("sum",)
    in_place: tuple[bool, ...] = (False,)
    memory: str = "host"


@dataclass(frozen=True, slots=True)
class Profile:
    """A named list of sweeps.

    Attributes:
        name: how the run is called.
        backend: mpi, nccl or nccl-tests.
        description: one sentence.
        sweeps: what to measure.
        sampling: how.
        launches: process starts per rank count.
        budget_s: time for the whole run, start-up included; None = no limit.
        ranks_per_node: None = what the launcher gives.
        extra: tables of other backends (``[nccl]`` …), as written.
    """

    name: str
    backend: str
    description: str
    sweeps: tuple[Sweep, ...]
    sampling: Sampling = Sampling()
    launches: int = 1
    budget_s: float | None = None
    ranks_per_node: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def folder() -> Traversable:
    """Return the folder of shipped profiles: inside the installed package, or beside it in a development tree."""
    try:
        found: Traversable = resources.files("collbench.profiles")
    except ModuleNotFoundError:
        found = Path(__file__).resolve().parent.parent / "profiles"
    return found


def shipped() -> dict[str, Traversable]:
    """Return name → file of every shipped profile."""
    return {p.name.removesuffix(".toml"): p for p in sorted(folder().iterdir(), key=lambda p: p.name)
            if p.name.endswith(".toml")}  # fmt: skip


def load(name: str) -> Profile:
    """Return the profile called ``name``: a shipped one, or a path to a TOML file.

    Raises:
        UsageError: no such profile, or a broken one (file, line and key are named).
    """
    known = shipped()
    if name in known:
        return parse(known[name].read_text(encoding="utf-8"), f"profile {name}", name)
    path = Path(name)
    if path.suffix == ".toml" or "/" in name:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot read profile {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"profile {path} is not UTF-8 text") from None
        return parse(text, str(path), path.stem)
    raise unknown_name("profile", name, known)


def parse(text: str, source: str, name: str) -> Profile:
    """Return the profile written in ``text``; ``source`` names it in errors.

    Raises:
        UsageError: file, line and key of the first fault.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: not valid TOML: {error}") from None
    return _Reader(text, source).profile(data, name)


_SWEEP_KEYS = ("collectives", "ranks", "sizes", "algorithms", "dtypes", "ops", "in_place", "memory")
_TOP_KEYS = (
    "name",
    "backend",
    "description",
    "budget",
    "launches",
    "ranks_per_node",
    "sampling",
    "defaults",
    "sweep",
)
_BACKENDS = ("mpi", "nccl", "nccl-tests")


class _Reader:
    """Turns TOML into records and knows where each key stands."""

    def __init__(self, text: str, source: str) -> None:
        self._lines = text.splitlines()
        self._source = source

    def _fail(self, key: str, problem: str) -> UsageError:
        pattern = re.compile(rf"^\s*(\[+\s*)?{re.escape(key)}\b")
        number = next((i for i, line in enumerate(self._lines, start=1) if pattern.match(line)), None)
        where = f"{self._source}, line {number}" if number else self._source
        return UsageError(f"{where}, key {key!r}: {problem}")

    def _known(self, table: Mapping[str, Any], valid: tuple[str, ...], kind: str) -> None:
        for key in table:
            if key not in valid:
                raise self._fail(key, str(unknown_name(kind, key, valid)))

    def profile(self, data: Mapping[str, Any], name: str) -> Profile:
        backend = data.get("backend", "mpi")
        if backend not in _BACKENDS:
            raise self._fail("backend", str(unknown_name("backend", str(backend), _BACKENDS)))
        extra = {k: v for k, v in data.items() if k in ("nccl", "nccl-tests")}
        self._known({k: v for k, v in data.items() if k not in extra}, _TOP_KEYS, "profile key")
        defaults = self._table(data, "defaults")
        sweeps = data.get("sweep", [])
        if not isinstance(sweeps, list) or not sweeps:
            raise self._fail("sweep", "a profile needs at least one [[sweep]] table")
        budget = data.get("budget")
        return Profile(
            name=str(data.get("name", name)),
            backend=backend,
            description=str(data.get("description", "")),
            sweeps=tuple(self._sweep({**defaults, **sweep}) for sweep in sweeps),
            sampling=self._sampling(self._table(data, "sampling")),
            launches=self._positive(data.get("launches", 1), "launches"),
            budget_s=None if budget is None else self._checked("budget", units.parse_duration, str(budget)),
            ranks_per_node=self._positive(data["ranks_per_node"], "ranks_per_node") if "ranks_per_node" in data else None,
            extra=extra,
        )  # fmt: skip

    def _table(self, data: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = data.get(key, {})
        if not isinstance(value, dict):
            raise self._fail(key, "must be a table")
        return value

    def _sweep(self, table: Mapping[str, Any]) -> Sweep:
        self._known(table, _SWEEP_KEYS, "sweep key")
        for key in ("collectives", "ranks", "sizes"):
            if key not in table:
                raise self._fail("sweep", f"misses {key!r}")
        names = tuple(self._checked("collectives", lambda n: collective(n).name, n)
                      for n in self._words(table["collectives"], "collectives"))  # fmt: skip
        ranks = table["ranks"] if isinstance(table["ranks"], list) else [table["ranks"]]
        sizes = table["sizes"]
        text = ",".join(str(s) for s in sizes) if isinstance(sizes, list) else str(sizes)
        in_place = table.get("in_place", False)
        flags = in_place if isinstance(in_place, list) else [in_place]
        if not flags or not all(isinstance(f, bool) for f in flags):
            raise self._fail("in_place", f"{in_place!r} is not true, false or a list of them")
        return Sweep(
            collectives=names,
            ranks=tuple(sorted({self._positive(r, "ranks") for r in ranks})),
            sizes=self._checked("sizes", units.parse_sizes, text),
            algorithms=self._words(table.get("algorithms", "library"), "algorithms"),
            dtypes=self._among(table.get("dtypes", "float32"), "dtypes", tuple(ITEMSIZE), "dtype"),
            ops=self._among(table.get("ops", "sum"), "ops", OPS, "operator"),
            in_place=tuple(flags),
            memory=str(table.get("memory", "host")),
        )

    def _sampling(self, table: Mapping[str, Any]) -> Sampling:
        fields = tuple(Sampling.__dataclass_fields__)
        self._known(table, fields, "sampling key")
        values = dict(table)
        if "block_s" in values:
            values["block_s"] = self._checked("block_s", units.parse_duration, str(values["block_s"]))
        for key in ("iterations", "min_rounds", "max_rounds", "warmup", "rotate_buffers"):
            if key in values:
                values[key] = self._positive(values[key], key)
        for key in ("rotate_root", "refine"):
            if not isinstance(values.get(key, False), bool):
                raise self._fail(key, f"{values[key]!r} is not true or false")
        if values.get("mode", "race") not in MODES:
            raise self._fail("mode", str(unknown_name("sampling mode", str(values["mode"]), MODES)))
        if not isinstance(values.get("precision", 0.1), float) or not 0 < values.get("precision", 0.1) < 1:
            raise self._fail(
                "precision", f"{values['precision']!r} is not a share between 0 and 1, such as 0.02"
            )
        return Sampling(**values)

    def _words(self, value: Any, key: str) -> tuple[str, ...]:
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
            raise self._fail(key, f"{value!r} is not a name or a list of names")
        return tuple(words)

    def _among(self, value: Any, key: str, valid: tuple[str, ...], kind: str) -> tuple[str, ...]:
        words = self._words(value, key)
        for word in words:
            if word not in valid:
                raise self._fail(key, str(unknown_name(kind, word, valid)))
        return words

    def _positive(self, value: Any, key: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._fail(key, f"{value!r} is not a whole number from 1 up")
        return value

    def _checked(self, key: str, convert: Any, text: str) -> Any:
        try:
            return convert(text)
        except CollbenchError as error:
            raise self._fail(key, str(error)) from None
