"""Lazy name → code: a registry knows where a thing lives and imports it when it is asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from collbench.errors import unknown_name


class Registry(Mapping[str, Any]):
    """A mapping of names to ``module:attribute`` targets, imported on first use.

    Args:
        kind: the word used in error messages, for example "table format".
        targets: name → "package.module:attribute".
    """

    def __init__(self, kind: str, targets: Mapping[str, str]) -> None:
        self.kind = kind
        self._targets = dict(targets)

    def __getitem__(self, name: str) -> Any:
        """Return the object behind ``name``; raises UsageError with the nearest names."""
        if name not in self._targets:
            raise unknown_name(self.kind, name, self._targets)
        module, _, attribute = self._targets[name].partition(":")
        return getattr(import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)

    def __contains__(self, name: object) -> bool:
        return name in self._targets
