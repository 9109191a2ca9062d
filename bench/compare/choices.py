#!/usr/bin/env python3
"""The tuner's choices beside every algorithm, among processes of this machine that are bound to its cores in turn: the
library runs with each algorithm forced (TUTTI_ALGO), in turns, several rounds. Prints a table for each collective and
number of processes, with the choice marked and its time over that of the best; writes JSON. The best is the algorithm
over which the choice takes longest, by the median of the rounds' ratios: times of one round are seconds apart, and a
virtual machine's cores are near each other in some rounds and far in others. Algorithms with the same programs, as many
have among 2 ranks, count as one. The last line also has what whoever measures before gets: the choice by every other
round, judged by the rest. --tuned: first the library gets measurements to choose by."""
import argparse
import operator
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict

import contenders
import measuring
from verdict import figure, named

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIZES = [8, 1 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20]
OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]
PERF = {"all_to_all": "alltoall_perf"}
CANDIDATES = 7  # those that the model takes for the best at some size, so many of each size, are measured


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="Tutti's build directory (build)")
    parser.add_argument("--op", nargs="+", default=OPS, choices=OPS, help="collectives (all five)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4, 6, 7, 8], help="numbers of processes")
    parser.add_argument("--rounds", type=int, default=9, help="how often all is measured (9)")
    parser.add_argument("--seconds", type=float, default=0.04, help="of each size, about (0.04)")
    parser.add_argument("--tuned", action="store_true", help="let the tuner have measured this machine before")
    parser.add_argument("--out", type=pathlib.Path, help="where JSON goes (BUILD/bench/compare/choices.json)")
    return parser.parse_args()


def candidates(build, op, ranks):
    """Those that are among the best at some size, by the model."""
    names = {}
    for size in SIZES:
        command = [build / "tools" / "tutti-plan", "explain", "--op", op, "--ranks", str(ranks), "--bound", "--bytes",
                   str(size)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        priced = re.findall(r"^([a-z][\w+]*) +[\d.]+ +\d+ +\d+ ", said, re.MULTILINE)
        names |= dict.fromkeys(priced[:CANDIDATES])
    return list(names)


def measured(build, op, ranks, names, options):
    """Microseconds of every round, by (bytes, algorithm)."""
    times = defaultdict(list)
    clients = contenders.Clients(build)
    for _ in range(options.rounds):
        for name in names:
            setting = contenders.Setting("Tutti", name, clients.launcher(), (clients.tutti(), "private", op),
                                         {"TUTTI_ALGO": name, "TUTTI_TUNING": "none"})
            for size, us in measuring.run_once(setting, ranks, SIZES, options.seconds, 3, 120).items():
                times[size, name].append(us)
    return times


def chosen(build, op, ranks, size, tuning):
    """What the library takes."""
    program = build / "bench" / PERF.get(op, f"{op}_perf")
    whole = str(max(size, 4 * ranks))  # a block has one element at least
    command = [build / "tools" / "tutti-run", "--bind", "core", "-n", str(ranks), program, "-b", whole, "-e", whole,
               "-c", "0", "-n", "3", "-w", "2"]
    said = subprocess.run(command, capture_output=True, text=True, check=True,
                          env=os.environ | {"TUTTI_DEBUG": "INFO", "TUTTI_TUNING": tuning}).stderr
    return re.findall(rf"rank 0: {op} of \d+ bytes[^:]*: ([\w+]+),", said)[-1]


def table(op, ranks, rows):
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    lines = ["", f"{op} among {ranks} processes, microseconds; * chosen",
             f"{'':>10}" + "".join(f"{n:>17}" for n in names) + f"{'over best':>11}"]
    for size in SIZES:
        here = {row["algorithm"]: row for row in rows if row["bytes"] == size}
        cells = "".join(f"{figure(here[n]['us']) + ('*' if here[n]['chosen'] else ' '):>17}" for n in names)
        lines.append(f"{named(size):>10}{cells}{over_best(list(here.values())):>11.2f}")
    return lines


def over(one, rows, part=slice(None)):
    """Its time over that of the best, by some of the rounds."""
    return max(statistics.median(map(operator.truediv, one["rounds"][part], row["rounds"][part])) for row in rows)


def over_best(rows):
    return over(next(row for row in rows if row["chosen"]), rows)


def over_best_if_measured(rows):
    best = min(rows, key=lambda row: statistics.median(row["rounds"][::2]))
    return over(best, rows, slice(1, None, 2)) if len(best["rounds"]) > 1 else 1


def programs(build, op, ranks, name):
    command = [build / "tools" / "tutti-plan", "show", "--op", op, "--ranks", str(ranks), "--algo", name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main():
    options = arguments()
    build, rows, ratios, measured_before, tuning = options.build.resolve(), [], [], [], "none"
    if not (build / "tools" / "tutti-plan").exists():
        sys.exit(f"choices.py: {build} has no tools/tutti-plan; build it first: ninja -C {build}")
    about = measuring.surroundings(build)
    with tempfile.TemporaryDirectory() as directory:
        if options.tuned:
            tuning = str(pathlib.Path(directory) / "tuning.json")
            subprocess.run([build / "tools" / "tutti-tune", "--quiet", "--transport", "shm", "--op", *options.op, "-n",
                            *map(str, options.ranks), "--out", tuning], check=True, stdout=subprocess.DEVNULL)
        for op in options.op:
            for ranks in options.ranks:
                choices = {size: chosen(build, op, ranks, size, tuning) for size in SIZES}
                names = list(dict.fromkeys([*candidates(build, op, ranks), *choices.values()]))
                shown = {name: programs(build, op, ranks, name) for name in names}
                first = {its: name for name, its in reversed(shown.items())}  # with these programs
                choices = {size: first[shown[name]] for size, name in choices.items()}
                times = measured(build, op, ranks, [name for name in names if first[shown[name]] == name], options)
                here = [{"op": op, "ranks": ranks, "bytes": size, "algorithm": name, "us": statistics.median(rounds),
                         "rounds": rounds, "chosen": choices[size] == name} for (size, name), rounds in times.items()]
                for size in SIZES:
                    cell = [row for row in here if row["bytes"] == size]
                    ratios.append(over_best(cell))
                    measured_before.append(over_best_if_measured(cell))
                rows += here
                print("\n".join(table(op, ranks, here)), flush=True)
    print(f"\nchoice over best algorithm: median {statistics.median(ratios):.2f}, mean "
          f"{statistics.geometric_mean(ratios):.3f}, largest {max(ratios):.2f}, "
          f"at most 1.1 at {sum(r <= 1.1 for r in ratios)} of {len(ratios)}; of a choice by measurements of a moment "
          f"before at {sum(r <= 1.1 for r in measured_before)}")
    out = options.out or build / "bench" / "compare" / "choices.json"
    measuring.write(out, about | {"tuning": "by tutti-tune, just before" if options.tuned else "none", "rows": rows})
    print(f"raw figures: {out}")


if __name__ == "__main__":
    main()
