"""The words that name algorithms in profiles and on the command line."""

from collbench import algorithms
from collbench.algorithms import Version
from collbench.errors import UsageError, unknown_name
from collbench.profile import Profile
from collbench.records import Params

WORDS = ("default", "library", "portable", "all")


def check_algorithm_words(profile: Profile, provider: str, version: Version | None) -> None:
    """Refuse names that no collective of the profile has.

    Raises:
        UsageError: with the nearest valid names.
    """
    known = set(WORDS)
    for sweep in profile.sweeps:
        for name in sweep.collectives:
            known.update(row.name for row in algorithms.algorithms(provider, name, version))
            known.update(f"portable:{row.name}" for row in algorithms.algorithms("portable", name))
    for sweep in profile.sweeps:
        for word in sweep.algorithms:
            bare, _ = split_params(word)
            if canonical(bare) not in known:
                raise unknown_name("algorithm", word, known)


def canonical(word: str) -> str:
    """Return the name behind an accepted alias (``portable:tree`` is ``portable:binomial``)."""
    return {"portable:tree": "portable:binomial"}.get(word, word)


def split_params(word: str) -> tuple[str, Params]:
    """Return name and parameters of ``pipeline[segment_bytes=16384]``.

    Raises:
        UsageError: the brackets are not well formed.
    """
    name, bracket, rest = word.partition("[")
    if not bracket:
        return word, ()
    if not rest.endswith("]"):
        raise UsageError(f"{word!r}: write parameters as NAME[key=value,key=value]")
    params: dict[str, int | str] = {}
    for item in rest[:-1].split(","):
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"{word!r}: write parameters as NAME[key=value,key=value]")
        params[key.strip()] = int(value) if value.strip().isdigit() else value.strip()
    return name, tuple(sorted(params.items()))
