"""How often run → recommend → verify ends well: the whole chain, several times.

Usage: python tests/bench/whole_chain.py FOLDER [--times N] [--ranks 2]  (in the environment of the MPI to try, on a
quiet machine; about three minutes a time). Measures with profile quick, writes the table of the environment's library,
verifies it with the defaults, and prints for each time what it took, what came out, and the exit status of verify.
Finished times are taken from FOLDER, so an interrupted bench goes on.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from collbench import installation

LIMIT_S = 900


def step(folder: Path, name: str, *words: str) -> tuple[int, float]:
    """Run one command of collbench, its output in files; return the exit status and the seconds."""
    started = time.monotonic()
    with (folder / f"{name}.out").open("w") as out, (folder / f"{name}.err").open("w") as err:
        done = subprocess.run(
            [sys.executable, "-m", "collbench", *words], cwd=folder, stdout=out, stderr=err, timeout=LIMIT_S, check=False
        )  # fmt: skip
    return done.returncode, time.monotonic() - started


def once(folder: Path, library: str, ranks: str | None) -> dict[str, Any]:
    """Run the chain once and return what came of it."""
    folder.mkdir(parents=True)
    codes, seconds = {}, {}
    for name, words in {
        "run": ("run", "quick", *(("--ranks", ranks) if ranks else ()), "-o", "run.jsonl"),
        "recommend": ("recommend", "run.jsonl", "--format", library, "-o", "table", "--json"),
        "verify": ("verify", "table", "-o", "verify.jsonl", "--json"),
    }.items():
        codes[name], seconds[name] = step(folder, name, *words)
        if codes[name] == 2:
            break
    found: dict[str, Any] = {"exit": codes, "seconds": {k: round(v) for k, v in seconds.items()}}
    for name in ("recommend", "verify"):
        text = (folder / f"{name}.out").read_text() if name in codes else ""
        found |= {name: json.loads(text)} if text else {}
    return found


def words_of(found: dict[str, Any]) -> str:
    """Return one line about one time."""
    exits, seconds = found["exit"], found["seconds"]
    decided, shown = found.get("recommend", {}), found.get("verify", {})
    rules = [r for r in decided.get("rules", ()) if r["algorithm"] != "default"]
    words = [f"{name} {seconds[name]} s exit {exits[name]}" for name in exits]
    words.append(f"{len(rules)} rules beside the default")
    if overall := shown.get("overall"):
        cells = shown["cells"]
        worst = min(cells, key=lambda c: c["speedup"])
        words.append(
            f"{len(cells)} cells, overall {overall['speedup']:.2f} ({overall['low']:.2f} … {overall['high']:.2f}), worst "
            f"{worst['speedup']:.2f} at {worst['collective']}, {worst['ranks']} ranks, {worst['nbytes']} B"
        )
    words += [
        f"slower: {s['collective']} {s['ranks']} ranks {s['nbytes']} B {s['algorithm']} {s['speedup']:.2f}"
        for s in shown.get("slower", ())
    ]
    return " · ".join(words)


def main() -> None:
    """Run the chain several times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--ranks", help="rank counts instead of the profile's")
    given = parser.parse_args()
    library = installation.discover(None).library
    well = 0
    for number in range(1, given.times + 1):
        kept = given.folder / f"{library}-{number}.json"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(once(given.folder / f"{library}-{number}", library, given.ranks)))
        found = json.loads(kept.read_text())
        well += found["exit"].get("verify") == 0
        print(f"{library} {number}: {words_of(found)}", flush=True)
    print(f"{library}: verify ended with 0 in {well} of {given.times}")


if __name__ == "__main__":
    main()
