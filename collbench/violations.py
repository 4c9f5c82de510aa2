"""A broken guideline as data: what is slow, by how much, what to use instead."""

from dataclasses import asdict, dataclass
from typing import Any

from collbench.units import format_bytes, format_time


@dataclass(frozen=True, slots=True)
class Violation:
    """A collective that costs more than what could be written instead.

    Attributes:
        rule: composition, portable, size, ranks or chunk.
        collective: what is too slow.
        ranks: number of ranks.
        ranks_per_node: None when unknown.
        nbytes: total bytes.
        dtype: element type.
        op: operator; None where nothing is reduced.
        provider: whose collective.
        algorithm: what was measured.
        instead: what to use, in words: "reduce + bcast", "portable ring", "4 KiB instead of 2 KiB".
        composition: the collectives or the algorithm to use instead.
        time_s: seconds of the collective.
        instead_s: seconds of the composition.
        loss: time_s / instead_s − 1.
        loss_low: lower end of its 95 % interval.
        loss_high: upper end.
        launches: process starts behind it.
    """

    rule: str
    collective: str
    ranks: int
    ranks_per_node: int | None
    nbytes: int
    dtype: str
    op: str | None
    provider: str
    algorithm: str
    instead: str
    composition: tuple[str, ...]
    time_s: float
    instead_s: float
    loss: float
    loss_low: float
    loss_high: float
    launches: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: all fields, ``composition`` as a list, and the sentence."""
        return {**asdict(self), "composition": list(self.composition), "sentence": self.sentence}

    @property
    def sentence(self) -> str:
        """One sentence for people: what is slow, by how much, what to do."""
        return (
            f"{self.collective} of {format_bytes(self.nbytes)} on {self.ranks} ranks takes {format_time(self.time_s)}, "
            f"{self.loss:.0%} more (95 % interval {self.loss_low:.0%} … {self.loss_high:.0%}) than "
            f"{self.instead} with {format_time(self.instead_s)}: {_ADVICE[self.rule].format(self.instead)}."
        )


_ADVICE = {
    "composition": "call {} instead, or choose another algorithm",
    "portable": "its own algorithms can do better, {} shows it",
    "size": "send {}, or choose another algorithm for this size",
    "chunk": "give it {}",
    "ranks": "use {} where the job allows it, or choose another algorithm",
}
