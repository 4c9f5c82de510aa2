"""Switching the algorithm inside a running process: which communicator to use for a case."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from collbench import components
from collbench.algorithms import find
from collbench.errors import UnansweredError
from collbench.forcing import settings
from collbench.mpi.capture import stderr_of
from collbench.mpi.cvars import ControlVariableError, ControlVariables, Value
from collbench.mpi.forcing import mpich_writes, openmpi_writes
from collbench.mpi.guard import attach, release
from collbench.mpi.library import Library
from collbench.records import Case

SETTLING = 8
"""Barriers after which a communicator of MPICH has made its own arrangements."""
_DYNAMIC = "coll_tuned_use_dynamic_rules"
_RULES_FILE = "coll_tuned_dynamic_rules_filename"
_PREFERENCE = "ompi_comm_coll_preference"


class SwitchError(UnansweredError):
    """The asked algorithm cannot be forced in this process; the message says why and what would help."""


class Switch:
    """Gives, for each case, the communicator on which its algorithm is forced.

    All ranks of ``comm`` must call ``select`` with the same case in the same order.

    Args:
        MPI: the module ``mpi4py.MPI``.
        comm: the ranks that measure.
        library: from ``library.identify``.

    Attributes:
        default_comm: a duplicate of ``comm`` made before anything was written: the user's untouched stack.
    """

    def __init__(self, MPI: Any, comm: Any, library: Library) -> None:
        self._mpi = MPI
        self._comm = comm
        self._library = library
        self._selected: dict[tuple[Any, ...] | None, components.Selected] = {}
        self.default_comm = self._logged(None, comm.Dup)
        self._cvars: ControlVariables | None = None
        self._made: dict[tuple[Any, ...], Any] = {}
        self._found: dict[str, Value] = {}

    def select(self, case: Case) -> Any:
        """Return the communicator to call ``case`` on.

        Raises:
            SwitchError: it cannot be forced here, with the reason.
            UsageError: no such algorithm or parameter.
        """
        name = self._library.name
        if self._untouched(case):
            return self.default_comm
        if name == "mpich":
            return self._mpich(case)
        if name == "intelmpi":
            return self._intel(case)
        if name == "openmpi":
            return self._openmpi(case)
        raise SwitchError(
            f"collbench has no algorithm table for {name}: only default and portable algorithms run on it"
        )

    def selected(self, case: Case) -> components.Selected | None:
        """Return what the library logged when it made the communicator of a case; None where it logs nothing.

        Open MPI tells it in the log of a launch with ``components.VARIABLE``.
        """
        return self._selected.get(None if self._untouched(case) else _key(case))

    def _untouched(self, case: Case) -> bool:
        return case.provider != self._library.name or (case.algorithm == "default" and case.component is None)

    def _logged(self, key: tuple[Any, ...] | None, make: Callable[[], Any]) -> Any:
        """Make a communicator and keep what the library logs about the components that serve it."""
        if self._library.name != "openmpi" or not os.environ.get(components.VARIABLE):
            return make()
        with stderr_of(components.is_log) as lines:
            made = make()
        found = components.selections("".join(lines))
        if found:
            # Dup makes one communicator; a component may make further ones for itself while it is enabled.
            self._selected[key] = found[0]
        return made

    def close(self) -> None:
        """Free the duplicates (collective)."""
        for comm in self._made.values():
            release(comm)
            comm.Free()
        self._made.clear()
        self.default_comm.Free()

    def _variables(self) -> ControlVariables:
        if self._cvars is None:
            self._cvars = ControlVariables(self._mpi)
        return self._cvars

    def _write(self, name: str, value: Value) -> None:
        """Write one variable and remember what stood there first."""
        variables = self._variables()
        try:
            self._found.setdefault(name, variables.read(name))
            variables.write(name, value)
        except ControlVariableError as error:
            raise SwitchError(f"{self._library.string}: {error}") from None

    def _restore(self) -> None:
        while self._found:
            name, value = self._found.popitem()
            self._variables().write(name, value)

    # --- Open MPI: variables bind when a communicator is made ------------------------------------------------

    def _openmpi(self, case: Case) -> Any:
        key = _key(case)
        if key not in self._made:
            self._made[key] = self._openmpi_make(case)
        return self._made[key]

    def _openmpi_make(self, case: Case) -> Any:
        tuned = case.algorithm != "default" and case.component in (None, "tuned")
        try:
            if tuned:
                self._dynamic_rules()
                for name, value in openmpi_writes(case).items():
                    self._write(name, value)
            return self._logged(_key(case), lambda: self._duplicate(case.component))
        finally:
            self._restore()

    def _dynamic_rules(self) -> None:
        variables = self._variables()
        on = variables.read(_DYNAMIC)
        if variables.read(_RULES_FILE) and on:
            raise SwitchError(
                f"a rules file is loaded ({_RULES_FILE}) and outranks forced algorithms: start without it"
            )
        if on:
            return
        version = self._library.version
        if version is not None and version < (5,):
            raise SwitchError(
                f"Open MPI {'.'.join(map(str, version))} forces algorithms only when started with "
                f"OMPI_MCA_{_DYNAMIC}=1 in the environment"
            )
        self._write(_DYNAMIC, value=True)

    def _duplicate(self, component: str | None) -> Any:
        if component is None:
            return self._comm.Dup()
        info = self._mpi.Info.Create()
        info.Set(_PREFERENCE, component)
        made = self._comm.Dup_with_info(info)
        info.Free()
        return made

    # --- MPICH: variables act at the next call, so they are set around each block only -----------------------

    def _mpich(self, case: Case) -> Any:
        # An algorithm outside its limits can abort the whole job by an assertion.
        reason = find("mpich", case.cell.collective, case.algorithm).impossible(case.cell)
        if reason:
            raise SwitchError(f"MPICH's {case.cell.collective} {case.label} {reason}")
        key = _key(case)
        if key not in self._made:
            writes = mpich_writes(case)
            for name in writes:
                if not self._variables().exists(name):
                    raise SwitchError(f"{self._library.string} has no {name}: {case.label} cannot be forced")
            self._made[key] = attach(_settled(self._comm.Dup()), lambda: self._written(writes))
        return self._made[key]

    @contextmanager
    def _written(self, writes: dict[str, int | str]) -> Iterator[None]:
        try:
            for name, value in writes.items():
                self._write(name, value)
            yield
        finally:
            self._restore()

    # --- Intel MPI: only what the launch set ------------------------------------------------------------------

    def _intel(self, case: Case) -> Any:
        for variable, wanted in settings(case, "intelmpi", self._library.version):
            present = os.environ.get(variable)
            if present != wanted:
                raise SwitchError(
                    f"Intel MPI takes {case.algorithm} only from the launch: start with {variable}={wanted} "
                    f"(it was started with {present or 'nothing'})"
                )
        return self.default_comm


def _settled(comm: Any) -> Any:
    """Let MPICH set up its shared-memory barrier while nothing is forced; returns ``comm``.

    It does so in the first barrier after POSIX_NUM_COLLS_THRESHOLD (5) calls, with an allreduce of one int of its own,
    for which a forced algorithm need not be fit.
    """
    for _ in range(SETTLING):
        comm.Barrier()
    return comm


def _key(case: Case) -> tuple[Any, ...]:
    return (case.cell.collective, case.algorithm, case.component, case.params)
