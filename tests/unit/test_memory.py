"""Memory: what is free under which limits, what a plan needs, and the refusal before anything starts."""

import pytest

from collbench import memory
from collbench.errors import UnansweredError
from collbench.profile import Sampling
from collbench.records import Case, Cell

MIB = 1 << 20


def _machine(tmp_path, cgroup_line: str, files: dict[str, str], free_mib: int = 8000):
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable:    {free_mib * 1024} kB\n")
    (proc / "self/cgroup").write_text(cgroup_line)
    root.mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return memory.available_bytes(proc, root)


@pytest.mark.parametrize(
    ("line", "files", "free_mib"),
    [
        ("0::/\n", {}, 8000),
        ("0::/\n", {"memory.max": "max\n", "memory.current": "5\n"}, 8000),
        ("0::/\n", {"memory.max": f"{500 * MIB}\n", "memory.current": f"{100 * MIB}\n"}, 400),
        ("0::/job/step\n", {"job/memory.max": f"{300 * MIB}\n", "job/memory.current": f"{100 * MIB}\n",
                            "job/step/memory.max": f"{900 * MIB}\n", "job/step/memory.current": "0\n"}, 200),
        ("0::/\n", {"memory.max": f"{500 * MIB}\n", "memory.high": f"{200 * MIB}\n",
                    "memory.current": f"{100 * MIB}\n"}, 100),
        ("0::/\n", {"memory.max": f"{500 * MIB}\n", "memory.current": f"{400 * MIB}\n",
                    "memory.stat": f"anon 5\ninactive_file {50 * MIB}\n"}, 150),
        ("0::/\n", {"memory.max": f"{500 * MIB}\n", "memory.current": f"{600 * MIB}\n"}, 0),
        ("4:memory:/slurm/job\n3:cpu:/\n", {"memory/slurm/job/memory.limit_in_bytes": f"{700 * MIB}\n",
                                           "memory/slurm/job/memory.usage_in_bytes": f"{100 * MIB}\n"}, 600),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": f"{2**63 - 4096}\n",
                          "memory/memory.usage_in_bytes": "1\n"}, 8000),
        ("0::/../outside\n", {"memory.max": f"{500 * MIB}\n", "memory.current": "0\n"}, 500),
    ],
)  # fmt: skip
def test_the_tightest_limit_counts(tmp_path, line, files, free_mib):
    """The kernel's estimate, or a cgroup's limit (v2 and v1, any level) where that leaves less."""
    assert free_mib * MIB == _machine(tmp_path, line, files)


def test_nothing_known_is_none(tmp_path):
    """Without /proc nothing is refused."""
    assert memory.available_bytes(tmp_path, tmp_path) is None


def _case(
    collective: str, ranks: int, nbytes: int, algorithm: str = "ring", provider: str = "openmpi"
) -> Case:
    return Case(Cell(collective, ranks, None, nbytes), provider, algorithm)


def _buffers(cases, per_node=None, sampling=None) -> int:
    here = min(cases[0].cell.ranks, per_node or cases[0].cell.ranks)
    return memory.needed_bytes(cases, per_node, sampling) - here * memory.RANK_BYTES


def test_all_algorithms_of_a_cell_hold_their_buffers_at_once():
    """They are interleaved, so each more costs its buffers; different cells do not add up."""
    one = _buffers([_case("allreduce", 4, MIB)])
    two = _buffers([_case("allreduce", 4, MIB), _case("allreduce", 4, MIB, "default")])
    assert two - one == 4 * 2 * MIB
    other = [_case("allreduce", 4, MIB), _case("bcast", 4, MIB)]
    assert memory.needed_bytes(other) == max(memory.needed_bytes([c]) for c in other)


def test_portable_algorithms_need_scratch_memory_too():
    """collbench's own schedules count double."""
    own = _buffers([_case("allreduce", 4, MIB), _case("allreduce", 4, MIB, "tree", "portable")])
    assert own - _buffers([_case("allreduce", 4, MIB)]) == 2 * 4 * 2 * MIB


def test_a_check_takes_no_more_for_a_larger_result():
    """Beside its buffers a large cell needs what a small one needs: results are compared a stretch at a time."""
    small, large = ([_case("allreduce", 4, n, "default")] for n in (MIB, 1024 * MIB))
    # A pair of buffers, a pair for a proof, and what the library takes for itself.
    assert memory.needed_bytes(large) - memory.needed_bytes(small) == 4 * (2 + 2 + 1) * 1023 * MIB


def test_pairs_of_buffers_that_go_round_count_each():
    """Three pairs take three times the buffers; a schedule of collbench's own has scratch memory for each."""
    three = Sampling(rotate_buffers=3)
    one = [_case("allreduce", 4, MIB)]
    pair = 4 * 2 * MIB
    assert _buffers(one, sampling=three) - _buffers(one) == 2 * pair
    own = [_case("allreduce", 4, MIB, "tree", "portable")]
    assert _buffers(own, sampling=three) - _buffers(own) == 2 * 2 * pair


def test_roots_that_go_round_make_every_rank_a_root():
    """Each rank holds the whole of a gather; a collective without a root needs no more than before."""
    around = Sampling(rotate_root=True)
    # Two pairs (one for a proof) of a whole and a part, and the library's own whole.
    assert _buffers([_case("gather", 4, 4 * MIB)], sampling=around) == 4 * (2 * (4 + 1) + 4) * MIB
    one = [_case("allreduce", 4, MIB)]
    assert _buffers(one, sampling=around) == _buffers(one)


def test_rooted_collectives_need_their_total_once():
    """The root holds all, the others a part each."""
    parts = _buffers([_case("gather", 4, 4 * MIB)]) - _buffers([_case("gather", 4, 4 * MIB)], 1)
    assert parts == 3 * (2 + 1) * MIB  # a pair, a pair for a proof, and the library


def test_only_the_ranks_of_one_node_count():
    """Eight ranks on two nodes need half of eight on one."""
    case = [_case("allreduce", 8, MIB)]
    assert memory.needed_bytes(case, 4) * 2 == memory.needed_bytes(case)


def test_no_case_needs_nothing():
    """An empty plan fits everywhere."""
    assert memory.needed_bytes([]) == 0


def test_a_plan_that_does_not_fit_is_refused():
    """One sentence with need, what is free, and what to change."""
    with pytest.raises(
        UnansweredError, match=r"needs about .* TiB on one node but only .* free: use smaller --sizes"
    ):
        memory.check([_case("allreduce", 8, 1 << 40)])
    memory.check([_case("allreduce", 2, 1024)])


def test_shared_memory_is_measured_where_it_is(tmp_path):
    """Free bytes of the file system; None where there is none."""
    assert memory.shared_memory_bytes(tmp_path) > 0
    assert memory.shared_memory_bytes(tmp_path / "gone") is None
