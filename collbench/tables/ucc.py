"""UCC's tune string: ``coll:range:memory:[team]:score:@algorithm`` joined by ``#``. Checked by grammar only."""

import re

from collbench.records import Rule, Selection
from collbench.tables import Format, header

TOKEN = re.compile(r"[a-z_]+:\d+-(?:\d+|inf):(?:host|cuda|rocm):\[\d+-\d+\]:inf:@[a-z0-9_]+")
CANNOT = ("ranks per node", "anything UCC has not been seen to accept: this text is checked by grammar only")


def tokens(selection: Selection) -> list[str]:
    """Return the tokens of all rules other than the default."""
    memory = str((selection.context.get("memory") or ["host"])[0])
    return [_token(rule, memory) for rule in selection.rules if rule.algorithm != "default"]


def _token(rule: Rule, memory: str) -> str:
    upper = "inf" if rule.max_bytes is None else str(rule.max_bytes)
    team = f"[{rule.ranks}-{rule.ranks_max or rule.ranks}]"
    return f"{rule.collective}:{rule.min_bytes}-{upper}:{memory}:{team}:inf:@{rule.algorithm}"


def render(selection: Selection) -> str:
    """Return a file with one export line."""
    out = [f"# {line}" for line in header.lines(selection, "total bytes", CANNOT)]
    return "\n".join([*out, f"export UCC_TL_UCP_TUNE='{'#'.join(tokens(selection))}'"]) + "\n"


def activation(_path: str, selection: Selection) -> dict[str, str]:
    """Return the variable itself."""
    return {"UCC_TL_UCP_TUNE": "#".join(tokens(selection))}


FORMAT = Format(
    name="ucc", suffix=".sh", provider="ucc", render=render, activation=activation, cannot=CANNOT,
    summary="UCC: tune string (checked by grammar only)",
)  # fmt: skip
