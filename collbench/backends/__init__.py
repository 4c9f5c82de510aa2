"""Who measures: mpi, nccl, nccl-tests."""
