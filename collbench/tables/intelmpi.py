"""Intel MPI's environment: ``I_MPI_ADJUST_<COLL>="<preset>:<from>-<to>;…"``.

Both limits inclusive; sizes outside all ranges go to the nearest range, not to the library's own choice. The reference also
has ``@<ranks>-<ranks>``, but with it 2021.18 ignores the sizes and runs the last range at every size, so it is never
written. Traced on 2021.18 for allreduce (tests/process/test_tables_libraries.py).
"""

import shlex

from collbench import algorithms
from collbench.algorithms.intelmpi import variable
from collbench.errors import UnansweredError
from collbench.records import Rule, Selection
from collbench.tables import Format, header

UNIT = "bytes as Intel MPI counts them: total bytes (checked for allreduce only)"
LARGEST = 2**31 - 1
CANNOT = (
    "rank count (sizes are ignored where one is given), ranks per node or placement",
    "thread level, memory kind, data type",
    "the library's own choice for some sizes of a collective: sizes outside all ranges go to the nearest range",
)


def variables(selection: Selection) -> dict[str, str]:
    """Return variable → value for every collective with a rule other than the default.

    Raises:
        UnansweredError: the rules differ between rank counts, or leave a measured size to the library.
    """
    found: dict[str, str] = {}
    for name in sorted({r.collective for r in selection.rules if r.algorithm != "default"}):
        own = [r for r in selection.rules if r.collective == name]
        if any(r.algorithm == "default" and r.basis == "measured" for r in own):
            raise UnansweredError(
                f"{name}: I_MPI_ADJUST cannot leave some sizes to the library; decide without the default"
            )
        by_ranks: dict[tuple[int, int | None], list[str]] = {}
        for rule in own:
            if rule.algorithm != "default":
                by_ranks.setdefault((rule.ranks, rule.ranks_per_node), []).append(_range(rule))
        values = {";".join(ranges) for ranges in by_ranks.values()}
        if len(values) > 1:
            raise UnansweredError(
                f"{name}: the rules differ between rank counts or ranks per node, which I_MPI_ADJUST cannot tell apart; "
                "choose one rank count with --ranks"
            )
        found[variable(name)] = values.pop()
    return dict(sorted(found.items()))


def _range(rule: Rule) -> str:
    if rule.params:
        raise UnansweredError(f"{rule.collective} {rule.algorithm}: I_MPI_ADJUST cannot hold parameters")
    number = algorithms.find("intelmpi", rule.collective, rule.algorithm).native_id
    last = LARGEST if rule.max_bytes is None else min(rule.max_bytes, LARGEST)
    return f"{number}:{rule.min_bytes}-{last}"


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
    keeps_default=False,
    summary="Intel MPI: I_MPI_ADJUST_* ranges",
)  # fmt: skip
