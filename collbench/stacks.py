"""Where a table switches the user's untouched stack off, so that "default" no longer means what was measured.

MPICH, single-threaded: the device layer's shared-memory collectives bypass the table until a collective's device layer is
switched off. Open MPI on several nodes: HAN and HCOLL outrank tuned, the only component that reads the rules file.
Source: facts mpi-libraries §2.2, §3.4 and its addendum.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from collbench import pool, units
from collbench.candidates import Choice, Series
from collbench.records import Rule

OUTSIDE = ("posix", "han", "hcoll", "ucc", "adapt", "sm", "xhc")
"""Components that a table of MPIR or tuned algorithms cannot choose."""
_MPICH_WORDS = {"reduce_scatter": "REDUCE_SCATTER_BLOCK", "reduce_scatter_v": "REDUCE_SCATTER"}


def replaces(provider: str, rows: pd.DataFrame) -> str:
    """Return what a rule takes away beside its own sizes: "" nothing, "collective", or "everything"."""
    if provider == "mpich" and (rows["thread_level"] == "single").any():
        return "collective"
    if provider == "openmpi" and (pd.to_numeric(rows["nodes"]).fillna(1) > 1).any():
        if not bool((rows["source"] == "collbench").any()):
            return ""  # imported rows do not say which component served
        return "everything"
    return ""


def settings(provider: str, collectives: Sequence[str]) -> dict[str, str]:
    """Return the settings without which the table would not act."""
    if provider == "mpich":
        words = [_MPICH_WORDS.get(name, name.upper()) for name in collectives]
        return {f"MPIR_CVAR_{word}_DEVICE_COLLECTIVE": "0" for word in words}
    return {"OMPI_MCA_coll": "^han,adapt,hcoll"}


def forced(series: Sequence[Series]) -> list[Series]:
    """Return the series without sizes at which only the default, or a component outside the table, was measured.

    The default's column stays: gains are stated against it.
    """
    kept = []
    for one in series:
        time = one.log_time.copy()
        outside = [i for i, c in enumerate(one.choices) if c.component in OUTSIDE]
        time[:, outside] = np.nan
        others = [i for i in range(len(one.choices)) if i != one.default]
        rows = np.isfinite(time[:, others]).any(axis=1)
        if rows.any():
            kept.append(
                replace(
                    one, sizes=one.sizes[rows], log_time=time[rows], gain=one.gain[rows], half=one.half[rows],
                    launches=one.launches[rows],
                )
            )  # fmt: skip
    return kept


def expected_gain(rules: Sequence[Rule], series: Sequence[Series]) -> float:
    """Return the geometric mean gain of measured rules over the default, each measured size counted once."""
    total, count = 0.0, 0
    for rule in rules:
        if rule.basis == "measured" and rule.gain is not None:
            total += float(np.log1p(rule.gain)) * rule.sizes
            count += rule.sizes
    return float(np.expm1(total / count)) if count and series else 0.0


def worst_loss(rules: Sequence[Rule], series: Sequence[Series]) -> tuple[float, str]:
    """Return the largest loss against the untouched default (log, 0 = none), and where it is.

    At one size it counts beyond noise; over the sizes of a rule, measured or interpolated, its mean counts as it is.
    """
    worst, where = 0.0, ""
    for rule in rules:
        if rule.gain is not None and -np.log1p(rule.gain) > worst:
            worst = -float(np.log1p(rule.gain))
            sizes = (
                f"from {units.format_bytes(rule.min_bytes)}"
                if rule.max_bytes is None
                else (f"of {units.format_bytes(rule.min_bytes)} to {units.format_bytes(rule.max_bytes)}")
            )
            where = f"{rule.collective} {sizes} on {rule.ranks} ranks {np.exp(worst):.1f}×"
    for one in series:
        own = [
            r
            for r in rules
            if r.basis == "measured" and (r.collective, r.ranks) == (one.collective, one.ranks)
        ]
        for row, nbytes in enumerate(one.sizes.tolist()):
            for rule in own:
                if rule.min_bytes <= nbytes and (rule.max_bytes is None or nbytes <= rule.max_bytes):
                    column = one.choices.index(Choice(rule.algorithm, rule.component, rule.params))
                    loss = -float(one.gain[row, column] + np.nan_to_num(one.half[row, column]))
                    if loss > worst:
                        factor = float(np.exp(-one.gain[row, column]))
                        worst = loss
                        where = f"{one.collective} of {units.format_bytes(nbytes)} on {one.ranks} ranks {factor:.1f}×"
    return worst, where


def only_default(series: Sequence[Series], provider: str) -> list[Rule]:
    """Return rules that leave every measured series to the library."""
    return [
        Rule(
            one.collective, one.ranks, one.ranks_per_node, 0, None, provider, "default", sizes=len(one.sizes),
            launches=int(one.launches.max()),
        )
        for group in pool.shapes(series)
        for one in group
    ]  # fmt: skip
