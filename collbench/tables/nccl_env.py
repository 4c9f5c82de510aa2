"""``NCCL_ALGO`` and ``NCCL_PROTO``: one choice for each collective, whatever the size. Source: NCCL 2.24 and later."""

from collections.abc import Sequence

from collbench import units
from collbench.algorithms.nccl import NATIVE_NAMES
from collbench.errors import UnansweredError
from collbench.records import Rule, Selection
from collbench.tables import Format, header

FUNCTIONS = {
    "bcast": "Broadcast", "reduce": "Reduce", "allgather": "AllGather", "reduce_scatter": "ReduceScatter",
    "allreduce": "AllReduce",
}  # fmt: skip
CANNOT = (
    "sizes and rank counts: only collectives whose whole table agrees are set",
    "a tuner plugin beside it: NCCL_ALGO outranks the plugin",
)


def variables(selection: Selection) -> dict[str, str]:
    """Return NCCL_ALGO and NCCL_PROTO for the collectives with one answer for all sizes and ranks.

    Raises:
        UnansweredError: no collective has one.
    """
    algorithms, protocols = [], []
    for name, function in FUNCTIONS.items():
        rules = [r for r in selection.rules if r.collective == name and r.basis != "unmeasured"]
        choice = _agreed(rules)
        if choice is None:
            continue
        algorithms.append(f"{function}:{NATIVE_NAMES[choice[0]]}")
        if choice[1]:
            protocols.append(f"{function}:{_PROTOCOLS[choice[1]]}")
    if not algorithms:
        raise UnansweredError(
            "NCCL_ALGO knows no sizes, and no collective here has one best algorithm for all: use nccl-tuner"
        )
    found = {"NCCL_ALGO": ";".join(algorithms)}
    return found | ({"NCCL_PROTO": ";".join(protocols)} if protocols else {})


_PROTOCOLS = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}


def _agreed(rules: Sequence[Rule]) -> tuple[str, str] | None:
    choices = {(r.algorithm, str(dict(r.params).get("protocol", ""))) for r in rules}
    if len(choices) != 1:
        return None
    choice = choices.pop()
    return choice if choice[0] in NATIVE_NAMES else None


def render(selection: Selection) -> str:
    """Return a file of export lines."""
    out = [f"# {line}" for line in header.lines(selection, "not expressible", CANNOT)]
    out += [f"export {name}='{value}'" for name, value in variables(selection).items()]
    largest = max((r.max_bytes or 0 for r in selection.rules), default=0)
    out.insert(len(out) - 1, f"# measured up to {units.format_bytes(largest)}")
    return "\n".join(out) + "\n"


def activation(_path: str, selection: Selection) -> dict[str, str]:
    """Return the variables themselves."""
    return variables(selection)


FORMAT = Format(
    name="nccl-env", suffix=".sh", provider="nccl", render=render, activation=activation, cannot=CANNOT,
    summary="NCCL: NCCL_ALGO and NCCL_PROTO where one choice fits all sizes",
)  # fmt: skip
