"""Reading a table back: whose it is, how it is activated, and which sizes it gives to which algorithm."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench import algorithms
from collbench.algorithms.openmpi import RULES_FILE_IDS
from collbench.errors import UsageError
from collbench.installation import Installation
from collbench.records import ITEMSIZE
from collbench.tables import mpich, openmpi, openmpi_json

INFINITY = openmpi_json.LARGEST
DTYPE = "float32"
"""Data type of the calls that stretches speak about. A table that counts elements holds for every type, each at its own
total bytes; the file does not name the type it was measured with."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """One stretch of sizes (total bytes of a call with ``DTYPE``, both inclusive) at a rank count.

    Attributes:
        collective: name.
        ranks: rank count.
        first: first size.
        last: last size; INFINITY = no end.
        algorithm: what the table asks for; ``default`` = leave the library alone; None = cannot be told from the file.
    """

    collective: str
    ranks: int
    first: int
    last: int
    algorithm: str | None


@dataclass(frozen=True)
class LoadedTable:
    """A table file.

    Attributes:
        path: the file.
        format: name of its format.
        environment: what makes the library load it.
        stretches: what it says.
    """

    path: Path
    format: str
    environment: Mapping[str, str]
    stretches: tuple[Stretch, ...]


def load(path: Path, installation: Installation) -> LoadedTable:
    """Return a table that the library of ``installation`` can load.

    Raises:
        UsageError: unreadable, or not a table of this library.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the table {path}: {error}") from None
    library = installation.library
    if library == "openmpi":
        as_json = text.lstrip().startswith("{")
        environment = {
            **(_needs_of_json(text) if as_json else _needs(text.splitlines(), "# ")),
            "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
            "OMPI_MCA_coll_tuned_dynamic_rules_filename": str(path.resolve()),
        }
        name, stretches = ("openmpi-json", _openmpi_json(text)) if as_json else ("openmpi", _openmpi(text))
        return LoadedTable(path, name, environment, stretches)
    if library == "mpich" and installation.libmpi:
        return _mpich(path, text, mpich.defaults(Path(installation.libmpi)))
    if library == "intelmpi":
        return _intelmpi(path, text)
    raise UsageError(
        f"collbench cannot verify tables for {library}: it knows those of openmpi, mpich and intelmpi"
    )


def _needs(lines: Sequence[str], mark: str = "") -> dict[str, str]:
    start = f"{mark}needs beside it: "
    line = next((x for x in lines if x.startswith(start)), "")
    words = line.removeprefix(start).split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def _needs_of_json(text: str) -> dict[str, str]:
    openmpi_json.parse(text)
    comment = json.loads(text).get("comment")
    return _needs([str(line) for line in comment] if isinstance(comment, list) else [])


def _openmpi(text: str) -> tuple[Stretch, ...]:
    names = {number: name for name, number in RULES_FILE_IDS.items()}
    found = []
    for number, entries in openmpi.parse(text).items():
        name = names.get(number)
        if name is None:
            continue
        words = {row.native_id: row.name for row in algorithms.algorithms("openmpi", name)}
        for ranks, rows in entries:
            ends = [row.nbytes - 1 for row in rows[1:]] + [INFINITY]
            found += [
                Stretch(name, ranks, row.nbytes, end, words.get(row.number, "default"))
                for row, end in zip(rows, ends, strict=True)
            ]
    return tuple(found)


def _openmpi_json(text: str) -> tuple[Stretch, ...]:
    found: list[Stretch] = []
    for name, entries in openmpi_json.parse(text).items():
        own = {first for first, _, _ in entries}
        for ranks, last, rules in entries:
            start = 0
            for low, high, algorithm in rules:
                if low > start:
                    found.append(Stretch(name, ranks, start, low - 1, "default"))
                found.append(Stretch(name, ranks, low, high, algorithm))
                start = high + 1
            if start < INFINITY:
                found.append(Stretch(name, ranks, start, INFINITY, "default"))
            if last < INFINITY and last + 1 not in own:
                found.append(Stretch(name, last + 1, 0, INFINITY, "default"))
    return tuple(found)


def _mpich(path: Path, text: str, own: mpich.Tree) -> LoadedTable:
    try:
        tree: mpich.Tree = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path} is not an MPICH table: {error}") from None
    if not isinstance(tree, dict) or not all(key.startswith("collective=") for key in tree):
        raise UsageError(f"{path} is not an MPICH table: its keys must be collective=NAME")
    ours = {native: name for name, native in mpich.WORDS.items()}
    environment = {"MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": str(path.resolve())}
    found: list[Stretch] = []
    for key, branch in tree.items():
        if branch == own.get(key):
            continue
        native = key.removeprefix("collective=")
        environment[f"MPIR_CVAR_{native.upper()}_DEVICE_COLLECTIVE"] = "0"
        name = native if native not in mpich.WORDS else ours.get(native, native)
        name = ours.get(native, name)
        found += _mpich_stretches(name, branch.get("comm_type=intra", {}), own.get(key, {}))
    return LoadedTable(path, "mpich", environment, tuple(found))


def _mpich_stretches(name: str, intra: mpich.Tree, own: mpich.Tree) -> list[Stretch]:
    fallback = own.get("comm_type=intra", own)
    found: list[Stretch] = []
    for key, sizes in intra.items():
        match = re.fullmatch(r"comm_size<=(\d+)", key)
        if match is None or sizes == fallback:
            continue
        ranks, first = int(match[1]), 0
        for operator, leaf in sizes.items():
            limit = re.fullmatch(r"(avg|total)_msg_size<=(\d+)", operator)
            scale = ranks if name == "alltoall" else ITEMSIZE[DTYPE] if name in mpich.ELEMENTS else 1
            last = int(limit[2]) * scale if limit else INFINITY
            found.append(
                Stretch(name, ranks, first, last, "default" if leaf == fallback else _leaf_name(leaf))
            )
            first = last + 1
    return found


def _leaf_name(tree: Any) -> str | None:
    match = re.search(r'"algorithm=MPIR_\w+?_intra_(\w+)"', json.dumps(tree))
    return match[1] if match else None


def _intelmpi(path: Path, text: str) -> LoadedTable:
    environment = dict(re.findall(r"^export (I_MPI_ADJUST_\w+)='?([^'\n]+)'?$", text, re.MULTILINE))
    if not environment:
        raise UsageError(f"{path} holds no line 'export I_MPI_ADJUST_…'")
    header = re.search(r"^# ranks ([\d, ]+), ranks per node", text, re.MULTILINE)
    ranks = [int(word) for word in re.findall(r"\d+", header[1])] if header else []
    found: list[Stretch] = []
    for variable, value in environment.items():
        word = variable.removeprefix("I_MPI_ADJUST_").lower()
        name = {"reduce_scatter_block": "reduce_scatter", "reduce_scatter": "reduce_scatter_v"}.get(
            word, word
        )
        rows = {row.native_id: row.name for row in algorithms.algorithms("intelmpi", name)}
        for number, first, last in re.findall(r"(\d+):(\d+)-(\d+)", value):
            found += [Stretch(name, p, int(first), int(last), rows.get(int(number))) for p in ranks]
    return LoadedTable(path, "intelmpi", environment, tuple(found))
