#!/usr/bin/env python3
"""The all-to-all of a mixture of experts beside Gloo's: every rank has 128 tokens of 7,168 bf16, and a copy of each
goes to the ranks of its 8 experts. Some experts are more popular than others, so rows differ in length: tuttiAlltoAllv,
with private buffers and those of tuttiMemAlloc, and all_to_all_single of torch.distributed over Gloo, in turns in the
same processes. Needs a Python with torch (--python)."""
import argparse
import ctypes
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BFLOAT16 = 9  # of tuttiDataType_t


def rows_of(ranks, options):
    """[from][to]: how many copies of tokens, the same on all ranks."""
    draw = random.Random(7)
    popularity = [1 / (1 + expert % 16) for expert in range(options.experts)]
    draw.shuffle(popularity)
    counts = [[0] * ranks for _ in range(ranks)]
    for row in counts:
        for _ in range(options.tokens):
            chosen = set()
            while len(chosen) < options.top:
                chosen.update(draw.choices(range(options.experts), popularity))
            for expert in chosen:
                row[expert * ranks // options.experts] += 1
    return counts


class Tutti:
    def __init__(self, library):
        self.library = ctypes.CDLL(str(library))
        self.library.tuttiGetLastError.restype = ctypes.c_char_p
        self.comm = ctypes.c_void_p()
        self.call("tuttiCommInitEnv", ctypes.byref(self.comm), None)

    def call(self, name, *arguments):
        if getattr(self.library, name)(*arguments) != 0:
            sys.exit(f"{name}: {self.library.tuttiGetLastError(None).decode()}")

    def memory(self, torch, elements):
        at = ctypes.c_void_p()
        self.call("tuttiMemAlloc", ctypes.byref(at), ctypes.c_size_t(2 * elements))
        return torch.frombuffer((ctypes.c_char * (2 * elements)).from_address(at.value), dtype=torch.bfloat16)

    def exchange(self, sent, sizes, received, expected):
        """sizes, expected: elements for and from each rank."""
        def array(values):
            return (ctypes.c_size_t * len(values))(*values)

        def places(values):
            return array([sum(values[:i]) for i in range(len(values))])
        arguments = (ctypes.c_void_p(sent.data_ptr()), array(sizes), places(sizes),
                     ctypes.c_void_p(received.data_ptr()), array(expected), places(expected), BFLOAT16, self.comm, None)
        return lambda: self.call("tuttiAlltoAllv", *arguments)


def be_rank(options):
    import torch  # only the ranks' Python needs it
    import torch.distributed as dist
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{options.meet}", rank=rank, world_size=ranks)
    tutti = Tutti(options.build / "src/libtutti.so")
    counts = rows_of(ranks, options)
    sizes = [row * options.width for row in counts[rank]]
    expected = [row[rank] * options.width for row in counts]
    contenders, kept = {}, []
    for name in ("gloo", "tutti", "tutti, mapped"):
        new = (lambda n: tutti.memory(torch, n)) if "mapped" in name else lambda n: torch.empty(n, dtype=torch.bfloat16)
        sent, received = new(sum(sizes)), new(sum(expected))
        kept.append((sent, received))  # ctypes has their addresses alone
        sent.copy_(torch.repeat_interleave(torch.arange(ranks) + ranks * rank, torch.tensor(sizes)))
        if name == "gloo":
            def call(sent=sent, received=received):
                dist.all_to_all_single(received, sent, expected, sizes)
        else:
            call = tutti.exchange(sent, sizes, received, expected)
        call()
        right = torch.repeat_interleave(torch.arange(ranks) * ranks + rank, torch.tensor(expected))
        if not torch.equal(received, right.to(torch.bfloat16)):
            sys.exit(f"rank {rank}: {name} received what was not sent to it")
        contenders[name] = call
    times = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, call in contenders.items():
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(options.calls):
                call()
            slowest = torch.tensor([(time.perf_counter() - begin) / options.calls])
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            times[name].append(1e3 * slowest.item())
    if rank == 0:
        rows = [n for row in counts for n in row]
        print(json.dumps({"ranks": ranks, "copies": [min(rows), max(rows)],
                          "ms": {name: round(statistics.median(its), 3) for name, its in times.items()}}))
    dist.destroy_process_group()
    tutti.call("tuttiCommDestroy", tutti.comm)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="Tutti's build directory (build)")
    parser.add_argument("--python", default=sys.executable, help="one that has torch (this one)")
    parser.add_argument("--ranks", default="4,8", help="how many (4,8)")
    parser.add_argument("--tokens", type=int, default=128, help="of each rank (128)")
    parser.add_argument("--width", type=int, default=7168, help="elements of a token (7168)")
    parser.add_argument("--top", type=int, default=8, help="experts of a token (8)")
    parser.add_argument("--experts", type=int, default=256, help="of all ranks (256)")
    parser.add_argument("--rounds", type=int, default=5, help="in which the contenders take turns (5)")
    parser.add_argument("--calls", type=int, default=3, help="of a turn (3)")
    parser.add_argument("--out", type=pathlib.Path, help="a file for the figures")
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.build = options.build.resolve()
    if options.meet:
        return be_rank(options)
    table = []
    print("ranks  copies of a row      gloo ms    tutti ms  mapped ms  times as fast")
    for ranks in options.ranks.split(","):
        with tempfile.TemporaryDirectory() as folder:
            command = [options.build / "tools/tutti-run", "-n", ranks, options.python, __file__, *sys.argv[1:],
                       "--build", options.build, "--meet", f"{folder}/store"]
            done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{ranks} ranks: {done.stdout or 'failed'}")
        row = json.loads(done.stdout.splitlines()[-1])
        table.append(row)
        gloo, own, mapped = row["ms"].values()
        print(f"{row['ranks']:5}  {row['copies'][0]:6} to {row['copies'][1]:6}  {gloo:11.2f} {own:11.2f} {mapped:10.2f}"
              f"  {gloo / own:6.2f} {gloo / mapped:6.2f}", flush=True)
    if options.out:
        figures = {"machine": platform.platform(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d"),
                   "tokens": options.tokens, "width": options.width, "top": options.top, "experts": options.experts,
                   "rounds": options.rounds, "rows": table}
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
    return None


main()
