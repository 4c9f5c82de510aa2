"""The timed loop on plain C functions, without any MPI call."""

import ctypes
import sys
from collections import Counter

import numpy as np
import pytest

from collbench.errors import UsageError
from collbench.mpi import timed
from collbench.mpi.buffers import Buffers, aligned
from collbench.mpi.calls import Call, MpiCallError, rotated_roots
from collbench.records import Case, Cell

SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

needs_c = pytest.mark.skipif(timed.timer_name() != "c", reason="the C extension was not built here")


def counting(fail_at=None):
    """A C function that counts its calls and may fail at one."""
    seen = []

    @SIGNATURE
    def function(state):
        seen.append(state)
        return 7 if fail_at is not None and len(seen) == fail_at else 0

    return ctypes.cast(function, ctypes.c_void_p).value, function, seen


@needs_c
def test_every_iteration_is_called_once_and_stamped_in_order():
    """n calls, n starts before n ends, in time order."""
    address, keep, seen = counting()
    start, end = timed.block(Call.from_pointer(address, 4242, keep), 50, sync="none")
    assert seen == [4242] * 50
    assert (end >= start).all()
    assert (start[1:] >= end[:-1]).all()


@needs_c
def test_rotation_goes_on_where_the_last_block_ended():
    """Argument sets are used in turn, from block to block."""
    address, keep, seen = counting()
    call = Call("pointer", None, None, address, ((1,), (2,), (3,)), (), keepalive=(keep,))
    timed.block(call, 4, sync="none")
    timed.block(call, 2, sync="none", first=4)
    assert seen == [1, 2, 3, 1, 2, 3]


@needs_c
def test_a_failing_call_ends_the_block():
    """The error code is not lost and no further call is made."""
    from collbench.mpi import _timed

    address, _keep, seen = counting(fail_at=3)
    start, end, late = np.zeros(9, np.int64), np.zeros(9, np.int64), np.zeros(9, np.bool_)
    arguments = np.array([[1]], np.int64)
    result = _timed.block(address, 1, arguments, 9, 0, 0, 0, 0, b"", 0, 1, start, end, late)
    assert result == (2, 7)
    assert len(seen) == 3


@needs_c
def test_every_call_follows_one_meeting_of_the_ranks():
    """All calls of the gate come first, in order, with their own arguments; an error there ends the block."""
    from collbench.mpi import _timed

    address, _keep, seen = counting(fail_at=5)
    start, end, late = np.zeros(9, np.int64), np.zeros(9, np.int64), np.zeros(9, np.bool_)
    gate, arguments = np.array([[10], [20]], np.int64), np.array([[1]], np.int64)
    result = _timed.block(address, 1, arguments, 9, 0, 1, address, 1, gate, 0, 1, start, end, late)
    assert result == (1, 7)
    assert seen == [10, 20, 1, 10, 20]


@needs_c
@pytest.mark.parametrize("spoil", ["start", "args", "arity", "iterations"])
def test_the_extension_refuses_arrays_that_are_too_small(spoil):
    """Nothing is written beyond the caller's memory."""
    from collbench.mpi import _timed

    address, _keep, seen = counting()
    arrays = [np.zeros(2 if spoil == "start" else 9, np.int64), np.zeros(9, np.int64), np.zeros(9, np.bool_)]
    arguments = np.zeros(0 if spoil == "args" else 1, np.int64)
    arity, iterations = (3 if spoil == "arity" else 1), (-1 if spoil == "iterations" else 9)
    with pytest.raises(ValueError, match=r"needed|arguments|negative"):
        _timed.block(address, arity, arguments, iterations, 0, 0, 0, 0, b"", 0, 1, *arrays)
    assert seen == []


@needs_c
def test_windows_start_when_they_should_and_misses_are_marked():
    """A call starts at or after its window's start; windows that were over when reached are late."""
    from collbench.mpi import _timed

    address, _keep, _ = counting()
    start, end, late = np.zeros(20, np.int64), np.zeros(20, np.int64), np.zeros(20, np.bool_)
    base, window = _timed.monotonic_ns() + 2_000_000, 100_000
    _timed.block(address, 1, np.array([[1]], np.int64), 20, 0, 2, 0, 0, b"", base, window, start, end, late)
    targets = base + window * np.arange(20)
    assert (start >= targets).all()
    assert not late[0]
    _timed.block(address, 1, np.array([[1]], np.int64), 20, 0, 2, 0, 0, b"", 1, 1, start, end, late)
    assert late.all()


