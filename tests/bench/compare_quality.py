"""How far the verdicts of ``collbench ab`` and ``compare`` can be trusted on this machine.

Run it:  python tests/bench/compare_quality.py FOLDER [--runs 20] [--slow-runs 3] [--pairs 10] [--profile ci]
    [--budget 10m]
Every measurement is a run file in FOLDER; a second start goes on where the first ended. Printed apart:

* A/A: false alarms and inconclusive cells, interleaved and confirmed, and sequential (first half of the launches
  against the second, as two stored runs would be);
* injected: a real slow-down, a library preloaded in both environments that makes each collective spin for a share
  of its own time (share 0 in the base), measured with ``collbench ab --confirm``;
* scaled: the launch medians of one side of the A/A runs times 1.03 … 1.20;
* synthetic: log-normal launches, for the rule alone.
"""

import argparse
import copy
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from collbench import compare, installation, results, sides
from collbench.pairing import LaunchState, Matched, Sample, match
from collbench.verdict import FASTER, INCONCLUSIVE, SLOWER, Comparison, Rules

CHANGES = (0.03, 0.05, 0.10, 0.20)
QUIET = 0.03
"""Cells whose same-state launches scatter by less are those of the target."""

SHIM = """\
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
typedef uintptr_t W;  /* every argument of these calls is an int, a pointer or a handle: one word each */
typedef int (*F)(W, W, W, W, W, W, W, W, W, W, W, W);
static double share;
static void *library;
static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static F real(const char *name) {
  if (!library) {
    const char *s = getenv("COLLBENCH_BENCH_SLOWDOWN");
    share = s ? atof(s) : 0;
    library = dlopen(getenv("COLLBENCH_BENCH_LIBMPI"), RTLD_NOW | RTLD_NOLOAD);
  }
  F found = library ? (F)dlsym(library, name) : 0;
  if (!found) { fprintf(stderr, "slow-down shim: no %s\\n", name); abort(); }
  return found;
}
#define WRAP(NAME) \\
  int MPI_##NAME(W a, W b, W c, W d, W e, W f, W g, W h, W i, W j, W k, W l) { \\
    static F call; if (!call) call = real("PMPI_" #NAME); \\
    int64_t start = now(); \\
    int code = call(a, b, c, d, e, f, g, h, i, j, k, l); \\
    int64_t end = now(), until = end + (int64_t)(share * (double)(end - start)); \\
    while (share > 0 && now() < until) {} \\
    return code; }
WRAP(Allreduce) WRAP(Bcast) WRAP(Allgather) WRAP(Reduce) WRAP(Alltoall) WRAP(Gather) WRAP(Scatter)
WRAP(Reduce_scatter_block) WRAP(Sendrecv)
"""
"""Barriers are not slowed: they keep the ranks in step outside the timed span."""


def build_shim(folder: Path) -> Path:
    """Compile the shim once."""
    path = folder / "slowdown.so"
    if not path.exists():
        source = folder / "slowdown.c"
        source.write_text(SHIM)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", path, source, "-ldl"], check=True)
    return path.resolve()


