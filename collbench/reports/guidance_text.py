"""The guidance as a short page for a trainer: words first, numbers beside them."""

from collections.abc import Iterable

from collbench import units
from collbench.advice import CONTEXT
from collbench.guidance import CLASSES, Guidance, Use, Verdict

_WORDS = {
    "holds": "holds", "holds_from": "holds from {size} on", "holds_up_to": "holds up to {size}",
    "holds_partly": "holds for some sizes only", "does_not_hold": "does not hold here",
}  # fmt: skip


def render(page: Guidance) -> str:
    """Return the page as plain text."""
    lines: list[str] = []
    for title, first, last in CLASSES:
        uses = [u for u in page.uses if u.ranks >= first and (last is None or u.ranks <= last)]
        verdicts = [v for v in page.verdicts if v.ranks >= first and (last is None or v.ranks <= last)]
        if uses or verdicts:
            lines += ["", f"Guidance for {title} (measured)", *_uses(uses), *_verdicts(verdicts)]
    if page.bands:
        lines += ["", "Who leads where, among forced algorithms (measured)", *_bands(page)]
    lines += ["", "Context from published clusters, not part of the verdicts:"]
    lines += [f"  {finding} [{source}]" for source, finding in CONTEXT]
    return "\n".join(lines).lstrip("\n") + "\n"


def _uses(uses: Iterable[Use]) -> list[str]:
    lines = []
    for use in uses:
        gain = "" if use.gain is None else f", {use.gain:+.0%} over the default"
        code = " (needs application code)" if use.provider in ("portable", "composition") else ""
        lines.append(
            f"  {use.collective}, {use.ranks} ranks, {use.size_class} messages: {use.choice}{code}{gain}; "
            f"within {use.loss:.1%} of the best over {use.cells} sizes"
        )
    return lines


def _verdicts(verdicts: Iterable[Verdict]) -> list[str]:
    lines = []
    for v in verdicts:
        size = "" if v.from_bytes is None else units.format_bytes(v.from_bytes)
        gain = "" if v.gain is None else f", {v.gain:+.0%} against the default"
        lines.append(
            f'  "{v.text}" at {v.ranks} ranks: {_WORDS[v.verdict].format(size=size)}. Followed blindly it costs '
            f"{1 + v.cost_mean:.2f}× on average, {1 + v.cost_worst:.2f}× at {units.format_bytes(v.worst_bytes)}"
            f"{gain} ({v.cells} sizes)"
        )
    return lines


def _bands(page: Guidance) -> list[str]:
    rows: dict[tuple[str, int], list[str]] = {}
    for band in page.bands:
        span = f"{units.format_bytes(band.from_bytes)} … {units.format_bytes(band.to_bytes)}"
        rows.setdefault((band.collective, band.ranks), []).append(f"{band.leader} {span}")
    return [f"  {name}, {ranks} ranks: {'; '.join(parts)}" for (name, ranks), parts in rows.items()]
