"""Run-file lines without host names, user names and absolute paths."""

import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# A path starts where no path goes on before it; "//" belongs to an address such as http://…
_PATH = re.compile(r"(?<![\w./-])/(?!/)[\w.+@~%=-]+(?:/[\w.+@~%=-]*)+")
_HOME = re.compile(r"^/(?:home|users?|Users|u|scratch|work|data)/[^/]+/?$")
_AT = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_HOST_KEYS = frozenset({"host", "hosts", "hostname", "hostnames", "node_names"})
_KEPT = frozenset({"kind", "case", "effective", "collective", "algorithm", "schema", "versions"})
_HOST_OPTIONS = re.compile(r"^(--?hosts?|-H|-w|--nodelist)(?:=(.*))?$")


def redact(line: Mapping[str, Any], mapping: dict[str, str]) -> dict[str, Any]:
    """Return a run-file line without host names, user names and absolute paths.

    What a case asks for and what ran are kept to the letter, also where a host is called like an algorithm.

    Args:
        line: a line of a run file.
        mapping: host name → ``h0``, ``h1`` …; pass the same one for all lines of a file, it grows.
    """
    for name in (*_hosts(line), socket.gethostname()):
        _learn(name, mapping)
    words = _Words(mapping)
    return {key: value if key in _KEPT else words.clean(value) for key, value in line.items()}


def _learn(name: str, mapping: dict[str, str]) -> None:
    """Give a host its alias; its short name and its full name share one."""
    short = name.partition(".")[0]
    if not name or name in mapping or name in ("localhost", "127.0.0.1"):
        return
    alias = mapping.get(short) or f"h{len(set(mapping.values()))}"
    mapping[name] = alias
    if not name.replace(".", "").isdigit():
        mapping.setdefault(short, alias)


def _hosts(value: Any) -> Iterator[str]:
    """Yield every host that a line names: under keys for hosts, and after ``--hosts`` in a command line."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in _HOST_KEYS:
                yield from _names(item)
            else:
                yield from _hosts(item)
    elif isinstance(value, list | tuple):
        yield from _from_words(value)
        for item in value:
            yield from _hosts(item)


def _names(item: Any) -> Iterator[str]:
    for text in [item] if isinstance(item, str) else item if isinstance(item, list | tuple) else []:
        for part in str(text).split(","):
            yield part.partition(":")[0].strip()


def _from_words(words: Iterable[Any]) -> Iterator[str]:
    expected = False
    for word in words:
        if not isinstance(word, str):
            return
        match = _HOST_OPTIONS.match(word)
        if expected:
            yield from _names(word)
        elif match and match[2]:
            yield from _names(match[2])
        expected = bool(match) and not (match and match[2])


class _Words:
    """Cleans the strings of one line."""

    def __init__(self, mapping: Mapping[str, str]) -> None:
        self._mapping = mapping
        names = "|".join(re.escape(name) for name in sorted(mapping, key=len, reverse=True))
        self._hosts = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-])") if names else None
        users = {os.environ.get(name, "") for name in ("USER", "LOGNAME")} - {"", "root", "user"}
        found = "|".join(re.escape(user) for user in sorted(users) if len(user) > 2)
        self._users = re.compile(rf"(?<![\w-])(?:{found})(?![\w-])") if found else None

    def clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {key: item if key in _KEPT else self.clean(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean(item) for item in value]
        return value

    def _text(self, text: str) -> str:
        text = _PATH.sub(lambda match: _shorten(match[0]), text)
        text = _AT.sub("<user>@<host>", text)
        if self._hosts:
            text = self._hosts.sub(lambda match: self._mapping[match[0]], text)
        return self._users.sub("<user>", text) if self._users else text


def _shorten(path: str) -> str:
    """Return ``<path>/libmpi.so`` for a file deep down; a home directory's last part is a user and goes too."""
    name = path.rstrip("/").rpartition("/")[2]
    return "<path>" if _HOME.match(path) else f"<path>/{name}"
