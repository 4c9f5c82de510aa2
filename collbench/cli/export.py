"""``collbench export``: rows for other programs, and run files that name no machine and nobody."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import pandas as pd

from collbench import environment, results
from collbench.cli.options import json_option
from collbench.errors import UsageError
from collbench.runfile import RunWriter, parse_lines

_NESTED = ("blocks_s", "percentiles_s", "warnings")
SUFFIXES = (".csv", ".parquet", ".jsonl")


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="FILE.csv, FILE.parquet or FILE.jsonl; never overwritten.")  # fmt: skip
@click.option("--reduce", "reduced", is_flag=True,
              help="Run files with hosts (h0 …), users and paths replaced: NAME.reduced.jsonl, or -o.")  # fmt: skip
@json_option
def command(runs: tuple[str, ...], output: Path | None, reduced: bool, as_json: bool) -> None:
    """Write the cells of runs as CSV or Parquet, or a reduced run file that may be passed on.

    RUN is a path, a run's name, last or last~2; without it the newest run. CSV and Parquet hold one row per cell and
    launch; lists and parameters are JSON text. 'collbench import' reads them back.
    """
    paths = [results.find(run) for run in runs or (None,)]
    suffix = _suffix(output, reduced=reduced, count=len(paths))
    if suffix == ".jsonl":
        written = _reduce(paths, output) if reduced else [_copy(paths[0], _required(output))]
        rows = sum(count for _, count in written)
    else:
        frame = results.frame([results.read(path) for path in paths])
        _table(frame, _required(output), suffix)
        written, rows = [(_required(output), len(frame))], len(frame)
    if as_json:
        click.echo(json.dumps({"files": [str(path) for path, _ in written], "rows": rows}))
    for path, count in written:
        click.echo(f"wrote {count} {'lines' if suffix == '.jsonl' else 'rows'} to {path}", err=as_json)


def _suffix(output: Path | None, *, reduced: bool, count: int) -> str:
    """Return which kind of file is wanted; UsageError where the options contradict each other."""
    suffix = output.suffix.lower() if output else (".jsonl" if reduced else "")
    if suffix not in SUFFIXES:
        raise UsageError(f"-o {output or 'FILE'} must end in {', '.join(SUFFIXES)}, which says the format")
    if reduced and suffix != ".jsonl":
        raise UsageError(
            f"--reduce writes run files, so -o {output} must end in .jsonl (CSV holds no hosts or paths)"
        )
    if suffix == ".jsonl" and output is not None and count > 1:
        raise UsageError(f"{count} runs do not fit in one run file {output}: export them one by one")
    return suffix


def _required(output: Path | None) -> Path:
    assert output is not None
    return output


def _table(frame: pd.DataFrame, output: Path, suffix: str) -> None:
    """Write rows as CSV or Parquet; nothing is left behind where that fails."""
    frame = frame.copy()
    for name in _NESTED:
        frame[name] = [json.dumps(value, ensure_ascii=False) for value in frame[name]]
    for name in ("nodes", "ranks_per_node", "iterations"):
        frame[name] = frame[name].astype("Int64")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("xb") as file:
            _write(frame, file, suffix)
    except FileExistsError:
        raise UsageError(f"{output} exists and is never overwritten: choose another -o") from None
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from None


def _write(frame: pd.DataFrame, file: Any, suffix: str) -> None:
    if suffix == ".csv":
        frame.to_csv(file, index=False)
        return
    try:
        frame.to_parquet(file, index=False, engine="pyarrow")
    except ImportError:
        Path(file.name).unlink()
        raise UsageError(
            "Parquet needs pyarrow: install it with  pip install 'collbench[parquet]'  or write .csv"
        ) from None


def _lines(path: Path) -> list[dict[str, Any]]:
    lines, remarks = parse_lines(path.read_bytes(), path)
    for remark in remarks:
        click.echo(f"collbench: {remark}", err=True)
    return lines


def _copy(path: Path, output: Path) -> tuple[Path, int]:
    return _save(_lines(path), output)


def _reduce(paths: Sequence[Path], output: Path | None) -> list[tuple[Path, int]]:
    """Write each run without hosts, users and paths; a host has the same stand-in in all lines of a run."""
    written = []
    for path in paths:
        mapping: dict[str, str] = {}
        target = output or path.with_name(f"{path.name.removesuffix('.jsonl')}.reduced.jsonl")
        lines = _lines(path)
        for line in lines:  # learn every host first: an early line may name one that a later line lists
            environment.redact(line, mapping)
        written.append(_save([environment.redact(line, mapping) for line in lines], target))
    return written


def _save(lines: Iterable[dict[str, Any]], output: Path) -> tuple[Path, int]:
    count = 0
    with RunWriter(output, create=True) as writer:
        for line in lines:
            writer.write(line)
            count += 1
    return output, count
