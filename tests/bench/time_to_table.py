"""Time to a table and its quality: collbench's race against one mpirun per algorithm, in one run.

    python tests/bench/time_to_table.py FOLDER [--quick] [--max-minutes 25] [--collectives allreduce] [--ranks 2,4,8]

Every measurement is a file in FOLDER; a second start goes on where the first ended (after Ctrl-C too), and prints what
there is. Three methods take turns over the rank counts, so that the machine's states hit all of them:

* race: ``collbench run`` as a user calls it (proof included), one launch per rank count and three, for the first
  collective alone and for all together; the table by the selection of ``collbench recommend``, and by plain argmin;
* brute force: one mpirun per (ranks, algorithm, repetition), each sweeping all sizes with a C loop of our own and OSU's
  iteration counts, mean over calls, ranks and repetitions, argmin per cell (``brute_force.py``);
* reference: ``collbench run`` in fixed mode, every algorithm, seven launches, median over launches.

Regret of a table: geometric mean over cells of t(chosen)/t(best) − 1 by the reference's times. A machine with fewer cores
than ranks shows what it shows; ratios of wall times and regrets hold for it alone. MPICH spins where ranks share cores,
and calls then take milliseconds: measure it with --ranks up to the number of cores.
"""

import argparse
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import brute_force
import table_regret
from table_regret import ALONE, TOGETHER

from collbench import installation, plan, profile, request
from collbench.records import Case
from collbench.runfile import Follower
from collbench.units import format_duration, parse_sizes

ALL = "allreduce,bcast,allgather,reduce_scatter,reduce,alltoall,gather,scatter"
LIMIT_S, SWEEP_LIMIT_S = 1800, 300
"""Timeouts of a whole collbench run and of one launch of brute force."""
DEFAULTS = {
    "collectives": (ALL, "allreduce,bcast"), "ranks": ("2,4,8", "2"), "sizes": ("8:1M", "8,1K,64K"),
    "repeats": (3, 1), "reference_launches": (7, 2), "rounds": (12, 5),
}  # fmt: skip
"""Option → its value, and with ``--quick``."""
RACE_S, BLOCK_S = 0.012, 0.001
"""First guesses: a case of the race, a block of a case in the reference."""


@dataclass(frozen=True)
class Step:
    """One measurement: its file, what makes it, its place in the order (0 … 1) and a first guess of its seconds."""

    path: Path
    make: Callable[[], None]
    position: float
    guess_s: float


