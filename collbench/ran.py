"""Which algorithms were shown to run on each side of a comparison, and where they are not the same."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from collbench.errors import UsageError
from collbench.results import Run
from collbench.units import format_bytes

Key = tuple[Any, ...]
Shown = Mapping[Key, frozenset[str]]
"""Key of a cell → the algorithms that its evidence cannot tell apart; cells without evidence are absent."""


def shown(run: Run, rows: pd.DataFrame, keys: Sequence[Key]) -> dict[Key, frozenset[str]]:
    """Return what was shown to run.

    Args:
        run: the run.
        rows: rows of ``results.frame(run)``, with its index (row n is cell line n).
        keys: key of each row.
    """
    found: dict[Key, set[str]] = {}
    for index, key in zip(rows.index, keys, strict=True):
        line = run.cells[int(index)]
        evidence = line.get("evidence") or {}
        if evidence.get("status", "unknown") != "unknown" and line.get("effective"):
            found.setdefault(key, set()).update([line["effective"], *(evidence.get("candidates") or ())])
    return {key: frozenset(names) for key, names in found.items()}


def words(names: frozenset[str] | None) -> str | None:
    """Return ``ring or segmented_ring``; None where nothing is known."""
    return " or ".join(sorted(names)) if names else None


def differ(base: frozenset[str] | None, new: frozenset[str] | None) -> bool:
    """Say whether two sides were shown to run different algorithms: they have no candidate in common."""
    return bool(base and new and not base & new)


def findings(
    labels: tuple[str, str], cells: Sequence[tuple[Mapping[str, Any], str | None, str | None]]
) -> list[str]:
    """Return sentences such as ``bcast 8 ranks 64 KiB: A ran binomial, B ran ring``, sizes of one kind together.

    Args:
        labels: of the base and of the other side.
        cells: (columns of the cell, what the base ran, what the other side ran) where these differ.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for facts, base, new in cells:
        asked = facts.get("algorithm") or "default"
        groups.setdefault((facts["collective"], facts["ranks"], asked, base, new), []).append(facts["nbytes"])
    return [
        f"{name} {ranks} ranks {', '.join(format_bytes(n) for n in dict.fromkeys(sizes))}"
        f"{'' if asked == 'default' else f' as {asked}'}: {labels[0]} ran {base}, {labels[1]} ran {new}"
        for (name, ranks, asked, base, new), sizes in groups.items()
    ]


def check_proofs(proofs: Mapping[str | None, Mapping[str, Mapping[str, Any]]], base: str) -> None:
    """Refuse environments of which one runs another algorithm than it was asked for, before anything is timed.

    What ``default`` runs may differ: that is a finding.

    Raises:
        UsageError: names the cell, what was asked for and what ran in both.
    """
    for name, found in proofs.items():
        for key, here in found.items():
            there = proofs.get(base, {}).get(key)
            collective, ranks, _, asked, *_ = key.split("|")
            if name == base or there is None or asked == "default":
                continue
            statuses = (there["status"], here["status"])
            if "contradicted" in statuses and there.get("effective") != here.get("effective"):
                ran = [x.get("effective") or "something unknown" for x in (there, here)]
                raise UsageError(
                    f"{collective} on {ranks} ranks was asked to run {asked}: {base} ran {ran[0]}, {name} ran {ran[1]}, "
                    "so they cannot be compared as that (--allow-mixed effective compares them all the same)"
                )
