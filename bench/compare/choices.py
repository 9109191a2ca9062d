#!/usr/bin/env python3
"""The tuner's choices beside every algorithm: all-reduce among 2, 4 and 8 processes, each algorithm by itself and the
library as it chooses, in turns; medians of the rounds. Prints a table for each number of processes, with the choice
marked and its time over the best algorithm's; writes JSON. --tuned runs tutti-tune first, into a file of its own."""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

import contenders
import measuring
from contenders import Setting
from verdict import figure, named

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIZES = [8, 128, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
OWN = "choice"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="Tutti's build directory (build)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8], help="numbers of processes (2 4 8)")
    parser.add_argument("--rounds", type=int, default=3, help="how often all take turns (3)")
    parser.add_argument("--tuned", action="store_true", help="let the tuner have measured this machine")
    parser.add_argument("--mapped", action="store_true", help="buffers of tuttiMemAlloc")
    parser.add_argument("--out", type=pathlib.Path, help="where JSON goes (BUILD/bench/compare/choices.json)")
    return parser.parse_args()


def settings_of(clients, build, ranks, memory, tuning):
    listed = subprocess.run([build / "tools" / "tutti-plan", "list", "--op", "all_reduce"], capture_output=True,
                            text=True, check=True).stdout.split()
    # On one host the hierarchy is one of the others.
    return [Setting(name, "", clients.launcher(), (clients.tutti(), memory),
                    {"TUTTI_TUNING": tuning} | ({} if name == OWN else {"TUTTI_ALGO": name}))
            for name in [OWN, *(a for a in listed if a != "hierarchy")]]


def chosen(build, ranks, size, memory, tuning):
    """What the library takes; where buffers are mapped, after the first call."""
    command = [build / "tools" / "tutti-run", "-n", str(ranks), build / "bench" / "all_reduce_perf", "-b", str(size),
               "-e", str(size), "-c", "0", "-n", "3", "-w", "2", *(["-R", "1"] if memory == "mapped" else [])]
    said = subprocess.run(command, capture_output=True, text=True,
                          env=os.environ | {"TUTTI_DEBUG": "INFO", "TUTTI_TUNING": tuning}).stderr
    found = re.findall(rf"rank 0: all_reduce of {size} bytes[^:]*: (\w+),", said)
    return found[-1] if found else "?"


def table(ranks, times, names, choices):
    lines = ["", f"{ranks} processes, microseconds; * chosen", f"{'':>10}" + "".join(f"{n:>17}" for n in names[1:])
             + f"{'choice':>10}{'over best':>11}"]
    for size, chosen_name in choices.items():
        here = {name: times.get((name, size)) for name in names}
        best = min(us for name, us in here.items() if name != OWN and us is not None)
        cells = "".join(f"{figure(here[n]) + ('*' if n == chosen_name else ' '):>17}" for n in names[1:])
        lines.append(f"{named(size):>10}{cells}{figure(here[OWN]):>10}{here[OWN] / best:>11.2f}")
    return lines


def main():
    options = arguments()
    build, memory = options.build.resolve(), "mapped" if options.mapped else "private"
    clients = contenders.Clients(build)
    tuning, rows = "none", []
    with tempfile.TemporaryDirectory() as directory:
        if options.tuned:
            tuning = str(pathlib.Path(directory) / "tuning.json")
            subprocess.run([build / "tools" / "tutti-tune", "--op", "all_reduce", "--transport", "shm", "-n",
                            *map(str, options.ranks), "--out", tuning], check=True)
        for ranks in options.ranks:
            settings = settings_of(clients, build, ranks, memory, tuning)
            measured = measuring.alternate({s: SIZES for s in settings}, ranks, options.rounds, (0.03, 3, 60))
            times = {(row["library"], row["bytes"]): row["us"] for row in measured}
            choices = {size: chosen(build, ranks, size, memory, tuning) for size in SIZES}
            print("\n".join(table(ranks, times, [s.library for s in settings], choices)), flush=True)
            rows += [row | {"chosen": choices[row["bytes"]] == row["library"]} for row in measured]
    over = []
    for ranks in options.ranks:
        for size in SIZES:
            here = {r["library"]: r["us"] for r in rows if (r["ranks"], r["bytes"]) == (ranks, size)}
            over.append(here[OWN] / min(us for name, us in here.items() if name != OWN))
    print(f"\nchoice over best algorithm: median {statistics.median(over):.2f}, largest {max(over):.2f}, "
          f"at most 1.1 at {sum(o <= 1.1 for o in over)} of {len(over)}")
    out = options.out or build / "bench" / "compare" / "choices.json"
    measuring.write(out, {"tuned": options.tuned, "memory": memory, "rows": rows})
    print(f"raw figures: {out}")


if __name__ == "__main__":
    main()
