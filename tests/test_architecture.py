"""The house of README's "How it is built": imports point down, heavy libraries have homes, modules stay small."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "collbench"

LEVELS = """\
errors units registry records collectives algorithms atomic __init__
profile plan request words samplers refinement confirmation budget repeats history components forcing runfile results \
    environment redaction processes
mpi portable backends
launchers mpiexec launching outcome heartbeat worker schedule worker_status watching runner inside installation memory \
    resume trial doctor
importers stats selection candidates gains screening segments decision ruling interpolation heldout pool stacks \
    compare pairing power method sides ran verdict check baseline \
    ab variant interleaving quality guidance advice guidelines violations
tables reports evidence verify
cli __main__
""".splitlines()
"""Lowest first; each module or folder of collbench stands in exactly one line."""

PLACES = {name: level for level, names in enumerate(LEVELS) for name in names.split()}
ANALYSIS = tuple(LEVELS[4].split())
READS_LOGS = ("backends.nccl_tests", "backends.nccl_worker")
"""Backends that learn from a program's or library's log what ran, with an importer: they stand at its level."""

HOMES = {
    "click": ("cli",),
    "rich": ("cli", "reports"),
    "pandas": ("results", *ANALYSIS, "verify", "cli.export"),
    "mpi4py": ("mpi", "portable", "backends", "worker"),
    "nccl": ("backends",),
    "cuda": ("backends",),
    "pynvml": ("backends",),
    "cupy": ("backends",),
}  # fmt: skip
"""Third-party package → the parts of collbench that may import it."""

MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 300
MAX_FUNCTION_LINES = 40


def name_of(path: Path) -> str:
    """Return ``mpi.library`` for collbench/mpi/library.py, ``tables`` for a package's own file."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def is_kin(name: str, other: str) -> bool:
    """Say whether ``name`` is the folder that ``other`` lies in: its registry names all its members."""
    return other.startswith(f"{name}.")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def level_of(name: str) -> int | None:
    if name.startswith(READS_LOGS):
        return 4
    return PLACES.get(name.partition(".")[0])


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of everything a module imports, function bodies included."""
    for node in walk_runtime(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.lineno, node.module or ""
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Constant) and is_target(node.value):
            yield node.lineno, node.value.partition(":")[0]


def walk_runtime(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree without ``if TYPE_CHECKING`` blocks, which import nothing at run time."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node
        yield from walk_runtime(node)


def is_target(value: object) -> bool:
    """Say whether a constant is a registry's ``collbench.module:attribute``."""
    return isinstance(value, str) and value.startswith("collbench.") and ":" in value and " " not in value


NAMES = {name_of(path): path for path in MODULES}


def own_imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, module name without ``collbench.``) of imports of collbench's own modules."""
    for line, dotted in imports_of(path):
        name = dotted.removeprefix("collbench.") if dotted.startswith("collbench.") else ""
        while name and name not in NAMES:
            name = name.rpartition(".")[0]
        if name:
            yield line, name


def test_every_module_has_a_level():
    """A new top-level module is placed in LEVELS (and in the README's picture) before anything else."""
    assert [name for name in NAMES if level_of(name) is None] == []


def test_imports_point_down():
    """A module imports from its own level or below, never from above."""
    assert [
        f"{name}:{line} imports {other}"
        for name, path in NAMES.items()
        for line, other in own_imports(path)
        if (level_of(other) or 0) > (level_of(name) or 0) and not is_kin(name, other)
    ] == []


def test_third_party_packages_stay_in_their_homes():
    """click is imported in cli only, rich in cli and reports, pandas in the analysis, mpi4py around MPI."""
    assert [
        f"{name}:{line} imports {dotted}"
        for name, path in NAMES.items()
        for line, dotted in imports_of(path)
        for package, homes in HOMES.items()
        if dotted.partition(".")[0] == package
        and not any(name == home or name.startswith(f"{home}.") for home in homes)
    ] == []


def test_mpi_is_never_imported_with_a_module():
    """mpi4py.MPI starts MPI: no module imports it on its own import, only functions that run in a worker do."""
    assert [
        f"{name}:{node.lineno}"
        for name, path in NAMES.items()
        for node in tree_of(path).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "mpi4py" in ast.unparse(node)
        and "MPI" in [part for alias in node.names for part in alias.name.split(".")]
    ] == []


def test_modules_are_small():
    """A module holds one noun in at most 300 lines."""
    sizes = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in NAMES.items()}
    assert {name: size for name, size in sizes.items() if size > MAX_LINES} == {}


def test_functions_are_short():
    """A function does one thing: at most 40 lines, without its docstring, signature and decorators."""
    long = {}
    for name, path in NAMES.items():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
                lines = (body[-1].end_lineno or 0) - body[0].lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    long[f"{name}.{node.name}"] = lines
    assert long == {}


