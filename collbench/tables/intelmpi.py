"""Intel MPI's environment: ``I_MPI_ADJUST_<COLL>="<preset>:<from>-<to>@<ranks>-<ranks>;…"``.

Both limits inclusive, matched in written order, the rest is the library's own choice. Source: Intel MPI reference;
ranges checked cell by cell on 2021.18. Sizes are checked for allreduce only.
"""

import shlex

from collbench import algorithms
from collbench.errors import UnansweredError
from collbench.forcing import intel_variable
from collbench.records import Rule, Selection
from collbench.tables import Format, header

UNIT = "bytes as Intel MPI counts them: total bytes (checked for allreduce only)"
LARGEST = 2**31 - 1
CANNOT = ("ranks per node or placement", "thread level, memory kind, data type")


def variables(selection: Selection) -> dict[str, str]:
    """Return variable → value for every collective with a rule other than the default."""
    found: dict[str, list[str]] = {}
    for rule in selection.rules:
        if rule.algorithm != "default":
            found.setdefault(intel_variable(rule.collective), []).append(_range(rule))
    return {name: ";".join(ranges) for name, ranges in sorted(found.items())}


def _range(rule: Rule) -> str:
    if rule.params:
        raise UnansweredError(f"{rule.collective} {rule.algorithm}: I_MPI_ADJUST cannot hold parameters")
    number = algorithms.find("intelmpi", rule.collective, rule.algorithm).native_id
    last = LARGEST if rule.max_bytes is None else min(rule.max_bytes, LARGEST)
    return f"{number}:{rule.min_bytes}-{last}@{rule.ranks}-{rule.ranks_max or rule.ranks}"


def render(selection: Selection) -> str:
    """Return a file of export lines for a shell."""
    lines = [f"# {line}" for line in header.lines(selection, UNIT, CANNOT)]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables(selection).items()]
    return "\n".join(lines) + "\n"


def activation(_path: str, selection: Selection) -> dict[str, str]:
    """Return the variables themselves: nothing is read from the file."""
    return variables(selection)


FORMAT = Format(
    name="intelmpi", suffix=".sh", provider="intelmpi", render=render, activation=activation, cannot=CANNOT,
    summary="Intel MPI: I_MPI_ADJUST_* ranges",
)  # fmt: skip
