"""The table of collbench's own NCCL tuner plugin: rules by bytes, ranks and nodes; where none matches NCCL is left alone.

Grammar: ``collbench.backends.plugin.grammar`` and docs/nccl.md.
"""

from collbench.algorithms.nccl import TUNABLE, protocols
from collbench.backends.plugin import build, grammar
from collbench.backends.plugin.grammar import Range, TunerRule
from collbench.records import Rule, Selection
from collbench.tables import Format, header

UNIT = "total bytes: the vector; for allgather and reduce_scatter the sum over all ranks"
CANNOT = (
    "compositions of several calls (provider portable): they need application code",
    "symmetric kernels and NCCL's own protocol under a forced algorithm",
)


def render(selection: Selection) -> str:
    """Return the file: only what differs from NCCL's own choice has a rule."""
    rules, left_out = [], []
    for rule in selection.rules:
        reason = _cannot(rule)
        if reason:
            left_out.append(
                f"left out: {rule.collective} at {rule.ranks} ranks from {rule.min_bytes} B: {reason}"
            )
        elif rule.algorithm != "default":
            rules.append(_rule(rule))
    version = selection.context.get("library_version")
    measured = {"nccl": str(version)} if isinstance(version, str) and version else {}
    return grammar.render(rules, measured, [*header.lines(selection, UNIT, CANNOT), *dict.fromkeys(left_out)])


def _cannot(rule: Rule) -> str | None:
    if rule.algorithm == "default":
        return None
    if rule.provider != "nccl":
        return f"{rule.algorithm} is {rule.provider}'s, it needs application code"
    if rule.collective not in TUNABLE:
        return "NCCL has no choice of algorithm there"
    protocol = str(dict(rule.params).get("protocol", ""))
    if protocol not in protocols(rule.collective, rule.algorithm):
        return (
            f"{rule.algorithm} with protocol {protocol or 'of NCCL’s choice'} cannot be asked for by a plugin"
        )
    return None


def _rule(rule: Rule) -> TunerRule:
    params = dict(rule.params)
    last = rule.ranks_max or rule.ranks
    nodes: Range = grammar.ANY
    if rule.ranks_per_node:
        nodes = -(-rule.ranks // rule.ranks_per_node), -(-last // rule.ranks_per_node)
    channels = params.get("channels")
    return TunerRule(
        rule.collective,
        (rule.min_bytes, rule.max_bytes),
        (rule.ranks, last),
        nodes,
        rule.algorithm,
        str(params["protocol"]),
        None if channels is None else int(channels),
    )


def activation(path: str, _selection: Selection) -> dict[str, str]:
    """Return the environment that makes NCCL load the plugin ('collbench plugin build') with the table."""
    return build.activation(build.default_path(), path)


FORMAT = Format(
    name="nccl-tuner", suffix=".txt", provider="nccl", render=render, activation=activation, cannot=CANNOT,
    summary="NCCL: collbench's own tuner plugin; NCCL's choice stays where no rule matches",
)  # fmt: skip
