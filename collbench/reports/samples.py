"""The cell lines of a run as reports look at them: filtered, with what ran as something else set apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from collbench.records import Case
from collbench.results import Run


@dataclass(frozen=True, slots=True)
class Filter:
    """Which cells to look at; an empty tuple means all.

    Attributes:
        collectives: names of collectives.
        ranks: rank counts.
        algorithms: algorithm words, with or without parameters (``ring``, ``ring[segment_bytes=1024]``).
    """

    collectives: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    algorithms: tuple[str, ...] = ()

    def wants(self, case: Case) -> bool:
        """Say whether the case is asked for."""
        return self.admits(case.cell.collective, case.cell.ranks, case.algorithm, case.label)

    def admits(self, collective: str, ranks: int, *algorithms: str) -> bool:
        """Say whether the collective, the rank count and one of the algorithm's words are asked for."""
        return (
            (not self.collectives or collective in self.collectives)
            and (not self.ranks or ranks in self.ranks)
            and (not self.algorithms or bool(set(algorithms) & set(self.algorithms)))
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """One cell line of a run file.

    Attributes:
        case: what was asked for.
        launch: launch number.
        line: the whole line.
        about: the launch line; empty when the file has none.
    """

    case: Case
    launch: int
    line: Mapping[str, Any]
    about: Mapping[str, Any]

    @property
    def time_s(self) -> float:
        """Time of one call in seconds."""
        return float(self.line["time_s"])

    @property
    def blocks_s(self) -> Sequence[float]:
        """Block medians in seconds, in the order measured; empty when imported."""
        return self.line.get("blocks_s") or ()

    @property
    def state(self) -> str | None:
        """Machine state by the launch's probe; None when unknown."""
        return (self.about.get("probe") or {}).get("state")

    @property
    def contradicted(self) -> bool:
        """Whether something else than the requested algorithm was shown to have run."""
        return (self.line.get("evidence") or {}).get("status") == "contradicted"


@dataclass(frozen=True, slots=True)
class Samples:
    """A run's cell lines, sorted into those that can be shown and those that cannot.

    Attributes:
        usable: lines whose algorithm ran, as far as is known.
        contradicted: lines that were shown to have run as something else.
        broken: lines without an indispensable field.
    """

    usable: list[Sample] = field(default_factory=list)
    contradicted: list[Sample] = field(default_factory=list)
    broken: int = 0


def samples(run: Run, only: Filter | None = None) -> Samples:
    """Return the cell lines of a run that the filter wants."""
    usable: list[Sample] = []
    contradicted: list[Sample] = []
    broken = 0
    for line in run.cells:
        try:
            case, time_s = Case.from_json(line["case"]), float(line["time_s"])
        except (KeyError, TypeError, ValueError, AttributeError):
            broken += 1
            continue
        if not time_s > 0:
            broken += 1
        elif only is None or only.wants(case):
            number = line.get("launch", 0)
            sample = Sample(case, number, line, run.launches.get(number, {}))
            (contradicted if sample.contradicted else usable).append(sample)
    return Samples(usable, contradicted, broken)
