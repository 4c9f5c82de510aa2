"""Starting a launch in a session of its own, watching it, and ending it with everything it started."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from collbench import components
from collbench.errors import UnansweredError

MARKER = "COLLBENCH_LAUNCH_ID"
"""Environment variable that every process of a launch inherits: proxies and daemons are found by it."""

TAIL_BYTES = 1 << 16
GRACE_S = 3.0


def new_marker() -> str:
    """Return an identity that no other launch on this machine has."""
    return uuid.uuid4().hex


class Job:
    """One started launcher and all processes that came from it on this machine.

    Args:
        argv: the command.
        env: its whole environment; must hold MARKER.
        log: file that takes its standard output and error.

    Raises:
        UnansweredError: the command cannot be started.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self._marker = env[MARKER]
        self.log = log
        try:
            with log.open("ab") as sink:
                self._process = subprocess.Popen(
                    list(argv),
                    env=dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise UnansweredError(
                f"cannot start {argv[0]}: {error.strerror}; run 'collbench doctor' to see what is missing"
            ) from None

    @property
    def pid(self) -> int:
        """Process id of the launcher, which is also its session's."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self._process.poll()

    def members(self) -> list[int]:
        """Return the live processes of this launch on this machine, the launcher's proxies and daemons included."""
        found = []
        needle = f"{MARKER}={self._marker}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if needle in (entry / "environ").read_bytes().split(b"\0") and not _zombie(entry):
                    found.append(int(entry.name))
            except OSError:
                # Gone between listing and reading, or another user's.
                continue
        return found

    def end(self, grace_s: float = GRACE_S) -> None:
        """End the launch and wait until nothing of it is left on this machine.

        The ranks go first and without a word: asked to end, Open MPI 4.1 would wake a stopped rank, and the hung
        launch would go on measuring. The launcher then has a moment to clean up on other nodes.
        """
        if self.poll() is None:
            self._kill(pid for pid in self.members() if pid != self.pid)
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=grace_s)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            members = self.members()
            if not members and self.poll() is not None:
                return
            self._kill(members)
            if self.poll() is None:
                self._process.kill()
            time.sleep(0.02)

    @staticmethod
    def _kill(pids: Iterable[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def tail(self, lines: int = 12) -> str:
        """Return the last lines that the launch printed, without a library's log of its components."""
        try:
            text = self.log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
        except OSError:
            return ""
        said = [line for line in text.strip().splitlines() if not components.is_log(line)]
        return "\n".join(said[-lines:])


def _zombie(entry: Path) -> bool:
    return (entry / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