def measure(path: Path, words: Sequence[str], options: argparse.Namespace) -> Path:
    """Run one ``collbench ab`` into ``path`` unless it is there; an unfinished one is started anew."""
    part = path.with_suffix(".part.jsonl")
    if not path.exists():
        part.unlink(missing_ok=True)
        command = [sys.executable, "-m", "collbench", "ab", options.profile, "--pairs", str(options.pairs), "--confirm",
                   "--quiet", "--json", "-o", str(part), *words]  # fmt: skip
        if options.budget:
            command += ["--budget", options.budget]
        env = {**os.environ, "PYTHONSAFEPATH": "1"}
        done = subprocess.run(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
        )
        if done.returncode not in (0, 1, 3) or not part.exists():
            raise SystemExit(f"collbench ab ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        part.rename(path)
        print(f"measured {path.name}", file=sys.stderr, flush=True)
    return path


def verdicts(
    run: results.Run, *, scale: float = 1.0, sequential: bool = False, confirm: bool = True
) -> Comparison:
    """Return the verdicts of one A/B run file, with the times of B scaled."""
    names = sides.key_names()
    first, second = sides.variants(run)
    base, new = sides.of_variants(run, first, second, names)
    if sequential:
        base, new = halves(base, new)
    if not confirm or sequential:
        base, new = replace(base, confirm={}), replace(new, confirm={})
    if scale != 1.0:
        new = replace(new, samples=scaled(new.samples, scale), confirm=scaled(new.confirm, scale))
    return compare.compare(base, new, names, Rules())


def scaled(samples, factor: float):
    """Return samples with their times multiplied."""
    return {key: [replace(s, time_s=s.time_s * factor) for s in found] for key, found in samples.items()}


def halves(base: sides.Side, new: sides.Side) -> tuple[sides.Side, sides.Side]:
    """Return the first and the second half of all launches, unpaired, as two stored runs."""
    early, late = {}, {}
    for key in base.samples:
        both = sorted([*base.samples[key], *new.samples.get(key, [])], key=lambda s: s.pair)
        loose = [replace(s, pair=None) for s in both]
        early[key], late[key] = loose[: len(loose) // 2], loose[len(loose) // 2 :]
    return replace(base, samples=early), replace(new, samples=late)


def report(title: str, found: Iterable[Comparison], *, slowed: float | None = None, skip: str = "") -> None:
    """Print alarms (or detections) and inconclusive cells, over all cells and over the quiet ones."""
    cells = [c for x in found for c in x.cells if c.base_s is not None or c.verdict == INCONCLUSIVE]
    cells = [c for c in cells if not skip or not c.cell.startswith(skip)]
    quiet = [c for c in cells if c.spread is not None and c.spread / 2**0.5 < QUIET]
    for name, some in (("all cells", cells), (f"launch spread < {QUIET:.0%}", quiet)):
        slower, faster = (sum(c.verdict == v for c in some) for v in (SLOWER, FASTER))
        open_ = sum(c.verdict == INCONCLUSIVE for c in some)
        total = max(1, len(some))
        hits = f"found {slower / total:.1%}" if slowed else f"false alarms {slower + faster}"
        print(f"{title:<46} {name:<20} {len(some):>5} cells  {hits}  inconclusive {open_ / total:.1%}")


def synthetic(pairs: int, trials: int = 500) -> None:
    """Print the rule's own figures on log-normal launches."""
    source = np.random.default_rng(1)
    calm = LaunchState(0)
    for spread in (0.01, 0.03, 0.06):
        for change in (0.0, *CHANGES):
            words = []
            for _ in range(trials):
                base = [Sample((i,), float(np.exp(source.normal(0, spread))), calm) for i in range(pairs)]
                new = [
                    Sample((i,), float(np.exp(source.normal(np.log1p(change), spread))), calm)
                    for i in range(pairs)
                ]
                matched: Matched = match(base, new)
                words.append(compare.judge("x", {}, matched, Rules()).verdict)
            share = {w: words.count(w) / trials for w in (SLOWER, FASTER, INCONCLUSIVE)}
            print(f"synthetic: launch spread {spread:.0%}, {change:.0%} slower: slower {share[SLOWER]:.1%}, "
                  f"faster {share[FASTER]:.1%}, inconclusive {share[INCONCLUSIVE]:.1%}")  # fmt: skip


def main() -> None:
    """Measure what is missing, print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--slow-runs", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--profile", default="ci")
    parser.add_argument("--budget", help="time for each measurement (default: the profile's)")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    same = [
        results.read(measure(options.folder / f"aa-{n:02d}.jsonl", ["--self-test"], options))
        for n in range(options.runs)
    ]
    report("A/A interleaved, screened", [verdicts(run, confirm=False) for run in same])
    report("A/A interleaved, confirmed", [verdicts(run) for run in same])
    report("A/A sequential (two stored runs)", [verdicts(run, sequential=True) for run in same])
    shim, libmpi = build_shim(options.folder), installation.discover().libmpi
    for change in CHANGES:
        common = f"LD_PRELOAD={shim},COLLBENCH_BENCH_LIBMPI={libmpi},COLLBENCH_BENCH_SLOWDOWN"
        words = ["--variant", f"base:{common}=0", "--variant", f"slow:{common}={change}"]
        slow = [results.read(measure(options.folder / f"slow-{change:.2f}-{n}.jsonl", words, options))
                for n in range(options.slow_runs)]  # fmt: skip
        report(
            f"injected {change:.0%}, interleaved, confirmed",
            [verdicts(x) for x in slow],
            slowed=change,
            skip="barrier",
        )
        report(f"injected {change:.0%}, interleaved, screened", [verdicts(x, confirm=False) for x in slow], slowed=change,
               skip="barrier")  # fmt: skip
    for change in CHANGES:
        found = [verdicts(copy.copy(x), scale=1 + change, confirm=False) for x in same]
        report(f"scaled {change:.0%}, interleaved", found, slowed=change)
    synthetic(options.pairs)


if __name__ == "__main__":
    main()
