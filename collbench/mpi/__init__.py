"""What touches MPI: library identity, control variables (MPI_T), the timed loop, proof of what ran."""
