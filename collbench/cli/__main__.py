"""The ``collbench`` command: a lazy group and the one boundary that turns errors into exit statuses."""

import os
import signal
import sys
from importlib import import_module
from typing import NoReturn

import click

from collbench import __version__
from collbench.errors import EXIT_INTERRUPTED, EXIT_USAGE, CollbenchError, unknown_name

# name → (module:attribute, one line of help): --help must not import the commands, they load pandas.
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("collbench.cli.run:command", "Measure; writes one run file under results/."),
    "show": ("collbench.cli.show:command", "Look at a run: tables, winners, evidence."),
    "recommend": ("collbench.cli.recommend:command", "Decide: the table, the guidance, library files."),
    "verify": ("collbench.cli.verify:command", "Prove a table on the live library."),
    "compare": ("collbench.cli.compare:command", "Two runs → verdicts, exit status for CI."),
    "ab": ("collbench.cli.ab:command", "Measure environments interleaved, then compare."),
    "check": ("collbench.cli.check:command", "Acceptance: floors and ceilings with tolerance."),
    "import": ("collbench.cli.import_:command", "nccl-tests, rccl-tests, OSU, IMB, CSV → a run file."),
    "export": ("collbench.cli.export:command", "CSV or Parquet; --reduce strips hosts and paths."),
    "baseline": ("collbench.cli.baseline:command", "The run that CI compares with: set, show, update."),
    "list": ("collbench.cli.list_:command", "Backends, collectives, algorithms, profiles, formats."),
    "doctor": ("collbench.cli.doctor:command", "Is this machine fit to measure? What mends it?"),
    "plugin": ("collbench.cli.plugin:command", "collbench's NCCL tuner plugin: build, path."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands in the order of the work: measure, look, decide, prove."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return one command; unknown names end in the nearest valid ones."""
        if cmd_name not in COMMANDS:
            raise unknown_name("command", cmd_name, COMMANDS)
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the command list without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="collbench")
def cli() -> None:
    """Measure, compare, tune and prove collective communication on the machine in front of you."""


def _stop(message: str, status: int) -> NoReturn:
    click.echo(f"collbench: {message}", err=True)
    sys.exit(status)


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status (0, 1, 2, 3 or 130; DESIGN §1)."""
    try:
        status = cli.main(args=argv, prog_name="collbench", standalone_mode=False)
    except CollbenchError as error:
        _stop(str(error), error.exit_status)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else str(error), err=True)
        sys.exit(EXIT_USAGE)
    except click.UsageError as error:
        hint = f" (try '{error.ctx.command_path} --help')" if error.ctx else ""
        _stop(f"{error.format_message()}{hint}", EXIT_USAGE)
    except click.ClickException as error:
        _stop(error.format_message(), EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        _stop("interrupted; what was measured is kept", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # `collbench show | head`: the reader has gone; end as any Unix filter does, without a second error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
