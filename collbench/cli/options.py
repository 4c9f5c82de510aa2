"""Options that several commands share."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from collbench import units
from collbench.collectives import collective
from collbench.errors import CollbenchError, UsageError

Command = TypeVar("Command", bound=Callable[..., Any])

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    # Generic since click 8.4 only.
    ParamType = click.ParamType


class Parsed(ParamType):
    """A parameter turned into its value by one of our own parsers, whose sentence is the error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the parsed value; fail with the parser's sentence."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except CollbenchError as error:
            name = param.opts[0] if param else self.name
            self.fail(f"{name}: {error}", param, ctx)


def _collectives(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(collective(n).name for n in text.split(",") if n.strip()))


def _ranks(text: str) -> tuple[int, ...]:
    try:
        found = {int(n) for n in text.split(",") if n.strip()}
    except ValueError:
        raise UsageError(f"{text!r} is not a list of rank counts: write for example 2,4,8") from None
    if not found or min(found) < 1:
        raise UsageError(f"{text!r} is not a list of rank counts from 1 up")
    return tuple(sorted(found))


def _words(text: str) -> tuple[str, ...]:
    """Split at commas outside brackets: ``ring,pipeline[segment_bytes=4096,fanout=2]``."""
    found, depth, word = [], 0, ""
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append(word)
            word = ""
        else:
            word += character
    return tuple(w.strip() for w in [*found, word] if w.strip())


COLLECTIVES = Parsed("names", _collectives)
RANKS = Parsed("ranks", _ranks)
SIZES = Parsed("sizes", units.parse_sizes)
WORDS = Parsed("names", _words)
DURATION = Parsed("duration", units.parse_duration)
PERCENT = Parsed("percent", units.parse_percent)
SIZE = Parsed("size", units.parse_size)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Machine output on stdout, words on stderr."
)
sync_option = click.option(
    "--sync",
    type=click.Choice(["barrier", "dissemination", "window"]),
    default="barrier",
    show_default=True,
    help="How ranks start together: after MPI_Barrier, after a barrier of collbench's own, or by clock.",
)
