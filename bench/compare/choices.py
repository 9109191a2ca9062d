#!/usr/bin/env python3
"""The tuner's choices beside every algorithm: all-reduce among 2, 4 and 8 processes of this machine. tutti-tune
measures all algorithms, which take turns in the same processes; medians of several runs. Prints a table for each
number of processes, with the choice marked and the time of its algorithm over that of the best; writes JSON.
--tuned: first the library gets measurements to choose by."""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import measuring
from verdict import figure, named

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIZES = [8, 128, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="Tutti's build directory (build)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8], help="numbers of processes (2 4 8)")
    parser.add_argument("--rounds", type=int, default=5, help="how often all is measured (5)")
    parser.add_argument("--tuned", action="store_true", help="let the tuner have measured this machine before")
    parser.add_argument("--out", type=pathlib.Path, help="where JSON goes (BUILD/bench/compare/choices.json)")
    return parser.parse_args()


def tune(build, ranks, out):
    subprocess.run([build / "tools" / "tutti-tune", "--quiet", "--op", "all_reduce", "--transport", "shm", "-n",
                    *map(str, ranks), "--out", out], check=True, stdout=subprocess.DEVNULL)


def measured(build, ranks, rounds, directory):
    """Microseconds of every round, by (ranks, bytes, algorithm)."""
    times = {}
    for number in range(rounds):
        print(f"  round {number + 1} of {rounds}", file=sys.stderr)
        out = pathlib.Path(directory) / f"round{number}.json"
        tune(build, ranks, out)
        for curve in json.loads(out.read_text())["measured"]:
            for size, us in curve["microseconds"]:
                if size in SIZES:
                    times.setdefault((curve["ranks"], size, curve["algorithm"]), []).append(us)
    return times


def chosen(build, ranks, size, tuning):
    """What the library takes."""
    command = [build / "tools" / "tutti-run", "-n", str(ranks), build / "bench" / "all_reduce_perf", "-b", str(size),
               "-e", str(size), "-c", "0", "-n", "3", "-w", "2"]
    said = subprocess.run(command, capture_output=True, text=True, check=True,
                          env=os.environ | {"TUTTI_DEBUG": "INFO", "TUTTI_TUNING": tuning}).stderr
    return re.findall(rf"rank 0: all_reduce of {size} bytes[^:]*: ([\w+]+),", said)[-1]


def table(ranks, rows):
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    lines = ["", f"{ranks} processes, microseconds; * chosen",
             f"{'':>10}" + "".join(f"{n:>17}" for n in names) + f"{'over best':>11}"]
    for size in SIZES:
        here = {row["algorithm"]: row for row in rows if row["bytes"] == size}
        cells = "".join(f"{figure(here[n]['us']) + ('*' if here[n]['chosen'] else ' '):>17}" for n in names)
        lines.append(f"{named(size):>10}{cells}{over_best(here.values()):>11.2f}")
    return lines


def over_best(rows):
    return next(row["us"] for row in rows if row["chosen"]) / min(row["us"] for row in rows)


def main():
    options = arguments()
    build, rows, tuning = options.build.resolve(), [], "none"
    about = measuring.surroundings(build)
    with tempfile.TemporaryDirectory() as directory:
        if options.tuned:
            tuning = str(pathlib.Path(directory) / "tuning.json")
            tune(build, options.ranks, tuning)
        times = measured(build, options.ranks, options.rounds, directory)
        choices = {(ranks, size): chosen(build, ranks, size, tuning) for ranks in options.ranks for size in SIZES}
    for (ranks, size, algorithm), rounds in times.items():
        rows.append({"ranks": ranks, "bytes": size, "algorithm": algorithm, "us": statistics.median(rounds),
                     "rounds": rounds, "chosen": choices[ranks, size] == algorithm})
    for ranks in options.ranks:
        print("\n".join(table(ranks, [row for row in rows if row["ranks"] == ranks])))
    over = [over_best([row for row in rows if (row["ranks"], row["bytes"]) == case]) for case in choices]
    print(f"\nchoice over best algorithm: median {statistics.median(over):.2f}, largest {max(over):.2f}, "
          f"at most 1.1 at {sum(o <= 1.1 for o in over)} of {len(over)}")
    out = options.out or build / "bench" / "compare" / "choices.json"
    measuring.write(out, about | {"tuning": "by tutti-tune, just before" if options.tuned else "none", "rows": rows})
    print(f"raw figures: {out}")


if __name__ == "__main__":
    main()
