"""Judging two sides cell by cell: slower, faster, same or inconclusive (facts: timing-and-statistics §9)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from collbench import power, ran
from collbench.method import differences
from collbench.pairing import Matched, match
from collbench.sides import Key, Side, cell_id
from collbench.stats import Ratio, benjamini_hochberg, paired_ratio, unpaired_ratio
from collbench.verdict import (
    ADDED,
    FAILED,
    FASTER,
    INCONCLUSIVE,
    MISSING,
    SAME,
    SLOWER,
    Comparison,
    Rules,
    Verdict,
)


def compare(
    base: Side, new: Side, names: Sequence[str], rules: Rules, *, who: str | None = None
) -> Comparison:
    """Return the verdicts of two sides.

    Args:
        base: the base.
        new: what is judged.
        names: columns of the keys.
        rules: thresholds.
        who: name of what is compared within a cell (an algorithm); cells that ``new`` lacks are then no fault.
    """
    failed = dict(new.failed)
    keys = dict.fromkeys([*base.samples, *new.samples, *failed])
    cells = [
        verdict
        for key in keys
        if (verdict := _judge(key, base, new, names, rules, failed.get(key), who)) is not None
    ]
    cells = _confirmed(cells, list(keys), base, new, names, rules)
    remarks = _remarks(cells, environments=who is None)
    left_out = sum(_left_out(key, base, new) for key in keys)
    if left_out:
        remarks.append(
            f"{left_out} cells were measured on one side only, on the other their neighbours agree: not compared; "
            "'collbench run --no-refine' measures every size"
        )
    if who is None:
        cells, findings = _with_algorithms(cells, base, new, names)
        remarks += findings
    return Comparison(
        base.label, new.label, cells, rules,
        differences(list(base.launches.values()), list(new.launches.values())), remarks,
        gate=who is None, started=new.started, host=_host(new),
    )  # fmt: skip


def _with_algorithms(
    cells: Sequence[Verdict], base: Side, new: Side, names: Sequence[str]
) -> tuple[list[Verdict], list[str]]:
    """Return the cells with what was shown to run in them, and sentences on where that differs.

    Names of two libraries do not tell whether their algorithms differ: they stand in the cells only.
    """
    found, changed = [], []
    libraries = [
        {(x.get("library") or {}).get("name") for x in side.launches.values()} for side in (base, new)
    ]
    for cell in cells:
        key = tuple(cell.key[name] for name in names)
        here, there = base.ran.get(key), new.ran.get(key)
        found.append(replace(cell, base_ran=ran.words(here), new_ran=ran.words(there)))
        if libraries[0] == libraries[1] and ran.differ(here, there):
            changed.append((cell.key, ran.words(here), ran.words(there)))
    return found, ran.findings((base.label, new.label), changed)


def _host(side: Side) -> str:
    for line in side.launches.values():
        name = next(iter(line.get("hosts") or ()), None) or (line.get("environment") or {}).get("hostname")
        if name:
            return str(name)
    return ""


def _judge(
    key: Key, base: Side, new: Side, names: Sequence[str], rules: Rules, failure: str | None, who: str | None
) -> Verdict | None:
    name = cell_id(key, names, who)
    facts = dict(zip(names, key, strict=True))
    here, there = new.samples.get(key), base.samples.get(key)
    if failure is not None and who is None:
        return Verdict(name, facts, FAILED, failure)
    if _left_out(key, base, new):
        return None
    if not here:
        return None if who is not None or not there else Verdict(name, facts, MISSING, f"not in {new.label}")
    if not there:
        return None if who is not None else Verdict(name, facts, ADDED, f"not in {base.label}")
    return judge(name, facts, match(there, here), rules)


def _left_out(key: Key, base: Side, new: Side) -> bool:
    """Say whether one side has the cell and the other one needed no measurement of it."""
    here, there = new.samples.get(key), base.samples.get(key)
    return (not here and bool(there) and key in new.agreed) or (
        not there and bool(here) and key in base.agreed
    )


def judge(name: str, facts: Mapping[str, Any], matched: Matched, rules: Rules) -> Verdict:
    """Return the verdict of one cell from the launches that may be compared."""
    verdict = Verdict(
        name, facts, INCONCLUSIVE, paired=matched.paired, state=matched.state, left_out=matched.left_out
    )
    if not matched.base:
        reason = "no two launches ran in the same undisturbed machine state"
        return replace(verdict, reason=reason)
    ratio, equivalence = ratios(matched, rules)
    scatter = power.spread(matched.base, matched.new, paired=matched.paired)
    seen = None
    if scatter is not None:
        seen = power.detectable(scatter, ratio.count, rules.threshold, rules.alpha, paired=matched.paired)
    verdict = replace(
        verdict,
        base_s=median(matched.base),
        new_s=median(matched.new),
        ratio=ratio,
        detectable=seen,
        spread=scatter,
    )
    word, reason = _word(ratio, equivalence, rules, paired=matched.paired, single=not matched.left_out)
    return replace(
        verdict, verdict=word, reason=reason, confirmed=False if word in (SLOWER, FASTER) else None
    )


def ratios(matched: Matched, rules: Rules) -> tuple[Ratio, Ratio]:
    """Return new / base with the 1 − alpha interval, and with the 1 − 2·alpha interval that shows equivalence."""
    function = paired_ratio if matched.paired else unpaired_ratio
    return (
        function(matched.new, matched.base, 1 - rules.alpha),
        function(matched.new, matched.base, 1 - 2 * rules.alpha),
    )


def _word(ratio: Ratio, equivalence: Ratio, rules: Rules, *, paired: bool, single: bool) -> tuple[str, str]:
    up, down = 1 + rules.threshold, 1 / (1 + rules.threshold)
    if ratio.count == 1 and single:
        # one launch a side: the threshold alone, and never a promise that all is well
        return SLOWER if ratio.value >= up else INCONCLUSIVE, "one launch a side, threshold only"
    least = power.least_count(rules.alpha, paired=paired)
    if ratio.count < least:
        unit = "pairs" if paired else "launches a side"
        return INCONCLUSIVE, f"{ratio.count} {unit} in the same state, at least {least} are needed"
    assert ratio.p is not None
    if ratio.p <= rules.alpha and ratio.value >= up:
        return SLOWER, ""
    if ratio.p <= rules.alpha and ratio.value <= down:
        return FASTER, ""
    low, high = equivalence.low, equivalence.high
    if low is not None and high is not None and down < low and high < up:
        return SAME, ""
    return INCONCLUSIVE, "the interval reaches over the threshold"


def _confirmed(
    cells: Sequence[Verdict], keys: Sequence[Key], base: Side, new: Side, names: Sequence[str], rules: Rules
) -> list[Verdict]:
    """Judge suspects again by fresh launches alone, corrected over the suspects (Benjamini–Hochberg).

    A suspect with too few fresh launches for any answer keeps its first one: time that ran out clears nobody.
    """
    by_facts = {tuple(dict(zip(names, key, strict=True)).items()): key for key in keys}
    fresh: dict[int, Verdict] = {}
    for index, cell in enumerate(cells):
        key = by_facts[tuple(cell.key.items())]
        there, here = base.confirm.get(key), new.confirm.get(key)
        if cell.verdict in (SLOWER, FASTER, INCONCLUSIVE) and there and here:
            again = judge(cell.cell, cell.key, match(there, here), rules)
            least = power.least_count(rules.alpha, paired=again.paired)
            if again.ratio is not None and again.ratio.count >= least:
                fresh[index] = again
    changed = [i for i, v in fresh.items() if v.ratio is not None and v.ratio.p is not None]
    adjusted = dict(zip(changed, benjamini_hochberg([fresh[i].ratio.p for i in changed]), strict=True))  # type: ignore[union-attr, misc]  # filtered above
    return [_final(cell, fresh.get(i), adjusted.get(i), rules) for i, cell in enumerate(cells)]


def _final(cell: Verdict, fresh: Verdict | None, adjusted: float | None, rules: Rules) -> Verdict:
    if fresh is None:
        return cell
    if fresh.verdict in (SLOWER, FASTER):
        if adjusted is not None and adjusted <= rules.alpha:
            return replace(fresh, confirmed=True)
        return replace(fresh, verdict=INCONCLUSIVE, confirmed=None, reason="not confirmed over all suspects")
    if fresh.verdict == SAME and cell.verdict in (SLOWER, FASTER):
        return replace(fresh, reason=f"first {cell.verdict}, not found again on fresh launches")
    return fresh


def _remarks(cells: Collection[Verdict], *, environments: bool) -> list[str]:
    measured = [c for c in cells if c.verdict in (SLOWER, FASTER, SAME, INCONCLUSIVE)]
    found = []
    if any(c.verdict in (SLOWER, FASTER) and not c.confirmed for c in measured):
        paired = all(c.paired for c in measured)
        how = "" if paired else ": the sides were not measured interleaved"
        words = "ab --resume RUN --confirm" if paired and environments else "ab --confirm"
        found.append(
            f"changes are unconfirmed{how}; 'collbench {words}' measures suspects again on fresh launches"
        )
    unknown = sum(c.state == "unknown" for c in measured)
    if unknown:
        found.append(
            f"the machine state of {unknown} cells is unknown, no probe was recorded: a state change would look "
            "like a change of the library"
        )
    left_out = sum(c.left_out for c in measured)
    if left_out:
        found.append(
            f"{left_out} cell times were left out: disturbed launches, or another machine state than their partners"
        )
    seen = sorted(c.detectable for c in measured if c.detectable is not None)
    if seen:
        found.append(
            f"with these launches a {median(seen):.1%} slow-down would have been seen in the middle cell, "
            f"{seen[-1]:.1%} in the noisiest (8 times in 10)"
        )
    return found
