"""Errors carry the exit status the command ends with, and name the nearest valid names."""

import pytest

from collbench import errors


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.UsageError, 2),
        (errors.UnansweredError, 3),
        (errors.AnswerIsNoError, 1),
        (errors.InterruptedRunError, 130),
    ],
)
def test_each_error_has_its_exit_status(kind, status):
    """2 wrong use, 3 cannot be answered, 1 the answer is no, 130 interrupted."""
    assert issubclass(kind, errors.CollbenchError)
    assert kind("a sentence").exit_status == status


def test_an_unknown_name_is_answered_with_the_nearest():
    """A typing error names what was probably meant."""
    error = errors.unknown_name("collective", "allredcue", ["allreduce", "bcast", "reduce"])
    assert "'allredcue'" in str(error)
    assert "did you mean 'allreduce'" in str(error)


def test_a_name_near_nothing_is_answered_with_all():
    """Where nothing is near, all valid names are listed."""
    assert str(errors.unknown_name("thing", "zzz", ["b", "a"])).endswith("choose from a, b")
