"""What the environment of a launch must hold to force an algorithm, for each library. Pure: no MPI is touched.

Open MPI 5 and MPICH (its device layer included) switch inside the process; what still has to be set at launch is
here. ``default`` never needs anything: it is the user's untouched stack.
"""

import os
from collections.abc import Mapping

from collbench import algorithms, components
from collbench.algorithms import Version, intelmpi
from collbench.records import Case

Settings = tuple[tuple[str, str], ...]

DYNAMIC_RULES = "OMPI_MCA_coll_tuned_use_dynamic_rules"
MONITORING = "OMPI_MCA_pml_monitoring_enable"
LAYERS = "OMPI_MCA_pml"


def settings(case: Case, library: str, version: Version | None) -> Settings:
    """Return the variables that this case needs at launch, sorted; empty = the untouched environment."""
    if case.algorithm == "default" or case.provider != library:
        return ()
    if library == "openmpi":
        # 4.1 refuses to switch dynamic rules on after the component has opened.
        return ((DYNAMIC_RULES, "1"),) if version is not None and version < (5,) else ()
    if library == "intelmpi":
        row = algorithms.find("intelmpi", case.cell.collective, case.algorithm)
        return ((intelmpi.variable(case.cell.collective), str(row.native_id)),)
    return ()


def merge(by_settings: Mapping[Settings, list[list[Case]]]) -> dict[Settings, list[list[Case]]]:
    """Put cases of different settings into one launch where the settings do not touch the same variable.

    Intel MPI's preset 3 of allreduce and preset 3 of bcast share a launch; two presets of one collective cannot.
    The untouched environment always keeps its own launch.
    """
    merged: dict[Settings, list[list[Case]]] = {}
    for wanted, lists in by_settings.items():
        home = next((s for s in merged if s and wanted and _disjoint(s, wanted)), None)
        if home is None:
            merged.setdefault(wanted, []).extend(lists)
        else:
            merged[tuple(sorted({**dict(home), **dict(wanted)}.items()))] = [*merged.pop(home), *lists]
    return merged


def _disjoint(a: Settings, b: Settings) -> bool:
    there = dict(a)
    return all(
        there.get(name, value) == value and (name not in there or _harmless(name)) for name, value in b
    )


def _harmless(name: str) -> bool:
    """Say whether two cases may share this variable when its value is the same."""
    return name == DYNAMIC_RULES


def common_settings(library: str, version: Version | None, virtual_nodes: int | None) -> dict[str, str]:
    """Return what every launch of a run gets: virtual nodes where the library can emulate them."""
    del version
    if virtual_nodes and library == "mpich":
        return {"MPIR_CVAR_NUM_CLIQUES": str(virtual_nodes), "MPIR_CVAR_CLIQUES_BY_BLOCK": "1"}
    return {}


def proof_settings(
    library: str, version: Version | None, environ: Mapping[str, str] = os.environ
) -> dict[str, str] | None:
    """Return the environment of the untimed proof launch; None = proofs run inside the measuring launch.

    Open MPI counts messages per destination only with its monitoring layer, which would slow the timed calls, and names
    the component that serves a communicator only in its log. Where the user names the layers below (``pml``), the
    monitoring layer has to stand in that list.
    """
    if library != "openmpi":
        return None
    found = {MONITORING: "1", components.VARIABLE: components.LEVEL}
    if version is not None and version < (5,):
        found[DYNAMIC_RULES] = "1"
    layers = environ.get(LAYERS, "")
    if layers and not layers.startswith("^") and "monitoring" not in layers.split(","):
        found[LAYERS] = f"{layers},monitoring"
    return found