@needs_c
def test_no_python_runs_between_the_stamps_of_a_block():
    """The interpreter is entered neither by a Python nor by a C call while the block runs."""
    clock = timed._C.monotonic_ns

    def events_inside(call):
        events = []

        def note(_frame, event, _argument):
            events.append((event, clock()))

        sys.setprofile(note)
        start, end = timed.block(call, 200, sync="none")
        sys.setprofile(None)
        return [event for event, at in events if start[0] <= at <= end[-1]]

    in_c = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value
    in_python, keep, _ = counting()
    assert events_inside(Call.from_pointer(in_c, 0)) == []
    # The same count sees a function that does run Python.
    assert len(events_inside(Call.from_pointer(in_python, 1, keep))) >= 200


def test_unknown_synchronisation_is_refused():
    """Wrong words and a window without a length."""
    call = Call.from_pointer(1, 0)
    with pytest.raises(UsageError, match="unknown synchronisation"):
        timed.block(call, 1, sync="hope")
    with pytest.raises(UsageError, match="window length"):
        timed.block(call, 1, sync="window")


def test_buffers_are_page_aligned_and_distinct():
    """An offset of 16 B costs 4 % at 64 KiB."""
    buffers = Buffers(100, 5000, "float32", copies=3)
    arrays = [*buffers.sends, *buffers.recvs]
    assert all(a.ctypes.data % 4096 == 0 for a in arrays)
    assert len({a.ctypes.data for a in arrays}) == 6
    assert len(buffers.send) == 25
    with pytest.raises(UsageError, match="bfloat16"):
        aligned(8, "bfloat16")


def test_an_error_stack_becomes_one_line():
    """MPICH prints a stack: the first line and the innermost reason matter."""
    text = "Other MPI error, error stack:\ninternal_Allreduce(142): failed\nimpl(48): not usable for the arguments"
    assert timed.error_text(text) == "Other MPI error: not usable for the arguments"
    assert timed.error_text("MPI_ERR_ARG: invalid argument") == "MPI_ERR_ARG: invalid argument"


def test_a_call_error_keeps_code_and_text():
    """Both are needed for the failed row."""
    error = MpiCallError(13, "MPI_ERR_ARG")
    assert (error.code, error.text) == (13, "MPI_ERR_ARG")
    assert "13" in str(error)


@pytest.mark.parametrize("size", [1, 2, 5, 6])
@pytest.mark.parametrize("copies", [1, 2, 3, 4])
def test_every_pair_of_buffers_and_every_root_comes_equally_often(copies, size):
    """Over one round of the argument sets; without a root to move there is one set for each pair."""
    case = Case(Cell("bcast", size, size, 64), "any", "default")
    roots = rotated_roots(case, size, root=size - 1, copies=copies, rotate_root=True)
    assert len(set(Counter(roots).values())) == 1
    assert set(roots) == set(range(size))
    assert roots[0] == size - 1
    assert len(set(Counter(i % copies for i in range(len(roots))).values())) == 1
    assert rotated_roots(case, size, copies=copies) == (0,) * copies
    unrooted = Case(Cell("allreduce", size, size, 64, op="sum"), "any", "default")
    assert rotated_roots(unrooted, size, copies=copies, rotate_root=True) == (0,) * copies


@needs_c
def test_states_are_called_in_turn_and_go_on_from_block_to_block():
    """Set i mod n, counted over blocks; the words name what goes round."""
    address, keep, seen = counting()
    call = Call.from_pointer(address, [11, 22, 33], keep, buffers=Buffers(8, 8, "int32", 3), roots=(0, 1, 0))
    timed.block(call, 4, sync="none")
    timed.block(call, 3, sync="none", first=4)
    assert seen == [11, 22, 33, 11, 22, 33, 11]
    assert call.rotation == "3 buffers, root"
    assert Call.from_pointer(address, 11, keep, buffers=Buffers(8, 8, "int32", 1)).rotation is None
    assert Call.from_pointer(address, 11, keep, buffers=Buffers(0, 0, "int32", 3)).rotation is None
