"""From an NCCL plan to processes of nccl-tests, and what one process printed to rows."""

import random
import re
from collections.abc import Iterable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from collbench import importers
from collbench.backends.nccl_model import Hardware
from collbench.backends.nccl_plan import NcclPlan, iterations, setting
from collbench.backends.nccl_tests_command import Batch, geometric
from collbench.collectives import round_nbytes
from collbench.errors import CollbenchError
from collbench.importers import nccl_log
from collbench.importers.model import Options, Table
from collbench.importers.source import Source
from collbench.profile import Profile
from collbench.records import ITEMSIZE, Case, Evidence

_REFUSED = re.compile(
    r"(?:[Nn]o algorithm/protocol[^\n]*|[Nn]o NCCL algorithm[^\n]*|NCCL_(?:ALGO|PROTO) was set to[^\n]*|"
    r"[Ii]nvalid (?:algorithm|protocol)[^\n]*)"
)


def batches(plan: NcclPlan, profile: Profile, repetition: int, seed: int, fixed: int | None) -> list[Batch]:
    """Return the processes of one repetition in shuffled order, rank counts ascending."""
    asked = _asked_sizes(profile)
    found = []
    for ranks in plan.ranks:
        groups: dict[object, list[Case]] = {}
        for case in plan.of(ranks):
            cell = case.cell
            key = (case.provider, *setting(case), cell.collective, cell.dtype, cell.op)
            groups.setdefault(key, []).append(case)
        here = [
            b
            for cases in groups.values()
            for b in _split(cases, asked, repetition, plan.request.hardware, fixed)
        ]
        here.sort(key=lambda b: (b.case.cell.collective, b.case.label, b.case.cell.dtype, b.first))
        random.Random(f"{seed}/{repetition}/{ranks}").shuffle(here)  # noqa: S311 - an order, not a secret
        found += here
    return found  # fmt: skip


def _asked_sizes(profile: Profile) -> set[int]:
    return {size for sweep in profile.sweeps for size in sweep.sizes}


def _split(
    cases: list[Case], asked: set[int], repetition: int, hardware: Hardware, fixed: int | None
) -> list[Batch]:
    """Cut one setting's cases into geometric runs of the sizes asked for (the tool rounds them itself)."""
    cell = cases[0].cell
    wanted = {c.cell.nbytes for c in cases}
    unrounded: dict[int, int] = {}
    for size in sorted(asked):
        rounded = round_nbytes(cell.collective, size, cell.ranks, ITEMSIZE[cell.dtype])
        if rounded in wanted:
            unrounded.setdefault(rounded, size)
    found = []
    for first, last, factor in geometric(sorted(unrounded.values())):
        pairs = tuple((r, s) for r, s in sorted(unrounded.items()) if first <= s <= last)
        inside = {r for r, _ in pairs}
        mine = tuple(
            sorted(
                (c for c in cases if c.cell.nbytes in inside), key=lambda c: (c.cell.nbytes, c.cell.in_place)
            )
        )
        count = iterations(mine[-1], hardware, fixed)
        found.append(Batch(mine, first, last, factor, count, repetition, pairs))
    return found  # fmt: skip


def without(batch: Batch, done: Iterable[int]) -> list[Batch]:
    """Return what is left of a batch when the rounded sizes in ``done`` are finished."""
    gone = set(done)
    left = [(r, s) for r, s in batch.sizes if r not in gone]
    rest = []
    for first, last, factor in geometric([s for _, s in left]):
        pairs = tuple((r, s) for r, s in left if first <= s <= last)
        inside = {r for r, _ in pairs}
        cases = tuple(c for c in batch.cases if c.cell.nbytes in inside)
        rest.append(replace(batch, cases=cases, first=first, last=last, factor=factor, sizes=pairs))
    return rest


def read_output(text: str, batch: Batch, tool: str, json_file: Path | None = None) -> Table | None:
    """Return the table that one process printed; None where there is none.

    Args:
        text: its standard output.
        batch: what was asked for.
        tool: nccl-tests or rccl-tests.
        json_file: what ``-J`` wrote; used where it can be read, the text otherwise.
    """
    cell = batch.case.cell
    options = Options(cell.collective, cell.ranks, cell.ranks_per_node, skip_bad_rows=True)
    attempts: list[tuple[bytes, str, str]] = []
    if json_file and json_file.is_file():
        attempts.append((json_file.read_bytes(), json_file.name, "nccl-tests-json"))
    attempts.append((text.encode(), "output.txt", tool))
    for data, name, form in attempts:
        try:
            found = importers.read(Source(BytesIO(data), name), options, form)
        except CollbenchError:
            # Cut off or without rows: the text may still have some; without any, the caller says what happened.
            continue
        return found.tables[0]
    return None


def refusal(text: str) -> str | None:
    """Return NCCL's own words where it refuses the forced algorithm or protocol; None where it does not."""
    found = _REFUSED.search(text)
    return " ".join(found[0].split())[:200] if found else None


def prove(text: str, batch: Batch) -> dict[int, tuple[Evidence, dict[str, object]]]:
    """Return size → (evidence, extra fields) from the log of an untimed launch.

    A variable that NCCL does not echo did not reach it: then nothing is proven, whatever ran.
    """
    log = nccl_log.NcclLog()
    for line in text.splitlines():
        log.take(line)
    planned = batch.environment()
    lost = [
        n for n in planned if n in ("NCCL_ALGO", "NCCL_PROTO") and log.environment.get(n, "") != planned[n]
    ]
    found = {}
    for nbytes, _ in batch.sizes:
        case = batch.case
        evidence, extra = nccl_log.evidence(
            log, case.cell.collective, nbytes, case.cell.ranks, case.algorithm
        )
        ran = extra.get("effective_params", {})
        asked = dict(case.params).get("protocol")
        if asked and isinstance(ran, dict) and ran.get("protocol", asked) != asked:
            evidence = replace(
                evidence, status="contradicted", detail=f"protocol {ran['protocol']} ran, not {asked}"
            )
        if lost and evidence.status == "proven":
            words = f"NCCL did not echo {', '.join(lost)}: the launcher may not have forwarded it"
            evidence = replace(evidence, status="unknown", detail=words)
        found[nbytes] = (evidence, extra)
    return found
