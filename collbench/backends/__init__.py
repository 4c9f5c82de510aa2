"""Who measures: mpi (in worker processes), nccl (in process on GPUs), nccl-tests (the user's own binaries)."""

from collbench.registry import Registry

BACKENDS = Registry(
    "backend",
    {
        "mpi": "collbench.backends.mpi:measure_group",
        "nccl": "collbench.backends.nccl:Backend",
        "nccl-tests": "collbench.backends.nccl_tests:Backend",
    },
)
