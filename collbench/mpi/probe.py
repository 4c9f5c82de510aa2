"""The machine's state, without MPI: a cache line bounced between two pinned threads, and memory copy.

On a shared host these jump between states that last for seconds to minutes, and collectives jump with them
(facts: timing-and-statistics §9); launches are pooled or paired only within one state.
"""

import os
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

BOUNCE_S = 0.03
COPY_BYTES = 8 << 20
COPY_ROUNDS = 8


def _extension() -> ModuleType | None:
    try:
        return import_module("collbench.mpi._timed")
    except ImportError:
        return None


def probe() -> dict[str, Any]:
    """Return ``pingpong_ns``, ``copy_gbs`` (1e9 bytes/s), ``step_ns`` (clock) and ``load``; None = not measurable.

    Takes about 0.05 s. Nothing is measured without the C extension; a single core bounces no cache line.
    """
    extension = _extension()
    load = round(os.getloadavg()[0], 2)
    if extension is None:
        return {"pingpong_ns": None, "copy_gbs": None, "step_ns": None, "load": load}
    cores = sorted(os.sched_getaffinity(0))
    bounced = extension.pingpong_ns(cores[0], cores[1], BOUNCE_S) if len(cores) > 1 else None
    source = np.ones(COPY_BYTES, dtype=np.uint8)
    target = np.zeros_like(source)
    return {
        "pingpong_ns": None if bounced is None else round(float(bounced), 1),
        "copy_gbs": round(float(extension.copy_gbs(target, source, COPY_ROUNDS)), 3),
        "step_ns": extension.clock_step_ns(),
        "load": load,
    }
