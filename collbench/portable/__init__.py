"""collbench's own algorithms over point-to-point, one file a collective."""
