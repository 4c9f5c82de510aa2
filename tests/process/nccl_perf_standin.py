#!/usr/bin/env python3
# ruff: noqa: E501 - real output has long lines
"""Test only: prints what an nccl-tests binary prints. It measures nothing and its numbers are made up.

STANDIN_HANG, STANDIN_CRASH, STANDIN_WRONG: sizes at which it hangs, ends badly, or counts wrong elements.
STANDIN_INTERRUPT: size at which the one who started it is told to end.
STANDIN_RANKS, STANDIN_NODES: what a launcher would have started. STANDIN_DEAF: variables do not reach "NCCL".
"""

import argparse
import json
import os
import signal
import sys
from pathlib import Path

ITEMSIZE = {"float": 4, "half": 2, "double": 8, "bfloat16": 2, "int8": 1}
FUNCTION = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter",
            "broadcast": "Broadcast", "alltoall": "AlltoAll", "sendrecv": "SendRecv"}  # fmt: skip


def time_us(algorithm, protocol, size):
    """Trees and LL win small, rings and Simple win large."""
    latency = {"tree": 8.0, "ring": 20.0}[algorithm] + {"ll": 0.0, "ll128": 4.0, "simple": 12.0}[protocol]
    rate = {"tree": 150e3, "ring": 220e3}[algorithm] * {"ll": 0.4, "ll128": 0.9, "simple": 1.0}[protocol]
    return latency + size / rate


def choice(size):
    """What "NCCL" takes when nothing is forced: a poor threshold, so that tuning has something to gain."""
    return ("tree", "ll") if size <= 4096 else ("ring", "simple")


def main():
    """Print one table."""
    collective = Path(sys.argv[0]).name.removesuffix("_perf")
    parser = argparse.ArgumentParser(add_help=False)
    for name, default in (
        ("-b", 8),
        ("-e", 8),
        ("-f", 2),
        ("-g", 1),
        ("-n", 20),
        ("-w", 5),
        ("-c", 1),
        ("-a", 1),
        ("-G", 0),
    ):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("-d", default="float")
    parser.add_argument("-o", default="sum")
    parser.add_argument("-J")
    parser.add_argument("-h", action="store_true")
    args = parser.parse_args()
    if args.h:
        print(
            "USAGE: perf \n\t[-b,--minbytes <min size in bytes>]"
            + ("\n\t[-J,--output_file <file>]" if os.environ.get("STANDIN_JSON") else "")
        )
        return 0
    ranks, nodes = int(os.environ.get("STANDIN_RANKS", args.g)), int(os.environ.get("STANDIN_NODES", "1"))
    forced = (
        {}
        if os.environ.get("STANDIN_DEAF")
        else {k: os.environ[k] for k in ("NCCL_ALGO", "NCCL_PROTO") if k in os.environ}
    )
    debug = os.environ.get("NCCL_DEBUG") == "INFO"
    head(args, ranks, nodes)
    if debug:
        for name, value in forced.items():
            print(f"h0:100:100 [0] NCCL INFO {name} set by environment to {value}")
    if forced.get("NCCL_ALGO") not in (None, "Ring", "Tree"):
        print(
            f"h0:100:100 [0] NCCL WARN Error : no algorithm/protocol available for function {FUNCTION[collective]} with datatype ncclFloat32. NCCL_ALGO was set to {forced['NCCL_ALGO']}."
        )
        print(
            "h0: Test NCCL failure common.cu:418 'internal error - please report this issue to the NCCL developers / '"
        )
        return 3
    table(args, collective, ranks, forced, debug=debug)
    return 1 if os.environ.get("STANDIN_WRONG") else 0


def head(args, ranks, nodes):
    print("# nccl-tests version 2.17.8 nccl-headers=22907 nccl-library=22907")
    print(f"# Collective test starting: {Path(sys.argv[0]).name}")
    print(
        f"# nThread 1 nGpus {args.g} minBytes {args.b} maxBytes {args.e} step: {args.f}(factor) warmup iters: {args.w} iters: {args.n} agg iters: 1 validation: {args.c} graph: {args.G}"
    )
    print("#\n# Using devices")
    for rank in range(ranks):
        node = rank * nodes // ranks
        print(
            f"#  Rank {rank:2d} Group  0 Pid {100 + rank:6d} on         h{node} device {rank % (ranks // nodes):2d} [0000:{rank:02x}:00] TEST STAND-IN, NO GPU"
        )
    print("#")
    print(
        "#                                                              out-of-place                       in-place          "
    )
    print(
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"
    )
    print(
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)        ",
        flush=True,
    )


