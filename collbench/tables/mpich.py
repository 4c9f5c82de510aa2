"""MPICH's selection table: a JSON tree merged over the defaults that the installed libmpi carries.

Keys are operators in file order, the first that holds wins, chains end in ``=any``; a file that lacks a collective aborts
MPI_Init, so only the tuned branches of the library's own table are replaced. Guards keep the default for operators,
buffers and communicators that an algorithm cannot serve. Source: MPICH 5.0 csel.c, coll_algorithms.txt.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collbench import algorithms, installation
from collbench.errors import UnansweredError
from collbench.records import ITEMSIZE, Rule, Selection
from collbench.tables import Format
from collbench.tables.coverage import communicators

Tree = dict[str, Any]

LARGEST = 2**31 - 1
"""Numbers are read by atoi."""
WORDS = {"reduce_scatter": "reduce_scatter_block", "reduce_scatter_v": "reduce_scatter"}
"""Collective → MPICH's word where the two differ."""
AVERAGE = ("allreduce", "reduce", "bcast", "alltoall")
"""Collectives keyed on ``avg_msg_size``; for the others it aborts at the call."""
ELEMENTS = ("gather", "scatter")
"""Collectives whose ``total_msg_size`` counts elements, not bytes."""
COMMUTATIVE = ("ring", "k_reduce_scatter_allgather", "recursive_multiplying", "smp", "pairwise", "recursive_halving",
               "tree", "recexch")  # fmt: skip
REDUCING = ("allreduce", "reduce", "reduce_scatter", "reduce_scatter_v")
_SINGLE = {"single_phase_recv": 0}
PARAMETERS: dict[tuple[str, str], dict[str, int | str]] = {
    ("allreduce", "tree"): {"tree_type": "kary", "k": 2, "chunk_size": 0, "buffer_per_child": 0},
    ("allreduce", "recexch"): {"k": 2, **_SINGLE},
    ("allreduce", "recursive_multiplying"): {"k": 2},
    ("allreduce", "k_reduce_scatter_allgather"): {"k": 2, **_SINGLE},
    ("bcast", "tree"): {"tree_type": "kary", "k": 2},
    ("bcast", "pipelined_tree"): {
        "tree_type": "kary", "k": 2, "is_non_blocking": 1, "chunk_size": 8192, "recv_pre_posted": 0,
    },
    ("barrier", "k_dissemination"): {"k": 2},
    ("barrier", "recexch"): {"k": 2, **_SINGLE},
    ("allgather", "k_brucks"): {"k": 2},
    ("allgather", "recexch_doubling"): {"k": 2, **_SINGLE},
    ("allgather", "recexch_halving"): {"k": 2, **_SINGLE},
    ("alltoall", "k_brucks"): {"k": 2, "buffer_per_phase": 0},
    ("alltoall", "scattered"): {"batch_size": 32, "bblock": 32},
    ("alltoallv", "scattered"): {"batch_size": 32, "bblock": 32},
}  # fmt: skip
"""Parameters that a leaf must name, with the library's defaults."""
NATIVE_PARAMETERS = {"radix": "k", "chunk_bytes": "chunk_size"}
CANNOT = (
    "thread level: single-threaded programs on one node bypass the table unless the settings above are in force",
    "data type: gather and scatter are keyed on elements of the measured type",
)


def defaults(libmpi: Path) -> Tree:
    """Return the table of MPIR algorithms that a libmpi carries.

    Raises:
        UnansweredError: the file cannot be read or carries none.
    """
    try:
        data = libmpi.read_bytes()
    except OSError as error:
        raise UnansweredError(f"cannot read {libmpi}: {error.strerror}") from None
    for match in re.finditer(rb'\{\s*"collective=', data):
        text = data[match.start() : data.find(b"\0", match.start())]
        try:
            tree: Tree = json.loads(text)
        except ValueError:
            continue
        if b"algorithm=MPIR_" in text and "collective=allreduce" in tree:
            return tree
    raise UnansweredError(f"{libmpi} carries no table of MPIR algorithms: is it an MPICH 4 or later?")


def render(selection: Selection) -> str:
    """Return the file for the MPICH of this environment."""
    found = installation.discover()
    if found.library != "mpich" or found.libmpi is None:
        raise UnansweredError(
            f"an MPICH table is merged over the installed library's defaults, but {found.library} is loaded here: "
            "run 'collbench recommend' in the MPICH environment that will use the table"
        )
    return json.dumps(merge(selection, defaults(Path(found.libmpi))), indent=1) + "\n"


