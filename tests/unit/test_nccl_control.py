"""How ranks find each other and agree; real sockets between threads."""

import socket
import threading

import numpy as np
import pytest

from collbench.backends.nccl_control import Place, SocketControl, place
from collbench.errors import UnansweredError


def _port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_ranks(ranks, work):
    """Run ``work(control)`` on threads, one a rank, and return the results in order."""
    address, results, errors = ("127.0.0.1", _port()), [None] * ranks, []

    def one(rank):
        try:
            control = SocketControl(Place(rank, ranks, rank, address), connect_s=20)
            results[rank] = work(control)
            control.barrier()
            control.close()
        except (OSError, UnansweredError, AssertionError) as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(r,)) for r in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_every_rank_gets_rank_0s_bytes_and_the_maximum(ranks):
    """Also empty and long texts."""
    long = bytes(range(256)) * 9000

    def work(control):
        shared = [control.share(text if control.rank == 0 else b"wrong") for text in (b"", b"x", long)]
        return shared, control.maximum(np.array([control.rank, -control.rank, 0.5])).tolist()

    for shared, most in run_ranks(ranks, work):
        assert shared == [b"", b"x", long]
        assert most == [ranks - 1, 0, 0.5]


def test_ranks_that_do_not_come_are_an_error_in_words():
    """Rank 0 names the address and what to set."""
    with pytest.raises(UnansweredError, match=r"do not find each other.*MASTER_ADDR"):
        SocketControl(Place(0, 2, 0, ("127.0.0.1", _port())), connect_s=0.2)


def test_a_rank_that_goes_is_noticed():
    """The others do not wait for ever."""

    address = ("127.0.0.1", _port())
    other = threading.Thread(target=lambda: SocketControl(Place(1, 2, 1, address)).close())
    other.start()
    control = SocketControl(Place(0, 2, 0, address), connect_s=20)
    other.join()
    with pytest.raises(UnansweredError, match="another rank has gone"):
        control.maximum(np.zeros(1))
    control.close()


def test_the_environment_says_who_we_are():
    """torchrun and our own launch, Slurm with MASTER_ADDR, MPI; and nothing at all."""
    torch = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "h0", "MASTER_PORT": "1000"}
    assert place(torch) == Place(3, 8, 1, ("h0", 1017))
    slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "MASTER_ADDR": "h0"}
    assert place(slurm) == Place(3, 8, 1, ("h0", 29517))
    assert place({"OMPI_COMM_WORLD_RANK": "0"}) is None
    for wrong in ({}, {"RANK": "0"}, {**torch, "RANK": "8"}, {**torch, "RANK": "x"}):
        with pytest.raises(UnansweredError):
            place(wrong)
