"""PICO's terminal log: recognised, so that it can be refused by name."""

import re

from collbench.errors import UnansweredError
from collbench.importers import Importer
from collbench.importers.model import Imported, Options
from collbench.importers.source import Source

_SIGN = re.compile(r"Last Iter Time:\s*\d+ns|CONFIGURATION SUMMARY|^BENCH: [A-Z_]+ -> \d+ processes")


def detect(head: list[str]) -> bool:
    """Say whether the lines are what PICO prints on a terminal."""
    return any("Last Iter Time:" in line and _SIGN.search(line) for line in head) or (
        any("CONFIGURATION SUMMARY" in line for line in head) and any(_SIGN.match(line) for line in head)
    )


def read(source: Source, options: Options) -> Imported:  # noqa: ARG001 - the importers' signature
    """Refuse the file.

    Raises:
        UnansweredError: always; the message says what to import instead.
    """
    raise UnansweredError(
        f"{source.name} is a PICO terminal log, which holds the time of the last iteration only: "
        "import PICO's CSV files with --mapping instead"
    )


FORMAT = Importer("pico-log", "PICO terminal log (refused: last iteration only)", detect, read)
