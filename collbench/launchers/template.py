"""Any other launcher, as the user writes it: ``flux run -n {ranks}``."""

import shlex
import string

from collbench.errors import UsageError, unknown_name
from collbench.launchers import Command, Launcher, LaunchSpec

_FIELDS = ("ranks", "nodes", "ranks_per_node", "hosts", "program")


class Template(Launcher):
    """The user's command line with fields in braces; ``env K=V …`` before the program forwards the variables."""

    name = "template"

    def command(self, spec: LaunchSpec) -> Command:
        """Return the template with its fields filled in.

        Raises:
            UsageError: no ``{ranks}``, an unknown field, or one that has no value here.
        """
        program = self._program(spec)
        argv: list[str] = []
        words = self._words()
        for word in words:
            argv += program if word == "{program}" else [self._fill(word, spec)]
        if "{program}" not in words:
            argv += [*self.extra_args, *program]
        return Command(tuple(argv))

    def _words(self) -> list[str]:
        try:
            words = shlex.split(self.template)
        except ValueError as error:
            raise UsageError(f"--launcher {self.template!r} cannot be read: {error}") from None
        if not any("{ranks}" in word for word in words):
            raise UsageError(
                f"--launcher {self.template!r} does not say where the number of ranks goes: "
                "write {ranks}, as in 'flux run -n {ranks}'"
            )
        return words

    def _program(self, spec: LaunchSpec) -> list[str]:
        planned = [f"{name}={value}" for name, value in sorted(spec.env.items())]
        return ["env", *planned, *spec.program] if planned else list(spec.program)

    def _fill(self, word: str, spec: LaunchSpec) -> str:
        hosts, per_node = self.placed(spec)
        nodes = len(hosts) or (-(-spec.ranks // per_node) if per_node else None)
        values = {
            "ranks": spec.ranks,
            "nodes": nodes,
            "ranks_per_node": per_node,
            "hosts": ",".join(hosts) or None,
        }
        try:
            names = [name for _, name, _, _ in string.Formatter().parse(word) if name is not None]
        except ValueError as error:
            raise UsageError(f"--launcher {self.template!r}: {word!r} cannot be read: {error}") from None
        for name in names:
            if name not in values:
                raise unknown_name("launcher field", name, _FIELDS)
            if values[name] is None:
                raise UsageError(
                    f"--launcher {self.template!r} uses {{{name}}}, which this run does not set: "
                    "add --hosts or --ranks-per-node"
                )
        return word.format(**values)
