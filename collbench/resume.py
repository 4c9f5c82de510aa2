"""Going on with a run file: what was asked for, and what is already there."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collbench.errors import UsageError
from collbench.plan import unplaced
from collbench.profile import Profile, Sampling, Sweep
from collbench.records import Case
from collbench.refinement import AGREE
from collbench.request import RunOptions
from collbench.runfile import RunWriter, parse_lines


@dataclass(frozen=True)
class Job:
    """A run to do, or to go on with.

    Attributes:
        profile: with the command line's options applied.
        options: the command line.
        output: the run file to append to; None = a new one.
        first_launch: number of the next launch.
        done: (repetition, variant, case without its ranks per node) already in the file.
        evidence: proof key → evidence already found.
    """

    profile: Profile
    options: RunOptions
    output: Path | None = None
    first_launch: int = 0
    done: frozenset[tuple[int, str | None, Case]] = frozenset()
    evidence: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def load(path: Path, budget_s: float | None = None) -> Job:
    """Return the job that ``path`` holds, with all its finished cells counted as done.

    Launches are never mixed: what is measured from now on gets new launch numbers.

    Raises:
        UsageError: not a run file of ``collbench run``.
    """
    lines, _ = parse_lines(path.read_bytes(), path)
    request = lines[0].get("request")
    if not request:
        raise UsageError(
            f"{path} does not say how it was made (imported?): only runs of 'collbench run' can go on"
        )
    repair(path)
    repetition: dict[int, tuple[int, str | None]] = {}
    done = set()
    evidence: dict[str, Mapping[str, Any]] = {}
    for line in lines:
        if line["kind"] == "launch":
            repetition[line["launch"]] = (line.get("repetition", 0), line.get("variant"))
        elif _is_done(line) and line.get("launch") in repetition:
            done.add((*repetition[line["launch"]], unplaced(Case.from_json(line["case"]))))
        elif line["kind"] == "proof":
            evidence[line["key"]] = {**line["evidence"], "effective": line["effective"]}
    options = options_of(request["options"])
    profile = profile_of(request["profile"])
    if budget_s is not None:
        profile = replace(profile, budget_s=budget_s)
    return Job(profile, options, path, max(repetition, default=-1) + 1, frozenset(done), evidence)


def _is_done(line: Mapping[str, Any]) -> bool:
    """Say whether a line ends its case for good; one left out for lack of time is measured now."""
    return line["kind"] in ("cell", "failed") or (line["kind"] == "skipped" and line.get("reason") == AGREE)


def repair(path: Path) -> None:
    """End a torn last line, so that what is appended starts on a line of its own."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")
    RunWriter(path).close()


def options_of(flat: Mapping[str, Any]) -> RunOptions:
    """Return the options that a run line holds; ones that this version does not know are left out."""
    known = RunOptions.__dataclass_fields__
    values: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in flat.items() if k in known
    }
    return RunOptions(**values)


def profile_of(flat: Mapping[str, Any]) -> Profile:
    """Return the profile that a run line holds."""
    sweeps = []
    for sweep in flat["sweeps"]:
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in sweep.items()}
        sweeps.append(Sweep(**values))
    return Profile(**{**flat, "sweeps": tuple(sweeps), "sampling": Sampling(**flat["sampling"])})
