"""A launch seen from outside: has it ended, does it hang, has it used up its time?"""

import time
from pathlib import Path

from collbench import worker_status
from collbench.processes import Job
from collbench.worker_status import WorkerStatus

START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 30.0
OVERDUE = "overdue"
"""Kind of the problem where a launch did not end by itself in its time and ``GRACE_S`` more, or ``GRACE`` of it."""
ALONE_S = 5.0
"""How long a launcher may outlive all its ranks on this machine without a sign of life: PRRTE can lock itself up when
ranks end while MPI starts."""
LOOK_S = 0.25
GRACE_S = 5.0
GRACE = 0.25


class Watch:
    """One launch.

    Args:
        job: the started processes.
        path: status file of its rank 0.
        ranks: how many were started.
        timeout_s: least silence that counts as a hang.
        measuring_s: time that the launch has for measuring; None = no limit.

    Attributes:
        status: last sign of life; None before the first.
        startup_s: seconds from the start to it.
        problem: (kind, detail) once it has ended badly or must be ended.
    """

    def __init__(self, job: Job, path: Path, ranks: int, timeout_s: float, measuring_s: float | None) -> None:
        self._job, self._path = job, path
        self._start_timeout_s = max(START_TIMEOUT_S, timeout_s, 0.5 * ranks)
        self._measuring_s = measuring_s
        self._started = time.monotonic()
        self._looked_s = 0.0
        self._had_ranks = False
        self._alone_since: float | None = None
        self.status: WorkerStatus | None = None
        self.startup_s: float | None = None
        self.problem: tuple[str, str] | None = None

    def ended(self) -> bool:
        """Look once; say whether the launch is over, or must be."""
        code = self._job.poll()
        self.status = worker_status.read(self._path) or self.status
        passed = time.monotonic() - self._started
        if self.status and self.startup_s is None:
            self.startup_s = passed
        if code is not None:
            self.problem = None if code == 0 else ("crashed", f"exit status {code}")
            return True
        silent = time.time() - self.status.at if self.status else passed
        if self.status and self.status.state == "done":
            return silent > END_TIMEOUT_S
        limit = self.status.timeout_s if self.status else self._start_timeout_s
        if silent > limit:
            kind = "timeout" if self.status else "start_timeout"
            self.problem = (kind, f"no sign of life for {limit:.0f} s")
        elif self._alone(passed, silent):
            self.problem = ("crashed", "its ranks ended, the launcher did not")
        elif self.startup_s is not None and self._measuring_s is not None:
            allowed = self._measuring_s + max(GRACE_S, GRACE * self._measuring_s)
            if passed - self.startup_s > allowed:
                self.problem = (OVERDUE, f"still measuring after {allowed:.0f} s")
        return self.problem is not None

    def _alone(self, passed: float, silent: float) -> bool:
        """Say whether the launch had ranks on this machine and has had none for a while; looked at in silence only."""
        if passed - self._looked_s < LOOK_S or (self.status and silent < ALONE_S):
            return False
        self._looked_s = passed
        if len(self._job.members()) > 1:
            self._had_ranks, self._alone_since = True, None
        elif self._had_ranks and self._alone_since is None:
            self._alone_since = passed
        return self._alone_since is not None and passed - self._alone_since > ALONE_S
