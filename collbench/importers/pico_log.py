"""PICO's terminal log: recognised, so that it can be refused by name."""

import re

from collbench.errors import UnansweredError
from collbench.importers import Importer
from collbench.importers.model import Imported, Options
from collbench.importers.source import Source

_LAST = re.compile(r"Last Iter Time:\s*\d+ns")
_BENCH = re.compile(r"BENCH: [A-Z_]+ -> \d+ processes")


def detect(head: str) -> bool:
    """Say whether the text is what PICO prints on a terminal."""
    if "Last Iter Time:" in head:
        return _LAST.search(head) is not None
    return "CONFIGURATION SUMMARY" in head and _BENCH.search(head) is not None


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
