"""Which algorithm really ran: measured once for a case, outside all timing.

Measured is what the library sent to whom (Open MPI's message counters), and how often a user-defined
operator was called on how many elements (any library, reductions only); where an algorithm takes no such operator,
the bits of a float sum. Reading a control variable back is not one.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from collbench.algorithms import algorithms
from collbench.components import Selected
from collbench.errors import UnansweredError
from collbench.mpi import ordering, signatures
from collbench.mpi.buffers import NUMPY_DTYPES
from collbench.mpi.calls import MpiCallError, prepare
from collbench.mpi.library import Library
from collbench.mpi.pvars import MessageCounters
from collbench.mpi.timed import block
from collbench.records import ITEMSIZE, Case, Evidence

SETTLING_CALLS = 6
"""Calls before a trace counts: single-threaded MPICH changes its algorithm after the fourth."""

TRACED = ("allreduce", "reduce", "reduce_scatter", "reduce_scatter_v")


def prove(MPI: Any, comm: Any, case: Case, library: Library, *, monitoring: bool) -> Evidence:
    """Show what runs when ``case`` is called on ``comm`` (collective; every rank returns the same).

    Args:
        MPI: the module ``mpi4py.MPI``.
        comm: what ``Switch.select(case)`` just returned.
        case: what is asked for. The call is made at root 0.
        library: from ``library.identify``.
        monitoring: whether the launch set OMPI_MCA_pml_monitoring_enable=1.

    Raises:
        MpiCallError: the call itself fails: the case cannot run here.
    """
    if case.provider == "portable":
        return Evidence("proven", "own_code", case.algorithm, (), "collbench's own schedule ran")
    if monitoring and library.name == "openmpi":
        evidence = _by_messages(MPI, comm, case)
        if evidence.status in ("proven", "contradicted") or case.cell.collective not in TRACED:
            return evidence
        traced = _by_operator(MPI, comm, case)
        return traced if traced.status != "unknown" else evidence
    if case.cell.collective in TRACED:
        return _by_operator(MPI, comm, case)
    if library.name == "openmpi":
        return Evidence(detail="message counts need a launch with OMPI_MCA_pml_monitoring_enable=1")
    return Evidence(detail=f"{library.name} offers no trace of {case.cell.collective}")


def _by_messages(MPI: Any, comm: Any, case: Case) -> Evidence:
    collective = case.cell.collective
    try:
        counters = MessageCounters(MPI, comm)
    except UnansweredError as error:
        return Evidence(detail=str(error))
    call = prepare(MPI, comm, case)
    try:
        messages, sent = counters.measure(partial(block, call, 1, sync="none"))
    finally:
        counters.close()
    itemsize = ITEMSIZE[case.cell.dtype]
    names = signatures.match_messages(
        case.provider, collective, sent // itemsize, messages, case.cell.nbytes // itemsize
    )
    detail = (
        f"messages sent by ranks 0 to {len(messages) - 1}: {_short([int(m) for m in messages.sum(axis=1)])}"
    )
    return _checked(case, signatures.judge(case.algorithm, names, "message_counts", detail))


def served(
    case: Case, evidence: Evidence, selected: Selected | None, *, several_nodes: bool = False
) -> Evidence:
    """Return the evidence with the component that serves the case, as far as the library shows it.

    Traces are those of the components in the table: what another component did is not called by their names.

    Args:
        case: what was asked for.
        evidence: what ran.
        selected: what the library's own log says of the communicator; None = there is no log.
        several_nodes: whether the ranks sit on more than one, where Open MPI puts other components before tuned.
    """
    if selected is None:
        if (
            case.provider == "openmpi"
            and case.algorithm == "default"
            and several_nodes
            and evidence.effective
        ):
            detail = f"on several nodes another component than tuned may serve the default; {evidence.detail}"
            return Evidence("unknown", evidence.by, None, (), detail)
        return replace(evidence, component=_component(case, evidence))
    component = selected.serving(case.cell.collective)
    if case.algorithm != "default" and case.component and component not in (None, case.component):
        detail = f"the library's log names {component}, {case.component} was asked for; {evidence.detail}"
        return Evidence("contradicted", "selection_log", component, (), detail, component)
    modelled = {row.component for row in algorithms(case.provider, case.cell.collective)}
    if component in modelled or evidence.effective is None:
        return replace(evidence, component=component)
    who = component or f"one of {', '.join(selected.components)}"
    detail = f"served by {who}, whose traces are not modelled; {evidence.detail}"
    return Evidence("unknown", evidence.by, None, (), detail, component)


def _component(case: Case, evidence: Evidence) -> str | None:
    """Return the component that all algorithms of a finding belong to: MPICH logs none, but its algorithms tell."""
    if case.provider != "mpich" or evidence.effective is None:
        return None
    wanted = {evidence.effective, *evidence.candidates}
    rows = [row for row in algorithms("mpich", case.cell.collective) if row.name in wanted]
    found = {row.component for row in rows}
    return found.pop() if len(found) == 1 and {row.name for row in rows} == wanted else None


class Recorder:
    """A commutative sum that notes how many elements each of its calls combines.

    Attributes:
        calls: element counts in order.
        op: the MPI operator; free it with ``close``.
    """

    def __init__(self, MPI: Any, dtype: "np.dtype[Any]") -> None:
        self.calls: list[int] = []
        self._dtype = dtype
        self.op = MPI.Op.Create(self._combine, commute=True)

    def _combine(self, left: Any, right: Any, _datatype: Any) -> None:
        source = np.frombuffer(left, dtype=self._dtype)
        target = np.frombuffer(right, dtype=self._dtype)
        self.calls.append(len(source))
        target += source

    def close(self) -> None:
        """Give the operator back to the library."""
        self.op.Free()


def trace_operator(MPI: Any, comm: Any, case: Case) -> list[list[int]]:
    """Return, per rank, the element counts of the operator calls of one call of ``case`` (collective).

    Raises:
        MpiCallError: the algorithm takes built-in operators only, or the call fails otherwise.
    """
    recorder = Recorder(MPI, np.dtype(NUMPY_DTYPES[case.cell.dtype]))
    try:
        call = prepare(MPI, comm, case, op=recorder.op)
        for _ in range(SETTLING_CALLS):
            recorder.calls.clear()
            block(call, 1, sync="none")
    finally:
        recorder.close()
    return [list(calls) for calls in comm.allgather(recorder.calls)]


def _by_operator(MPI: Any, comm: Any, case: Case) -> Evidence:
    try:
        ops = trace_operator(MPI, comm, case)
    except MpiCallError as error:
        return _by_bits(MPI, comm, case, f"takes no user-defined operator ({error.text})")
    total = case.cell.nbytes // ITEMSIZE[case.cell.dtype]
    names = signatures.match_ops(case.provider, case.cell.collective, ops, total)
    detail = f"operator calls on rank 0: {_short(ops[0])}, on rank {len(ops) - 1}: {_short(ops[-1])}"
    return _checked(case, signatures.judge(case.algorithm, names, "operator_trace", detail))


def _by_bits(MPI: Any, comm: Any, case: Case, why: str) -> Evidence:
    """Tell the family by the bits of a float sum: for algorithms that take built-in operators only."""
    orders = ordering.ORDERS.get((case.provider, case.cell.collective))
    if orders is None:
        return Evidence(detail=f"cannot be traced: {why}")
    elements = ordering.ELEMENTS_A_RANK * comm.size
    cell = replace(case.cell, nbytes=8 * elements, dtype="float64", op="sum", in_place=False)
    call = prepare(MPI, comm, replace(case, cell=cell))
    assert call.buffers is not None
    call.buffers.send[:] = ordering.inputs(comm.size, elements)[comm.rank]
    block(call, 1, sync="none")
    found = comm.bcast(ordering.families(call.buffers.recv) if comm.rank == 0 else None, 0)
    names = tuple(name for family in found for name in orders.get(family, ()))
    detail = f"{why}; its sum was added up in the order: {' or '.join(found) or 'unknown'}"
    return _checked(case, signatures.judge(case.algorithm, names, "float_bits", detail))


def _checked(case: Case, evidence: Evidence) -> Evidence:
    """Say "unknown" instead of "contradicted" when the asked algorithm's own trace is not modelled."""
    modelled = signatures.modelled(case.provider, case.cell.collective)
    if evidence.status == "contradicted" and case.algorithm not in modelled:
        detail = f"{evidence.detail}; looks like {evidence.effective}, {case.algorithm} has no known trace"
        return Evidence("unknown", evidence.by, None, (), detail)
    return evidence


def _short(numbers: list[int]) -> str:
    if not numbers:
        return "none"
    if len(numbers) > 1 and len(set(numbers)) == 1:
        return f"{len(numbers)} × {numbers[0]}"
    if len(numbers) > 8:
        return f"{len(numbers)} calls, {sum(numbers)} elements"
    return ", ".join(map(str, numbers))
