"""collbench's NCCL tuner plugin: the table's grammar, its C sources, and how they are compiled. Needs no CUDA."""