def merge(selection: Selection, own: Tree) -> Tree:
    """Return the library's table with the tuned branches replaced.

    Raises:
        UnansweredError: a rule that the table cannot hold.
    """
    merged = dict(own)
    dtypes = tuple(selection.context.get("dtype") or ())
    for name in dict.fromkeys(rule.collective for rule in selection.rules):
        rules = [r for r in selection.rules if r.collective == name]
        key = f"collective={WORDS.get(name, name)}"
        if key not in own or all(r.algorithm == "default" for r in rules):
            continue
        branch = own[key]
        fallback: Tree = branch.get("comm_type=intra", dict(branch))
        intra: Tree = {}
        for _first, last, span in communicators(rules):
            tree = _sizes(name, span, fallback, dtypes) if span else fallback
            intra["comm_size=any" if last is None else f"comm_size<={last}"] = tree
        merged[key] = {**branch, "comm_type=intra": intra} if "comm_type=intra" in branch else intra
    return merged


def _sizes(name: str, rules: Sequence[Rule], fallback: Tree, dtypes: Sequence[str]) -> Tree:
    if name == "barrier":
        return _leaf(rules[0], fallback)
    operator = "avg_msg_size" if name in AVERAGE else "total_msg_size"
    tree: Tree = {f"{operator}<=0": fallback}
    for rule in rules:
        last = None if rule.max_bytes is None else _native(rule, rule.max_bytes, dtypes)
        if last is None or last > LARGEST:
            tree[f"{operator}=any"] = _leaf(rule, fallback)
            return tree
        tree[f"{operator}<={last}"] = _leaf(rule, fallback)
    tree[f"{operator}=any"] = fallback
    return tree


def _native(rule: Rule, nbytes: int, dtypes: Sequence[str]) -> int:
    """Return a total size in the unit of the collective's operator."""
    if rule.collective == "alltoall":
        return nbytes // rule.ranks
    if rule.collective not in ELEMENTS:
        return nbytes
    sizes = {ITEMSIZE[dtype] for dtype in dtypes if dtype in ITEMSIZE}
    if len(sizes) != 1 or not set(dtypes) <= ITEMSIZE.keys():
        raise UnansweredError(
            f"an MPICH table keys {rule.collective} on elements, and the element size is not known from data type "
            f"{', '.join(dtypes) or 'unknown'}: decide from runs of one data type"
        )
    return nbytes // sizes.pop()


def _leaf(rule: Rule, fallback: Tree) -> Tree:
    """Return the leaf of a rule inside the guards of its algorithm."""
    if rule.algorithm == "default":
        return fallback
    row = algorithms.find("mpich", rule.collective, rule.algorithm)
    if row.component == "posix":
        raise UnansweredError(
            f"{rule.collective} {rule.algorithm} lives in MPICH's shared-memory layer, which this table cannot choose"
        )
    word = WORDS.get(rule.collective, rule.collective)
    values = dict(PARAMETERS.get((rule.collective, rule.algorithm), {}))
    for key, value in rule.params:
        native = NATIVE_PARAMETERS.get(key, key)
        if native not in values and (key, value) in row.params:
            continue  # what the library does by itself
        if native not in values:
            raise UnansweredError(f"{rule.collective} {rule.algorithm}: an MPICH table cannot hold {key}")
        values[native] = value
    title = f"algorithm=MPIR_{word.capitalize()}_intra_{rule.algorithm}"
    tree: Tree = {title: {f"{k}={v}": {} for k, v in values.items()}}
    if "count_at_least_pow2" in row.limits:
        tree = {"count<pow2": fallback, "count=any": tree}
        tree = {"is_op_built_in=yes": tree, "is_op_built_in=no": fallback}
    if rule.collective in REDUCING and rule.algorithm in COMMUTATIVE:
        tree = {"is_commutative=yes": tree, "is_commutative=no": fallback}
    if "not_in_place" in row.limits:
        tree = {"is_sendbuf_inplace=no": tree, "is_sendbuf_inplace=yes": fallback}
    if rule.algorithm == "smp":
        tree = {"comm_hierarchy=parent": tree, "comm_hierarchy=any": fallback}
    return tree


def activation(path: str, selection: Selection) -> dict[str, str]:
    """Return the environment that makes MPICH read the file in MPI_Init, with the settings it needs."""
    needed: Mapping[str, str] = selection.context.get("needs", {})
    return {"MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": path, **needed}


FORMAT = Format(
    name="mpich", suffix=".json", provider="mpich", render=render, activation=activation, cannot=CANNOT,
    summary="MPICH 5: JSON merged over the installed library's own table",
)  # fmt: skip
