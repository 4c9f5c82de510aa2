"""Switching the algorithm inside a running process: which communicator to use for a case."""

import os
from typing import Any

from collbench.errors import UnansweredError
from collbench.mpi.cvars import ControlVariableError, ControlVariables, Value
from collbench.mpi.forcing import (
    INTEL_NAMES,
    launch_environment,
    mpich_writes,
    needs_own_launch,
    one_launch_per_algorithm,
    openmpi_writes,
)
from collbench.mpi.library import Library
from collbench.records import Case

__all__ = ["Switch", "SwitchError", "launch_environment", "needs_own_launch", "one_launch_per_algorithm"]

_DYNAMIC = "coll_tuned_use_dynamic_rules"
_RULES_FILE = "coll_tuned_dynamic_rules_filename"
_PREFERENCE = "ompi_comm_coll_preference"
_FALLBACK = "MPIR_CVAR_COLLECTIVE_FALLBACK"


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
        self.default_comm = comm.Dup()
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
        if name == "mpich":
            return self._mpich(case)
        if case.provider != name:
            return self.default_comm
        if name == "intelmpi":
            return self._intel(case)
        if case.algorithm == "default" and case.component is None:
            return self.default_comm
        if name == "openmpi":
            return self._openmpi(case)
        raise SwitchError(
            f"collbench has no algorithm table for {name}: only default and portable algorithms run on it"
        )

    def close(self) -> None:
        """Free the duplicates and put all control variables back (collective)."""
        self._restore(set())
        for comm in self._made.values():
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

    def _restore(self, keep: set[str]) -> None:
        for name in [n for n in self._found if n not in keep]:
            self._variables().write(name, self._found.pop(name))

    # --- Open MPI: variables bind when a communicator is made ------------------------------------------------

    def _openmpi(self, case: Case) -> Any:
        key = (case.cell.collective, case.algorithm, case.component, case.params)
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
            return self._duplicate(case.component)
        finally:
            self._restore(set())

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

    # --- MPICH: variables act at the next call ----------------------------------------------------------------

    def _mpich(self, case: Case) -> Any:
        if case.provider != "mpich" or case.algorithm == "default":
            self._restore(set())
            return self.default_comm
        key = ("mpich", "forced")
        if key not in self._made:
            self._made[key] = self._comm.Dup()
        self._device_layer_is_off()
        writes = mpich_writes(case)
        self._restore({*writes, _FALLBACK})
        self._write(_FALLBACK, 0)
        for name, value in writes.items():
            self._write(name, value)
        return self._made[key]

    def _device_layer_is_off(self) -> None:
        single = self._mpi.Query_thread() == self._mpi.THREAD_SINGLE
        if single and os.environ.get("MPIR_CVAR_DEVICE_COLLECTIVES") != "none":
            raise SwitchError(
                "single-threaded MPICH bypasses forced algorithms after a few calls: start it with "
                "MPIR_CVAR_DEVICE_COLLECTIVES=none in the environment"
            )

    # --- Intel MPI: only what the launch set ------------------------------------------------------------------

    def _intel(self, case: Case) -> Any:
        variable = f"I_MPI_ADJUST_{INTEL_NAMES.get(case.cell.collective, '')}"
        present = os.environ.get(variable)
        if case.algorithm == "default":
            return self.default_comm
        wanted = launch_environment("intelmpi", self._library.version, "force", forced=[case])[variable]
        if present != wanted:
            raise SwitchError(
                f"Intel MPI takes {case.algorithm} only from the launch: start with {variable}={wanted} "
                f"(it was started with {present or 'nothing'})"
            )
        return self.default_comm