@dataclass
class Bench:
    """What all steps need."""

    options: argparse.Namespace
    found: installation.Installation
    program: Path
    sweeps: list[list[Case]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Where the files go."""
        return self.options.folder

    @property
    def log(self) -> Path:
        """What the launch in flight prints."""
        return self.folder / "launch.log"

    @property
    def scopes(self) -> list[tuple[str, list[str]]]:
        """(name, collectives): the first alone, and all together where there are several."""
        names = self.options.collectives
        return [(ALONE, names[:1]), *([(TOGETHER, names)] if len(names) > 1 else [])]

    def brute_path(self, sweep: Sequence[Case], repetition: int) -> Path:
        """Return the file of one launch of brute force."""
        cell = sweep[0].cell
        return self.folder / f"brute-{repetition}-{cell.ranks}-{cell.collective}-{sweep[0].algorithm}.json"


# --- collbench's own runs -----------------------------------------------------------------------------------------


def profile_text(
    options: argparse.Namespace, collectives: Sequence[str], launches: int, rounds: int = 0
) -> str:
    """Return a profile: the race with its choice of sizes (as quick), or all algorithms for so many blocks."""
    sampling = f'mode = "fixed"\nmax_rounds = {rounds}' if rounds else "refine = true"
    sweep = {"collectives": list(collectives), "ranks": options.ranks, "sizes": options.sizes,
             "algorithms": options.algorithms}  # fmt: skip
    rows = "\n".join(f"{key} = {json.dumps(value)}" for key, value in sweep.items())
    return f"launches = {launches}\n[sampling]\n{sampling}\n[[sweep]]\n{rows}\n"


class Tail:
    """Follows a run file and notes when each line came: what is start-up, what is proof, what is measuring."""

    def __init__(self, path: Path) -> None:
        self._appended, self.started = Follower(path), time.perf_counter()
        self.launches = 0
        self.proof_s = self.proving_s = self.measuring_s = 0.0
        self._before = self._up = self._last = 0.0
        self._proof = False

    def look(self) -> None:
        """Take in the whole lines that are new."""
        now = time.perf_counter() - self.started
        for line in self._appended.lines():
            self._take(line, now)

    def _take(self, line: bytes, now: float) -> None:
        kind = line.split(b'"', 4)[3].decode()
        if kind == "run":
            self._before = now
        elif kind == "launch":
            self.launches += 1
            self._up = self._last = now
            self._proof = json.loads(line)["purpose"] == "proof"
        elif kind != "launch_end":
            self._last = now
        else:
            if self._proof:
                self.proof_s += now - self._before
                self.proving_s += self._last - self._up
            else:
                self.measuring_s += self._last - self._up
            self._before = now

    def figures(self, wall_s: float) -> dict[str, float]:
        """Return the run's figures; start-up is all that neither measured nor proved."""
        startup = wall_s - self.measuring_s - self.proving_s
        return {"wall_s": wall_s, "startup_s": startup, "measuring_s": self.measuring_s, "proof_s": self.proof_s,
                "startup_without_proof_s": startup - self.proof_s + self.proving_s, "launches": self.launches}  # fmt: skip


def collbench(bench: Bench, path: Path, text: str, *words: str) -> None:
    """Run ``collbench run`` once into ``path`` and write its figures beside it; an unfinished one starts anew."""
    run, part, toml = path.with_suffix(".jsonl"), path.with_suffix(".part.jsonl"), path.with_suffix(".toml")
    toml.write_text(text)
    part.unlink(missing_ok=True)
    tail = Tail(part)
    command = [sys.executable, "-m", "collbench", "run", str(toml), "--quiet", *words, "-o", str(part)]
    wall, code, said = brute_force.wait(command, {"PYTHONSAFEPATH": "1"}, bench.log, LIMIT_S, tail.look)
    if code != 0:
        raise SystemExit(f"{path.stem}: collbench run ended with {code}: {said}")
    decide = [sys.executable, "-m", "collbench", "recommend", str(part), "--json"]
    decide_s, _, _ = brute_force.wait(decide, {"PYTHONSAFEPATH": "1"}, bench.log, LIMIT_S)
    part.rename(run)
    brute_force.write_json(path, {**tail.figures(wall), "decide_s": decide_s})


# --- the plan of this bench ---------------------------------------------------------------------------------------


def all_sweeps(options: argparse.Namespace, found: installation.Installation) -> list[list[Case]]:
    """Return for each (ranks, collective, algorithm) the cases over all sizes, as collbench itself plans them."""
    chosen = request.RunOptions(prove=False)
    parsed = profile.parse(profile_text(options, options.collectives, 1), "time_to_table", "time_to_table")
    whole = plan.make_plan(parsed, chosen, library=found.library, version=found.version)
    by_launch: dict[tuple[int, str, str], list[Case]] = {}
    for case in sorted(
        (c for x in whole.launches for c in x.cases), key=lambda c: (c.algorithm, c.cell.nbytes)
    ):
        by_launch.setdefault((case.cell.ranks, case.cell.collective, case.algorithm), []).append(case)
    return list(by_launch.values())


def steps(bench: Bench) -> list[Step]:
    """Return all measurements, the methods spread evenly over the whole time."""
    options, many = bench.options, len(bench.options.ranks)
    made: list[Step] = []

    def add(prefix: str, number: int, guess_s: float, make: Callable[[Path], None]) -> None:
        for index in range(number):
            path = bench.folder / f"{prefix}-{index}.json"
            made.append(Step(path, lambda p=path: make(p), (index + 0.5) / number, guess_s))

    for name, names in bench.scopes:
        cases = sum(len(s) for s in bench.sweeps if s[0].cell.collective in names)
        for launches in (1, 3):
            # Three launches of everything take long: once less often.
            number = options.repeats if (name, launches) != (TOGETHER, 3) else max(1, options.repeats - 1)
            text = profile_text(options, names, launches)
            guess_s = 2 + many * (1 + launches) + RACE_S * launches * cases
            add(f"race-{name}-{launches}", number, guess_s, lambda p, t=text: collbench(bench, p, t))
    text = profile_text(options, options.collectives, 1, options.rounds)
    guess_s = 2 + many + BLOCK_S * options.rounds * sum(len(s) for s in bench.sweeps)
    add("reference", options.reference_launches, guess_s, lambda p: collbench(bench, p, text, "--no-prove"))
    return sorted([*made, *_brute_steps(bench)], key=lambda step: step.position)


def _brute_steps(bench: Bench) -> Iterable[Step]:
    options = bench.options
    slots = [(n, ranks) for n in range(options.repeats) for ranks in options.ranks]
    for number, (repetition, ranks) in enumerate(slots):
        here = [s for s in bench.sweeps if s[0].cell.ranks == ranks]
        random.Random(number).shuffle(here)
        for sweep in here:
            path = bench.brute_path(sweep, repetition)
            guess = 0.4 + 0.25 * ranks * len(sweep) / 18
            yield Step(path, lambda s=sweep, p=path: _brute(bench, s, p), (number + 0.5) / len(slots), guess)


def _brute(bench: Bench, sweep: list[Case], path: Path) -> None:
    brute_force.write_json(
        path, brute_force.sweep(bench.program, bench.found, sweep, bench.log, SWEEP_LIMIT_S)
    )


def execute(todo: Sequence[Step], max_minutes: float) -> None:
    """Take the missing steps in order until the time is up."""
    started, done, guessed = time.monotonic(), 0.0, 0.0
    missing = [step for step in todo if not step.path.exists()]
    left = sum(step.guess_s for step in missing)
    print(f"{len(missing)} of {len(todo)} measurements to take, about {format_duration(left)} (a guess; the time left is"
          f" corrected as they end), at most {max_minutes:g} minutes", flush=True)  # fmt: skip
    for number, step in enumerate(missing, start=1):
        spent = time.monotonic() - started
        if spent > 60 * max_minutes:
            print(
                f"stopped after {max_minutes:g} minutes with {len(missing) - number + 1} measurements left",
                flush=True,
            )
            return
        before = time.monotonic()
        step.make()
        done, guessed = done + time.monotonic() - before, guessed + step.guess_s
        left = (sum(s.guess_s for s in missing[number:])) * done / guessed
        took = f"{step.path.stem}: {time.monotonic() - before:.1f} s"
        print(
            f"{number}/{len(missing)} {took}, about {format_duration(left)} left", file=sys.stderr, flush=True
        )


# --- the command line ---------------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    """Return the command line; ``--quick`` shrinks what is not named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--quick", action="store_true", help="two ranks, three sizes, two collectives, one repetition"
    )
    parser.add_argument("--collectives", help=f"the first is measured alone too (default {ALL})")
    parser.add_argument("--ranks", help="default 2,4,8")
    parser.add_argument("--sizes", help="default 8:1M, doubling")
    parser.add_argument(
        "--algorithms",
        default="library",
        help="names that the first collective has, comma-separated (default: all)",
    )
    parser.add_argument("--repeats", type=int, help="runs of brute force and races (default 3)")
    parser.add_argument("--reference-launches", type=int, help="default 7")
    parser.add_argument("--rounds", type=int, help="blocks of each case in a reference launch (default 12)")
    parser.add_argument(
        "--max-minutes", type=float, default=60, help="stop between two measurements (0: only print)"
    )
    options = parser.parse_args()
    for name, (large, small) in DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, small if options.quick else large)
    options.collectives, options.algorithms = options.collectives.split(","), options.algorithms.split(",")
    options.ranks = [int(word) for word in options.ranks.split(",")]
    options.sizes = list(parse_sizes(options.sizes))
    return options


def prepare(options: argparse.Namespace) -> Bench:
    """Return the bench; a folder keeps to the library and the plan it was begun with."""
    options.folder.mkdir(parents=True, exist_ok=True)
    found = installation.discover()
    words = {k: v for k, v in vars(options).items() if k not in ("folder", "max_minutes", "quick")}
    words["library"], path = found.version_string, options.folder / "bench.json"
    if path.exists() and json.loads(path.read_text()) != words:
        raise SystemExit(
            f"{options.folder} was begun with other options or another MPI: use them again, or a new folder"
        )
    brute_force.write_json(path, words)
    return Bench(options, found, brute_force.build(options.folder, found), all_sweeps(options, found))


def main() -> int:
    """Measure what is missing, print what there is."""
    options = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bench, code = prepare(options), 0
    try:
        execute(steps(bench), options.max_minutes)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", flush=True)
        code = 130
    except SystemExit as error:
        print(f"{error}; the same command goes on", flush=True)
        code = 1
    table_regret.report(bench)
    return code


if __name__ == "__main__":
    sys.exit(main())
