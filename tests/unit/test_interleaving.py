"""Interleaved measurements: plans of several environments, the time for whole pairs, what can go on."""

import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from collbench import ab, interleaving, profile, results
from collbench.ab import Clock
from collbench.errors import UsageError
from collbench.installation import Installation
from collbench.request import RunOptions, with_options
from collbench.runfile import RunWriter
from collbench.sides import CONFIRM_FROM
from collbench.variant import Variant

OPENMPI = Installation(
    Path("python"), Path("mpiexec"), "openmpi", "openmpi", (5, 0, 11), "Open MPI 5.0.11", "libmpi.so"
)
MPICH = Installation(Path("python"), Path("mpiexec"), "hydra", "mpich", (5, 0, 0), "MPICH 5.0.0", "libmpi.so")
INTEL = Installation(
    Path("python"), Path("mpiexec"), "intel", "intelmpi", (2021, 17), "Intel MPI", "libmpi.so"
)
A, B, C = Variant("A"), Variant("B", {"X": "1"}), Variant("C", {"X": "2"})
OPTIONS = RunOptions(collectives=("bcast", "allreduce"), ranks=(2, 4), sizes=(8, 4096), seed=1)


def small(**changes):
    options = replace(OPTIONS, **changes)
    return with_options(profile.load("ci"), options), options


def test_each_pair_begins_with_another_environment():
    """Three environments, rank count by rank count: each repetition is begun by the next one."""
    found = ab.make_plan(*small(), (A, B, C), dict.fromkeys("ABC", OPENMPI), pairs=3, first=7)
    order = [(x.repetition, x.ranks, x.variant) for x in found.launches if x.ranks == 2]
    assert [v for _, _, v in order] == ["B", "C", "A", "C", "A", "B", "A", "B", "C"]
    assert {r for r, _, _ in order} == {7, 8, 9}
    assert [x.ranks for x in found.launches[:6]] == [2, 2, 2, 4, 4, 4]
    assert all(x.settings.get("X") == {"A": None, "B": "1", "C": "2"}[x.variant] for x in found.launches)


def test_both_sides_of_a_pair_measure_in_the_same_order():
    """The shuffle is the same in each environment, so that neither has an easier place."""
    first, second = ab.make_plan(*small(ranks=(2,)), (A, B), dict.fromkeys("AB", OPENMPI), pairs=1).launches
    assert first.cases == second.cases


def test_each_environment_has_its_own_proof_launch():
    """One a rank count, with the variant's variables; the default is proven at each size."""
    found = ab.proof_plan(*small(), (A, B), {"A": OPENMPI, "B": MPICH})
    assert [(x.variant, x.ranks, x.purpose) for x in found.launches] == [
        ("A", 2, "proof"), ("A", 4, "proof"), ("B", 2, "proof"), ("B", 4, "proof"),
    ]  # fmt: skip
    assert all(x.settings.get("X") == {"A": None, "B": "1"}[x.variant] for x in found.launches)
    assert all(len(x.cases) == 4 for x in found.launches)
    assert {c.provider for x in found.launches for c in x.cases if x.variant == "B"} == {"mpich"}


def test_what_needs_a_launch_of_its_own_is_not_proven_there():
    """Intel MPI's presets are forced by the environment of a launch: the proof launch shows the default only."""
    found = ab.proof_plan(
        *small(ranks=(2,), algorithms=("library", "portable")), (A, B), dict.fromkeys("AB", INTEL)
    )
    assert {c.algorithm for x in found.launches for c in x.cases} == {"default"}


def test_without_a_deadline_every_pair_fits():
    """No budget, no end."""
    clock = Clock()
    assert all(clock.begin() for _ in range(3))
    clock.end()
    assert len(clock.pairs) == 3
    assert not clock.spent


def test_a_pair_that_would_end_too_late_does_not_begin():
    """The longest of the latest pairs must fit; what a first pair takes is unknown, so it begins until the deadline."""
    now = time.monotonic()
    told = []
    clock = Clock(now + 3600, [4000.0, 10.0, 10.0], foretell=told.append)
    assert not clock.begin()
    assert clock.spent
    assert Clock(now + 3600, [4000.0, 10.0, 10.0, 10.0]).begin()
    assert Clock(now + 3600).begin()
    assert not Clock(now - 1).begin()
    assert told == []


