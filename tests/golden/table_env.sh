# collbench 0.1.0 table for openmpi 5.0.11
# from: made
# thread level single, memory host
# dtype float32, nodes 1
# ranks 8, ranks per node 8
# measured under: X=1
# needs beside it: none
# margin over the default 2.0%, allowance 1.0%
# sizes: total bytes
export X='1'
