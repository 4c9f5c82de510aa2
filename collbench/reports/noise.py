"""What an A-against-A comparison says of the machine: its noise, and how many pairs a change needs."""

from statistics import median

from collbench import power
from collbench.units import format_percent
from collbench.verdict import FASTER, SLOWER, Comparison, Rules


def noise(comparison: Comparison, want: float, rules: Rules) -> list[str]:
    """Return sentences on the noise of the machine, for people.

    Args:
        comparison: of a variant with itself.
        want: the change that must be found (0.1 = 10 %).
        rules: threshold and level of the verdicts.
    """
    measured = [c for c in comparison.cells if c.spread is not None]
    if not measured:
        return ["self-test: too few launches in one machine state to say anything of its noise"]
    spreads = sorted(c.spread for c in measured if c.spread is not None)
    alarms = comparison.count(SLOWER) + comparison.count(FASTER)
    middle, worst = format_percent(median(spreads)), format_percent(spreads[-1])
    lines = [f"self-test: {alarms} false alarms in {comparison.compared} cells"]
    lines.append(f"one pair scatters by {middle} in the middle cell, by {worst} in the noisiest")
    wanted = format_percent(want)
    if want <= rules.threshold:
        reason = f"not above the threshold of {format_percent(rules.threshold)}"
        return [*lines, f"a {wanted} change is {reason}: no number of pairs finds it reliably"]
    counts = [
        _count(power.needed(s, want, rules.threshold, rules.alpha)) for s in (median(spreads), spreads[-1])
    ]
    found = f"with {counts[0]} pairs in the middle cell, with {counts[1]} in the noisiest"
    return [*lines, f"a {wanted} change is found 8 times in 10 {found}"]


def _count(number: int | None) -> str:
    return f"more than {power.MAX_COUNT}" if number is None else str(number)
