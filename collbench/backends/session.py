"""What one launch works with: communicators, the switch, sampling, and where lines go."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from collbench.mpi import calls, switch
from collbench.mpi.clock import Clock, Clocks
from collbench.mpi.library import Library
from collbench.mpi.state import Throttling
from collbench.profile import Sampling
from collbench.records import Case, Evidence

Line = Mapping[str, Any]


@dataclass
class Session:
    """What one launch works with; the same on every rank.

    Attributes:
        MPI: the module mpi4py.MPI.
        control: communicator for collbench's own agreement, never timed.
        library: the live library.
        switch: forces algorithms.
        sampling: how cells are sampled.
        launch: launch number, for the lines.
        node_of: node index of each rank (real or virtual).
        evidence: proof key → evidence found by the proof launch.
        emit: appends a line to the run file; does nothing on other ranks than 0.
        beat: tells the driver what is in flight: (case or None, timeout in seconds).
        sync: barrier, dissemination or window.
        clocks: the real nodes' clocks; None = all ranks share one.
        throttling: counts throttled cores; None = not watched.
        step_s: step of the clock; None = unknown.
        timeout_s: least time before a silent case counts as hung.
        warnings: doubts that hold for every row of this launch.
    """

    MPI: Any
    control: Any
    library: Library
    switch: switch.Switch
    sampling: Sampling
    launch: int
    node_of: Sequence[int]
    emit: Callable[[Line], None]
    beat: Callable[[Case | None, float], None]
    sync: str = "barrier"
    clocks: Clocks | None = None
    throttling: Throttling | None = None
    step_s: float | None = None
    timeout_s: float = 60.0
    evidence: dict[str, Evidence] = field(default_factory=dict)
    warnings: tuple[Line, ...] = ()

    @property
    def first(self) -> bool:
        """Say whether this is rank 0, the only one that reads the plan and writes the run file."""
        return bool(self.control.Get_rank() == 0)

    @property
    def several_clocks(self) -> bool:
        """Say whether ranks read different clocks."""
        return self.clocks is not None and self.clocks.several

    def refresh_clock(self) -> None:
        """Measure the clocks again when the last estimate is old; nothing where no window needs them (collective)."""
        if self.clocks is not None and self.sync == "window":
            self.clocks.refresh()

    def clock(self) -> Clock:
        """Return this rank's clock against rank 0's; the same clock where no window needs more."""
        return self.clocks.now() if self.clocks is not None and self.sync == "window" else Clock()


@dataclass
class Ready:
    """A case that passed its checks and can be timed.

    Attributes:
        case: what was asked for.
        call: prepared buffers and arguments.
        evidence: which algorithm runs.
        length: calls in one block, before jitter.
        blocks: blocks begun so far.
        jitter: blocks vary in length (not where the number of calls is fixed).
        window_s: distance of the start windows (sync "window" only).
        calls: timed calls so far, so that rotation goes on from block to block.
        late: of them, how many missed their window and were left out.
        messages: messages one after the other that one call stands for (sendrecv modes; otherwise 1).
        failed: a failed line was written.
        clock_error_ns: largest error of any rank's clock at the start of any block.
    """

    case: Case
    call: calls.Call
    evidence: Evidence
    length: int = 3
    blocks: int = 0
    jitter: bool = True
    window_s: float = 0.0
    calls: int = 0
    late: int = 0
    messages: int = 1
    failed: bool = False
    clock_error_ns: int = 0


def fail(session: Session, case: Case, reason: str, detail: str) -> None:
    """Emit a ``failed`` line: a reason and no number."""
    session.emit(
        {
            "kind": "failed",
            "launch": session.launch,
            "case": case.to_json(),
            "reason": reason,
            "detail": detail,
        }
    )