def table(args, collective, ranks, forced, *, debug):
    wrong, results, size = 0, [], args.b
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0, "sendrecv": 1.0}.get(
        collective, (ranks - 1) / ranks
    )
    while size <= args.e:
        shared = collective in ("all_gather", "reduce_scatter", "alltoall")
        unit = ITEMSIZE[args.d] * (ranks if shared else 1)
        real = size // unit * unit
        if os.environ.get("STANDIN_HANG") == str(real) and not debug:
            signal.pause()
        if os.environ.get("STANDIN_INTERRUPT") == str(real) and not debug:
            os.kill(os.getppid(), signal.SIGTERM)
            signal.pause()
        if os.environ.get("STANDIN_CRASH") == str(real) and not debug:
            print("h0: Test CUDA failure common.cu:295 'unspecified launch failure'", flush=True)
            os._exit(2)
        algorithm, protocol = choice(real)
        algorithm = forced.get("NCCL_ALGO", algorithm).lower()
        protocol = forced.get("NCCL_PROTO", protocol).lower()
        if debug:
            print(
                f"h0:100:100 [0] NCCL INFO {FUNCTION[collective]}: {real} Bytes -> Algo {algorithm.upper()} proto {protocol.upper()} channel{{Lo..Hi}}={{0..15}}"
            )
        us = time_us(algorithm, protocol, real)
        bad = 17 if os.environ.get("STANDIN_WRONG") == str(real) and not debug else 0
        wrong += bool(bad)
        redop = args.o if collective in ("all_reduce", "reduce_scatter") else "none"
        row = f"{real:12d}  {real // unit:12d}  {args.d:>8s}  {redop:>6s}  {'-1':>6s}"
        for half, count in ((us, "0"), (us * 1.01, str(bad))):
            rate = real / half / 1e3
            shown = "N/A" if collective in ("alltoall", "sendrecv") and half != us else count
            row += f"  {half:7.2f}  {rate:6.2f}  {rate * factor:6.2f}  {shown:>6s}"
        print(row, flush=True)
        results.append(
            {
                "size": real,
                "count": real // unit,
                "type": args.d,
                "redop": redop,
                "root": "-1",
                **{
                    where: {
                        "time": t,
                        "alg_bw": real / t / 1e3,
                        "bus_bw": real / t / 1e3 * factor,
                        "nwrong": 0,
                    }
                    for where, t in (("out_of_place", us), ("in_place", us * 1.01))
                },
            }
        )
        size *= args.f
    print(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    print("# Avg bus bandwidth    : 100.000 \n#\n# Collective test concluded: x_perf\n#")
    if args.J:
        devices = [
            {
                "rank": r,
                "group": 0,
                "pid": 100 + r,
                "hostname": "h0",
                "device": r,
                "device_hex": f"0x{r}",
                "device_info": "TEST STAND-IN, NO GPU",
            }
            for r in range(ranks)
        ]
        Path(args.J).write_text(
            json.dumps(
                {
                    "version": 3,
                    "start_time": "x",
                    "args": [f"{collective}_perf", "-a", str(args.a)],
                    "env": [],
                    "nccl_version": 22907,
                    "end_time": "y",
                    "config": {
                        "nthreads": 1,
                        "ngpus": args.g,
                        "minimum_bytes": args.b,
                        "maximum_bytes": args.e,
                        "step_factor": args.f,
                        "warmup_iters": args.w,
                        "iterations": args.n,
                        "aggregated_iterations": 1,
                        "validation": args.c,
                        "graph": 0,
                        "devices": devices,
                    },
                    "results": results,
                    "out_of_bounds": {"count": 0, "okay": "true"},
                    "average_bus_bandwidth": 100.0,
                    "errors": [],
                }
            )
        )


if __name__ == "__main__":
    sys.exit(main())
