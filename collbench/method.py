"""What must be equal for rows to be compared, and what may differ because it is what one compares."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from collbench.errors import UsageError

FIELDS = {
    "sync": "sync", "rotation": "rotation", "rank_reduction": "rank_reduction", "thread_level": "thread_level",
    "timer": "timer", "dtype": "dtype", "op": "op", "in_place": "in_place", "memory": "memory", "topology": "ranks_per_node",
    "groups": "groups",
}  # fmt: skip
"""Name of a method field → column of ``results.frame``. ``effective`` is checked beside them."""
LOOSE = ("collective", "ranks", "nbytes", "algorithm")
_VOLATILE = frozenset(
    {"load", "clock_mhz", "throttled", "variables", "versions", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"}
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact in which the two sides differ; it is listed beside the verdict.

    Attributes:
        field: dotted name: library.version, environment.kernel, settings.OMPI_MCA_…
        base: value of the base; None = absent there.
        new: value of the new side.
    """

    field: str
    base: str | None
    new: str | None


def check(base: pd.DataFrame, new: pd.DataFrame, allowed: Collection[str] = ()) -> None:
    """Refuse rows that differ in method.

    Args:
        base: rows of ``results.frame``.
        new: rows of the other side.
        allowed: fields that may differ (``--allow-mixed``).

    Raises:
        UsageError: names the field, the cell and both values.
    """
    for name, column in FIELDS.items():
        if name not in allowed:
            _check_field(base, new, name, column)
    if "effective" not in allowed:
        _check_effective("BASE", base, new)
        _check_effective("NEW", new, base)


def _check_field(base: pd.DataFrame, new: pd.DataFrame, name: str, column: str) -> None:
    sides = [_values(side, column) for side in (base, new)]
    for key in sides[0]:
        if key in sides[1] and not sides[0][key] & sides[1][key]:
            texts = [", ".join(sorted(side[key])) for side in sides]
            raise UsageError(
                f"the runs differ in method and are not compared: {name} of {key[0]} on {key[1]} ranks is "
                f"{texts[0]} in BASE and {texts[1]} in NEW (--allow-mixed {name} compares them all the same)"
            )


def _values(side: pd.DataFrame, column: str) -> dict[tuple[Any, ...], set[str]]:
    found: dict[tuple[Any, ...], set[str]] = {}
    for *key, value in side[[*LOOSE, column]].itertuples(index=False):
        found.setdefault(tuple(key), set()).add("unknown" if pd.isna(value) else str(value))
    return found


def _check_effective(label: str, side: pd.DataFrame, other: pd.DataFrame) -> None:
    """Refuse a cell in which another algorithm ran than was asked for, unless the same one ran on both sides."""
    there = _contradicted(other)
    keys = {tuple(key) for key in other[list(LOOSE)].itertuples(index=False)}
    for key, ran in _contradicted(side).items():
        if key in keys and there.get(key) != ran:
            raise UsageError(
                f"{label}: {key[0]} on {key[1]} ranks was asked to run {key[3]} but {', '.join(sorted(ran))} ran, so it "
                "cannot be compared as that (--allow-mixed effective compares it all the same)"
            )


def _contradicted(side: pd.DataFrame) -> dict[tuple[Any, ...], set[str]]:
    """Return cell → what ran instead, for cells whose evidence contradicts the request."""
    found: dict[tuple[Any, ...], set[str]] = {}
    wrong = side[(side["evidence_status"] == "contradicted") & (side["algorithm"] != "default")]
    for *key, ran in wrong[[*LOOSE, "effective"]].itertuples(index=False):
        found.setdefault(tuple(key), set()).add(str(ran))
    return found


def differences(
    base: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> tuple[Difference, ...]:
    """Return the facts in which the launches of two sides differ: library, driver, kernel, settings, variables."""
    facts = [_facts(side) for side in (base, new)]
    return tuple(
        Difference(name, facts[0].get(name), facts[1].get(name))
        for name in sorted(facts[0].keys() | facts[1].keys())
        if facts[0].get(name) != facts[1].get(name)
    )


def _facts(launches: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for launch in launches:
        for part in ("library", "settings", "environment", "hosts"):
            for name, value in _flat(part, launch.get(part)):
                found.setdefault(name, {})[value] = None
    return {name: ", ".join(values) for name, values in found.items()}


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in ("variables", "versions") or key not in _VOLATILE:
                yield from _flat(name if key == "variables" else f"{name}.{key}", inner)
    elif isinstance(value, list):
        yield name, " ".join(str(item) for item in value)
    elif value is not None:
        yield name, str(value)
