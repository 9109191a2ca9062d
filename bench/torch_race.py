"""all_reduce through torch.distributed, over Tutti, over Gloo, and over "fake", torch's backend that does nothing:
rounds that take turns, in the same processes.

    tutti-run -n 2 python bench/torch_race.py
    TORCH_FR_BUFFER_SIZE=0 tutti-run -n 2 python bench/torch_race.py --most 8     # without torch's flight recorder
    tutti-run --bind core -n 2 python bench/torch_race.py --rounds 200 --seconds 0.005 --quickest    # beside others

Unbound ranks may share a core where other programs have the rest, and then wait for it.

Prints a row of a table per size: microseconds of a synchronous call on rank 0 (medians of the rounds) over each, and
Tutti's part of Gloo's time. What "fake" takes is torch's own share.
"""
import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # noqa: F401  registers "fake"

SIZES = (8, 64, 1 << 10, 8 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--least", type=int, default=SIZES[0], help="bytes of the smallest message (8)")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="bytes of the largest one (64 MiB)")
    parser.add_argument("--rounds", type=int, default=9, help="of either backend for each size (9)")
    parser.add_argument("--seconds", type=float, default=0.05, help="that a round of Gloo's takes at least (0.05)")
    parser.add_argument("--quickest", action="store_true",
                        help="of the rounds instead of their median: where other programs run")
    return parser.parse_args()


def call_us(group, tensor, calls):
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - began) / calls * 1e6


def calls_for(group, tensor, seconds):
    """The same number on all ranks: what rank 0 needs for so many seconds."""
    calls = torch.tensor([max(3, min(20000, int(seconds * 1e6 / call_us(group, tensor, 5))))])
    dist.broadcast(calls, 0)
    return int(calls)


def main():
    options = arguments()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    torch.set_num_threads(1)
    dist.init_process_group("tutti")
    groups = {"tutti": dist.group.WORLD, "gloo": dist.new_group(backend="gloo"), "fake": dist.new_group(backend="fake")}
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, torch {torch.__version__}", "| bytes | tutti | gloo | ratio | fake |",
              "|---|---|---|---|---|", sep="\n")
    for size in SIZES:
        if not options.least <= size <= options.most:
            continue
        tensor = torch.zeros(size // 4)
        calls = {name: calls_for(group, tensor, options.seconds) for name, group in groups.items()}
        times = {name: [] for name in groups}
        for _ in range(options.rounds):
            for name, group in groups.items():
                times[name].append(call_us(group, tensor, calls[name]))
        if dist.get_rank() == 0:
            took = {name: (min if options.quickest else statistics.median)(rounds) for name, rounds in times.items()}
            print(f"| {size:,} | {took['tutti']:,.1f} | {took['gloo']:,.1f} | {took['tutti'] / took['gloo']:.3f} | "
                  f"{took['fake']:,.1f} |", flush=True)
    dist.destroy_process_group()


main()
