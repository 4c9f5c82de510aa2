"""Buffers and roots that go round: measured, validated in every position, and kept apart from fixed ones."""

import json

import pytest

from collbench import method, results
from collbench.errors import UsageError

pytestmark = pytest.mark.process


def _measured(cli, path, *words):
    done = cli("run", "--collectives", "bcast,allreduce,gather", "--ranks", "2", "--sizes", "1K", "--algorithms",
               "default,portable:binomial,portable:ring", "--iterations", "12", "--no-prove", "-o", path,
               *words)  # fmt: skip
    assert done.status == 0, done.stderr
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert not [line for line in lines if line["kind"] == "failed"]
    return lines


def test_rows_say_what_goes_round_and_are_not_compared_with_fixed_ones(cli, tmp_path):
    """Both in the library's and collbench's own algorithms; only rooted collectives have a root to move."""
    lines = _measured(cli, tmp_path / "around.jsonl", "--rotate-buffers", "3", "--rotate-root")
    _measured(cli, tmp_path / "fixed.jsonl")
    request = lines[0]["request"]["profile"]["sampling"]
    assert (request["rotate_buffers"], request["rotate_root"]) == (3, True)
    cells = [line for line in lines if line["kind"] == "cell"]
    found = {(c["case"]["collective"], c["case"]["provider"] == "portable"): c["rotation"] for c in cells}
    assert {words for (name, _), words in found.items() if name == "allreduce"} == {"3 buffers"}
    assert {words for (name, _), words in found.items() if name != "allreduce"} == {"3 buffers, root"}
    assert {own for _, own in found} == {True, False}
    around, fixed = (results.frame(results.read(tmp_path / f"{n}.jsonl")) for n in ("around", "fixed"))
    assert set(fixed["rotation"]) == {"none"}
    with pytest.raises(UsageError, match=r"rotation of \w+ on 2 ranks is (3 buffers.*none|none.*3 buffers)"):
        method.check(fixed, around)
    method.check(fixed, around, ["rotation"])


def test_a_fault_in_a_later_position_is_seen(launch):
    """A second argument set that works on the first one's memory leaves the second pair of buffers wrong."""
    done = launch(
        2,
        """
        from dataclasses import replace
        from collbench.mpi import calls, check, library, start
        from collbench.records import Case, Cell

        MPI = start.start()
        world = MPI.COMM_WORLD
        case = Case(Cell("gather", 2, 2, 4096), library.identify(MPI).name, "default")
        call = calls.prepare(MPI, world.Dup(), case, copies=2, rotate_root=True)
        assert call.roots == (0, 1), call.roots
        right = check.validate(MPI, world, call, case)
        first = call.argument_sets[0]
        wrong = check.validate(MPI, world, replace(call, argument_sets=(first, first)), case)
        everyone = world.gather((right, wrong))
        if world.rank == 0:
            for right, wrong in everyone:
                print(right, "in call 1 of the rotation" in (wrong or ""))
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["None True"] * 2, done.stdout