def test_only_the_command_line_exits():
    """sys.exit and SystemExit stand in cli and at the end of the worker, nowhere else."""
    exits = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        if not name_of(path).startswith(("cli", "__main__", "worker", "backends.nccl_worker"))
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.exit")
        or (isinstance(node, ast.Name) and node.id == "SystemExit")
    ]
    assert not exits


def loaded_by(code: str) -> list[str]:
    """Return the names of the modules that a fresh interpreter has loaded after ``code``."""
    shown = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"],
        capture_output=True, text=True, timeout=60, check=True, cwd=ROOT.anchor,
    )  # fmt: skip
    return json.loads(shown.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    "code",
    [
        "import collbench.cli.__main__",
        "from collbench.cli.__main__ import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        "from collbench.cli.__main__ import main\ntry: main(['--version'])\nexcept SystemExit: pass",
    ],
    ids=["import", "help", "version"],
)
def test_help_is_light(code: str):
    """``collbench --help`` loads neither MPI nor pandas nor numpy."""
    heavy = {"mpi4py", "mpi4py.MPI", "pandas", "numpy", "scipy"}
    assert not heavy & set(loaded_by(code))


def test_lists_are_light():
    """``collbench list`` answers at once: it loads no pandas."""
    code = (
        "from collbench.cli.__main__ import main\ntry: main(['list', 'collectives'])\nexcept SystemExit: pass"
    )
    assert not {"pandas", "mpi4py.MPI"} & set(loaded_by(code))


def test_no_command_loads_mpi():
    """The driver never imports mpi4py.MPI: not even with every command's module loaded."""
    code = (
        "from importlib import import_module\nimport importlib.util\n"
        "from collbench.cli.__main__ import COMMANDS\n"
        "for target, _ in COMMANDS.values():\n"
        "    name = target.partition(':')[0]\n"
        "    if importlib.util.find_spec(name):\n        import_module(name)\n"
    )
    assert "mpi4py.MPI" not in loaded_by(code)


def test_every_command_of_the_table_exists():
    """Each command in the group's table has a module with a click command."""
    import click

    from collbench.cli.__main__ import COMMANDS, cli

    context = click.Context(cli)
    assert [name for name in COMMANDS if not isinstance(cli.get_command(context, name), click.Command)] == []


def test_every_command_speaks_json_and_explains_its_options():
    """Every command has --json, and every option of every command a help text."""
    import click

    from collbench.cli.__main__ import COMMANDS, cli

    context = click.Context(cli)
    for name in COMMANDS:
        for path, command in leaves(name, cli.get_command(context, name)):
            opts = [param for param in command.params if isinstance(param, click.Option)]
            assert any("--json" in option.opts for option in opts), f"{path} has no --json"
            assert not [o.opts for o in opts if not o.help and not o.hidden], (
                f"{path} has options without help"
            )


def leaves(name, command):
    """Yield (name, command) of a command, or of the commands of a group."""
    if hasattr(command, "commands"):
        for sub, inner in command.commands.items():
            yield from leaves(f"{name} {sub}", inner)
    else:
        yield name, command


def test_workers_run_the_installed_package_not_the_working_directory(tmp_path: Path):
    """With PYTHONSAFEPATH=1 a folder named collbench in the working directory is not what ``-m`` runs."""
    fake = tmp_path / "collbench"
    fake.mkdir()
    (fake / "__init__.py").write_text("")
    (fake / "worker.py").write_text("print('the wrong worker')")
    command = [sys.executable, "-m", "collbench.worker", "--help"]

    def run(**extra: str) -> str:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"} | extra
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    assert "the wrong worker" in run()
    assert "--plan" in run(PYTHONSAFEPATH="1")


@pytest.mark.process
def test_a_run_measures_with_the_installed_package(tmp_path: Path, mpiexec: Path):
    """A whole run inside a folder with another collbench measures, so its ranks took the installed one."""
    fake = tmp_path / "collbench"
    fake.mkdir()
    (fake / "__init__.py").write_text("raise SystemExit('the wrong collbench')")
    command = [str(Path(sys.executable).parent / "collbench"), "run", "--collectives", "allreduce", "--ranks", "2",
               "--sizes", "8", "--algorithms", "default", "--no-repeat", "-o", "out.jsonl"]  # fmt: skip
    env = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert kinds.count("cell") == 1


def test_pytest_imports_the_installed_package(pytestconfig: pytest.Config):
    """Tests are collected with importmode=importlib, so that no test folder is put on the path."""
    assert pytestconfig.getoption("importmode") == "importlib"
    assert str(ROOT / "tests") not in sys.path
