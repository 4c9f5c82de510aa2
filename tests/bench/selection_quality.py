"""Quality of decisions on real clusters' rows: rules and regret per system and collective.

Usage: python tests/bench/selection_quality.py [FOLDER of the shared data]. Prints, for the library's own algorithms, the
whole table, leave-one-rank-count-out, the simple rules and the bound; then where ring overtakes tree on the NCCL rows.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from collbench import candidates, guidance, heldout, screening, selection
from collbench.cli.recommend import quality_table
from collbench.decision import Policy
from collbench.reports import guidance_text
from collbench.results import COLUMNS

FORCED = ("nccl_ring", "nccl_tree")
"""In the rows noted vsnccl only these were really forced; the other nccl_* repeat NCCL's own choice."""
EXCEPT = "raben is modified|rail 4|1200"
"""Runs under other settings or with modified algorithms (README of the data)."""


def load(path: Path) -> pd.DataFrame:
    """Return the rows in the columns of ``results.COLUMNS``, with a column ``system``."""
    raw = pd.read_csv(path, keep_default_na=False)
    raw = raw[~raw["notes"].str.contains(EXCEPT)]
    nccl = (raw["notes"] == "vsnccl").to_numpy()
    raw = raw[(raw["gpu"] == "no") | nccl]
    nccl = (raw["notes"] == "vsnccl").to_numpy()
    name = raw["algo"].str.removeprefix("allreduce_")
    own = raw["algo"].str.endswith("_ompi").to_numpy()
    hier = name.str.startswith("hier").to_numpy()
    provider = np.where(nccl, np.where(hier, "composition", "nccl"), np.where(own, "openmpi", "portable"))
    words = name.str.removesuffix("_ompi").str.removeprefix("nccl_").to_numpy()
    words = np.where(nccl & ~hier & ~name.isin(FORCED).to_numpy(), "default", words)
    made = pd.DataFrame(
        {
            "run": raw["run"], "launch": 0, "collective": raw["collective"].str.lower(),
            "ranks": raw["ranks"].astype(int), "ranks_per_node": raw["ppn"].astype(int),
            "nbytes": raw["bytes"].astype(int), "dtype": "int32", "in_place": False, "memory": "host", "groups": 1,
            "provider": provider, "algorithm": words, "params": "{}", "nodes": raw["nodes"].astype(int),
            "evidence_status": "unknown", "rank_reduction": "max", "sync": "barrier", "rotation": "none", "timer": "pico",
            "library": raw["mpi_lib"], "time_s": raw["median_us"].astype(float) * 1e-6, "iterations": 1,
            "oversubscribed": False, "emulated": False, "source": "pico",
            "system": np.where(nccl, "mare_nostrum NCCL", raw["system"]),
        }
    )  # fmt: skip
    for column in ("blocks_s", "warnings"):
        made[column] = [[] for _ in range(len(made))]
    made["percentiles_s"] = [{} for _ in range(len(made))]
    # nvlstree followed ring or NCCL's own choice, nobody knows which.
    made = made[~name.str.endswith("nvlstree").to_numpy()]
    return made.reindex(columns=[*COLUMNS, "system"])


def main() -> None:
    """Print all tables."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2].parent / "shared")
    rows = load(folder / "data/pico/pico_mn5_leonardo.csv")
    console = Console(width=130)
    library = rows[rows["provider"].isin(["openmpi", "nccl"])]
    policy = Policy()
    for system, part in library.groupby("system"):
        provider = "nccl" if "NCCL" in str(system) else "openmpi"
        console.print(f"\n{system}: all collectives", style="bold")
        console.print(quality_table(heldout.evaluate(part, policy, provider)))
        for name, own in part.groupby("collective"):
            found = heldout.whole(candidates.build(own), policy)
            ours, argmin = found[0], found[1]
            console.print(
                f"  {name}: regret {ours.mean:.2%} (p95 {ours.p95:.1%}, worst {ours.worst:.0%}), "
                f"{ours.rules} rules, per-size argmin {argmin.rules}"
            )
    everything = [s for _, part in library.groupby("system") for s in candidates.build(part)]
    ours, argmin = heldout.whole(everything, policy)[:2]
    console.print(
        f"\nwhole table, all systems: regret {ours.mean:.2%}, {ours.rules} rules of {argmin.rules} "
        f"({ours.rules / argmin.rules:.0%})", style="bold",
    )  # fmt: skip
    found = [
        q
        for _, part in library.groupby("system")
        for q in heldout.rank_counts(candidates.build(part), "openmpi")
    ]
    ours = [q for q in found if q.method == "this table"]
    cells = sum(q.cells for q in ours)
    mean = np.expm1(sum(np.log1p(q.mean) * q.cells for q in ours) / cells)
    console.print(f"leave one rank count out, all systems: {1 + mean:.3f} over {cells} cells")
    nccl_story(rows[rows["system"] == "mare_nostrum NCCL"], console)


def nccl_story(rows: pd.DataFrame, console: Console) -> None:
    """Print ring against tree, then with the composition."""
    forced = rows[(rows["provider"] == "nccl") & (rows["algorithm"] != "default")]
    console.print("\nNCCL allreduce, ring against tree only", style="bold")
    console.print(
        guidance_text.render(guidance.guide(forced, "nccl")), markup=False, highlight=False, soft_wrap=True
    )
    decided = selection.select(forced, provider="nccl", policy=Policy(allowance=0.0))
    for rule in decided.rules:
        console.print(
            f"  {rule.ranks} ranks: {rule.min_bytes} … {rule.max_bytes} {rule.algorithm} ({rule.basis})"
        )
    console.print("\nwith NCCL's own choice and the hierarchical composition", style="bold")
    console.print(
        guidance_text.render(guidance.guide(rows, "nccl")), markup=False, highlight=False, soft_wrap=True
    )
    assert screening.main_provider(rows) == "nccl"


if __name__ == "__main__":
    main()