def test_the_first_pair_foretells_how_many_fit():
    """Ten times its length and a little more is left: eleven in all."""
    told = []
    clock = Clock(time.monotonic() + 10_500, [1000.0], foretell=told.append)
    assert clock.begin()
    assert told == [11]


def header(**changes):
    wanted, options = small(**changes)
    flat = {
        "request": {"profile": asdict(wanted), "options": asdict(options)},
        "pairs": 4,
        "variants": ["A", "B"],
    }
    flat["environments"] = [interleaving._described(v, OPENMPI) for v in (A, B)]
    flat["around"] = interleaving._around()
    return flat


def restored(write_run, flat, found=OPENMPI):
    return interleaving.restore(results.read(write_run([], "ab", ab=flat)), lambda _variant: found)


def test_what_a_run_file_holds_is_restored(write_run):
    """Profile, options, environments and evidence are those that were asked for."""
    flat = header()
    lines = [
        {"kind": "launch", "launch": 0, "ranks": 2, "purpose": "proof", "variant": "B"},
        {
            "kind": "proof",
            "launch": 0,
            "case": {},
            "key": "k",
            "effective": "ring",
            "evidence": {"status": "proven"},
        },
    ]
    found = interleaving.restore(results.read(write_run(lines, "ab", ab=flat)), lambda _variant: OPENMPI)
    assert (found["profile"], found["options"]) == small()
    assert found["variants"] == [A, B]
    assert found["pairs"] == 4
    assert found["proofs"] == {"B": {"k": {"status": "proven", "effective": "ring"}}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"around": {"host": "elsewhere", "variables": {}}}, "host was 'elsewhere'"),
        ({"environments": None}, "does not say which environments"),
    ],
)
def test_what_cannot_be_restored_is_one_sentence(write_run, change, words):
    """Another machine, or a file of an older version."""
    flat = {k: v for k, v in {**header(), **change}.items() if v is not None}
    with pytest.raises(UsageError, match=words):
        restored(write_run, flat)


def test_a_redacted_file_cannot_go_on(write_run):
    """Paths and names are gone, so nobody can tell whether the environments are the same."""
    with pytest.raises(UsageError, match="is redacted"):
        restored(write_run, header(redact=True))


def test_another_library_cannot_go_on(write_run):
    """An update between the two halves of a comparison is named."""
    with pytest.raises(
        UsageError, match=r"variant A, version was 'Open MPI 5\.0\.11' and is 'Open MPI 5\.0\.12'"
    ):
        restored(write_run, header(), replace(OPENMPI, version_string="Open MPI 5.0.12"))


def test_a_changed_table_cannot_go_on(write_run, tmp_path):
    """The table's content counts, not its name."""
    table = tmp_path / "rules.conf"
    table.write_text("0\n")
    flat = header()
    flat["environments"][1] = interleaving._described(replace(B, table=table), OPENMPI)
    assert restored(write_run, flat)["variants"][1].table == table
    table.write_text("1\n")
    (tmp_path / "ab.jsonl").unlink()
    with pytest.raises(UsageError, match="variant B, table_sha256"):
        restored(write_run, flat)


def test_screening_forgets_the_second_stage(write_run, lines):
    """Suspects are chosen by the first stage alone, also when the second has begun."""
    rows = []
    for number, repetition in enumerate((0, CONFIRM_FROM)):
        rows.append(lines.launch(number, 2, repetition=repetition))
        rows.append(lines.cell(number, "bcast", 2, 8, "default", [1.0]))
    found = interleaving.screened(results.read(write_run(rows, "ab")))
    assert list(found.launches) == [0]
    assert [c["launch"] for c in found.cells] == [0]


def test_the_run_line_of_a_redacted_comparison_holds_no_path(tmp_path):
    """Environments, command line and surroundings are redacted like all other lines."""
    wanted, options = small(redact=True)
    job = interleaving.Job(
        wanted, options, (A, replace(B, mpi="/opt/secret/mpi")), dict.fromkeys("AB", OPENMPI), 2, tmp_path / "ab.jsonl",
        observe=RunWriter, say=print,
    )  # fmt: skip
    interleaving.create(job, "collbench", ["collbench", "ab", "--b-mpi", "/opt/secret/mpi"], self_test=False)
    text = job.path.read_text()
    assert "/opt/secret" not in text
    assert '"variants":["A","B"]' in text
