"""The command group: one boundary that turns every error into one line and an exit status."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from collbench import __version__, errors
from collbench.cli import __main__ as group


@pytest.fixture(name="raising")
def _raising(monkeypatch):
    """``raising(error)`` makes ``collbench show`` raise it."""

    def plant(error: BaseException) -> None:
        @click.command()
        def command() -> None:
            raise error

        from collbench.cli import show

        monkeypatch.setattr(show, "command", command)

    return plant


@pytest.mark.parametrize(
    ("error", "status"),
    [(errors.UsageError("wrong"), 2), (errors.UnansweredError("wrong"), 3), (errors.AnswerIsNoError("wrong"), 1),
     (errors.InterruptedRunError("wrong"), 130), (click.ClickException("wrong"), 2)],
)  # fmt: skip
def test_errors_become_one_line_and_their_status(cli, raising, error, status):
    """The sentence stands on stderr after the program's name; stdout stays empty for machines."""
    raising(error)
    result = cli("show")
    assert (result.status, result.stderr, result.stdout) == (status, "collbench: wrong\n", "")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_ctrl_c_is_130_and_says_what_is_kept(cli, raising, error):
    """An interrupted command ends as a batch system expects."""
    raising(error)
    result = cli("show")
    assert result == 130
    assert "kept" in result.stderr


def test_a_defect_of_ours_is_not_hidden(raising):
    """An error that is none of ours keeps its traceback: it must be reported, not guessed at."""
    raising(RuntimeError("defect"))
    with pytest.raises(RuntimeError, match="defect"):
        group.main(["show"])


def test_an_unknown_command_is_answered_with_the_nearest(cli):
    """Exit 2 and a suggestion."""
    result = cli("recomend")
    assert result == 2
    assert "did you mean 'recommend'" in result.stderr


def test_help_and_version(cli):
    """--help names every command in the order of the work; --version the version; no argument is wrong use."""
    shown = cli("--help").stdout
    places = [shown.index(f"\n  {name} ") for name in group.COMMANDS]
    assert places == sorted(places)
    assert cli("--version").stdout == f"collbench, version {__version__}\n"
    assert cli() == 2


def test_a_reader_that_goes_away_is_no_error(example):
    """``collbench show | head -1`` ends quietly, as any filter does."""
    script = (
        f"'{Path(sys.executable).parent / 'collbench'}' show '{example}' | head -1; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False, env={**os.environ}
    )
    assert done.stderr == ""
    assert done.stdout.startswith("run example")
    assert done.returncode in (0, 141)


def test_python_dash_m_is_the_same_program():
    """``python -m collbench`` and ``collbench`` are one."""
    done = subprocess.run(
        [sys.executable, "-m", "collbench", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert __version__ in done.stdout
