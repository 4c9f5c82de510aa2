"""nccl-tests' JSON output (``-J``), and rccl-tests' where it is valid JSON."""

import json
import math
from typing import Any

from collbench.errors import UsageError
from collbench.importers import Importer, hints, nccl_rows
from collbench.importers.model import MAX_TIME_S, Imported, Options
from collbench.importers.nccl_log import NcclLog
from collbench.importers.nccl_resolve import RawTable
from collbench.importers.nccl_rows import BadRowError, Half, RawRow
from collbench.importers.nccl_table import Context, decode_version, finish
from collbench.importers.source import Source

_STATS = {"min_us": "i_min", "max_us": "i_max", "p99_us": "i_p99"}


def detect(head: str) -> bool:
    """Say whether the text begins as nccl-tests' JSON does."""
    return head[:1000].lstrip("\ufeff \r\n\t").startswith("{") and '"nccl_version"' in head


def read(source: Source, options: Options) -> Imported:
    """Return the table of one JSON document.

    Raises:
        UsageError: not JSON, nested beyond reason, not nccl-tests' layout, or a row that cannot be read.
    """
    document = _load(source)
    tool = "rccl-tests" if "rccl" in json.dumps(document.get("args"))[:2000] else "nccl-tests"
    context = Context(tool, source.name, options)
    imported = Imported(source.name, "nccl-tests-json")
    log = NcclLog(environment=hints.keep_environment(_pairs(document.get("env"))))
    code = document.get("nccl_version")
    if isinstance(code, int) and not isinstance(code, bool) and 1000 < code < 10**7:
        context.version = decode_version(code)
    raw = _table(document)
    for number, entry in enumerate(document["results"], start=1):
        try:
            raw.rows.append(_row(number, entry))
        except BadRowError as error:
            imported.reject(number, json.dumps(entry)[:200], str(error), skip=options.skip_bad_rows)
    reported = document.get("errors")
    for text in reported if isinstance(reported, list) else []:
        imported.remarks.append(f"the tool reports: {str(text)[:90]!r}")
    finish(raw, log, context, imported)
    return imported


def _load(source: Source) -> dict[str, Any]:
    text = source.whole().decode("utf-8-sig", "replace")
    try:
        document = json.loads(text)
    except RecursionError:
        raise UsageError(f"{source.name}: JSON nested deeper than any result file") from None
    except ValueError as error:
        raise UsageError(
            f"{source.name} is not valid JSON ({str(error)[:80]}): if the tool was stopped, import its text output"
        ) from None
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise UsageError(f"{source.name} is JSON, but has no list of results as nccl-tests writes it")
    return document


def _pairs(env: Any) -> list[tuple[str, str]]:
    """Return the variables, which are a list of ``NAME=VALUE`` or an object."""
    if isinstance(env, dict):
        return [(str(k), str(v)) for k, v in env.items()]
    words = [str(item).partition("=") for item in env] if isinstance(env, list) else []
    return [(name, value) for name, sep, value in words if sep]


def _table(document: dict[str, Any]) -> RawTable:
    config = document.get("config")
    config = config if isinstance(config, dict) else {}
    raw = RawTable(line=1, header=("redop", "root", "#wrong"), ended="end_time" in document)
    args = document.get("args")
    command = " ".join(map(str, args)) if isinstance(args, list) else ""
    raw.name = hints.test_name(command)
    raw.per_process = max(1, _count(config.get("nthreads")) * _count(config.get("ngpus")))
    raw.iterations = _count(config.get("iterations"), 0) or None
    raw.blocking = str(config.get("blocking_collectives")).lower() in ("true", "1")
    _devices(raw, config.get("devices") or document.get("devices"))
    bounds = document.get("out_of_bounds")
    if isinstance(bounds, dict):
        raw.out_of_bounds = _count(bounds.get("count"), 0)
    results = document["results"]
    first = results[0] if results and isinstance(results[0], dict) else {}
    half = first.get("out_of_place") or first.get("in_place")
    raw.cpu_time = isinstance(half, dict) and "cpu_time" in half
    return raw


def _devices(raw: RawTable, devices: Any) -> None:
    """Take the device list; a process that drives several GPUs lists its first only."""
    if not isinstance(devices, list):
        return
    for device in devices:
        if isinstance(device, dict) and isinstance(device.get("rank"), int):
            raw.gpu = raw.gpu or str(device.get("device_info") or "") or None
            host, group = str(device.get("hostname")), _count(device.get("group"), 0)
            start = min(max(device["rank"], 0), hints.MAX_RANKS)
            each = raw.per_process if start % raw.per_process == 0 else 1
            raw.devices += [(str(start + i), host, str(group)) for i in range(min(each, 64))]


def _count(value: Any, default: int = 1) -> int:
    """Return a whole number from a number or its text; the default where it is none."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return default
    return number if 0 <= number < 1 << 31 else default


def _row(number: int, entry: Any) -> RawRow:
    if not isinstance(entry, dict):
        raise BadRowError("it is no object")
    try:
        size, count = int(entry["size"]), int(entry["count"])
        root = int(str(entry.get("root", -1)).strip() or -1)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise BadRowError("size, count or root is missing or no number") from None
    dtype = str(entry.get("type"))
    if dtype not in nccl_rows.TYPES:
        raise BadRowError(f"unknown element type {dtype!r}")
    if not (0 <= size < 1 << 62 and count >= 0):
        raise BadRowError("size out of range")
    out, inside = (_half(entry, which) for which in ("out_of_place", "in_place"))
    redop = str(entry.get("redop") or "none")
    return RawRow(number, size, count, nccl_rows.TYPES[dtype], redop, root, out, inside)


def _half(entry: dict[str, Any], which: str) -> Half | None:
    half = entry.get(which)
    if half is None:
        return None
    try:
        time_us = float(half["time"] if "time" in half else half["cpu_time"])
        algbw, busbw = float(half["alg_bw"]), float(half["bus_bw"])
        wrong = None if half.get("nwrong") is None else float(half["nwrong"])
        per_iter = entry.get(f"{which}_per_iter")
        per_iter = per_iter if isinstance(per_iter, dict) else {}
        stats = tuple(
            (ours, float(per_iter[theirs])) for theirs, ours in _STATS.items() if theirs in per_iter
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        raise BadRowError(f"{which} is no group of numbers") from None
    if not (0 < time_us < MAX_TIME_S * 1e6 and 0 <= algbw < math.inf and 0 <= busbw < math.inf):
        raise BadRowError("time or bandwidth is not a positive number")
    return Half(time_us, algbw, busbw, wrong, stats)


FORMAT = Importer("nccl-tests-json", "nccl-tests JSON output (-J)", detect, read)
