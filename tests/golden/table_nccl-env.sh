# collbench 0.1.0 table for nccl 5.0.11
# from: made
# thread level single, memory host
# dtype float32, nodes 1
# ranks 8, ranks per node 8
# measured under: none
# needs beside it: none
# margin over the default 2.0%, allowance 1.0%
# sizes: not expressible
# cannot say: sizes and rank counts: only collectives whose whole table agrees are set
# cannot say: a tuner plugin beside it: NCCL_ALGO outranks the plugin
export NCCL_ALGO='AllReduce:Ring'
# measured up to 0 B
export NCCL_PROTO='AllReduce:Simple'
