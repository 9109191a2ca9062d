#!/usr/bin/env python3
"""Tutti over soft-RoCE beside perftest and bare writes, in the machine of tools/rdma-vm: 1 MiB one way (broadcast of 2
ranks, from and to private memory, and memory that the adapter knows) beside ib_write_bw; 8 B one way (half of a round
trip) beside ib_write_lat, and both ways at once (an all-reduce) beside two processes that do nothing else (rdma.c), in
turns; then broadcast and all-reduce of 8 B over TCP among 2, 4 and 8 ranks, without a delay and with 1 ms of it. Prints
medians and ratios, writes JSON. An emulated machine's times tell nothing of adapters, only how much is added to what
the stack itself takes."""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

import contenders
from measuring import surroundings, write

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LARGE, SMALL = 1 << 20, 8
WAYS = "half round trip", "exchange"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="Tutti's build directory (build)")
    parser.add_argument("--rounds", type=int, default=5, help="how often all take turns (5)")
    parser.add_argument("--out", type=pathlib.Path, help="where the JSON goes (BUILD/bench/compare/verbs.json)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def output_of(command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr.strip()[-500:]}")
    return done.stdout


def tutti(build, collective, ranks, size, iterations, transport, memory="private"):
    """Microseconds of one call, out of place."""
    text = output_of([build / "tools/tutti-run", "-n", str(ranks), build / f"bench/{collective}_perf", "-b", str(size),
                      "-e", str(size), "-n", str(iterations), "-w", "5", "--transport", transport, "--memory", memory],
                     TUTTI_TUNING="none", TUTTI_IB_HCA="rxe0")
    row = re.search(rf"^ +{size} +\d+ +\w+ +\w+ +-?\d+ +([\d.e+]+)", text, re.MULTILINE)
    if row is None or "Out of bounds values : 0 OK" not in text:
        raise RuntimeError(text)
    return float(row.group(1))


def listens(port):
    """Whether somebody does; asking by a connection would be taken for the client."""
    with open("/proc/net/tcp") as sockets:
        return f":{port:04X} 00000000:0000 0A" in sockets.read()


def perftest(program, size, iterations, column, port=18515):
    """A column of its only row."""
    command = [program, "-d", "rxe0", "-x", "1", "-s", str(size), "-n", str(iterations), "-F", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 30
        while not listens(port) and time.monotonic() < end:
            time.sleep(0.05)
        text = output_of(command + ["127.0.0.1"])
        server.wait(30)
    finally:
        server.kill()
    return float(re.search(rf"^ +{size} .*", text, re.MULTILINE).group(0).split()[column])


def small(build):
    """Of 8 bytes, one way and both ways at once: {name: microseconds}; bare writes by the faster way to notice them."""
    clients = contenders.Clients(build)
    text = output_of([build / "tools/tutti-run", "-n", "2", clients.tutti("tutti_small"), "500"], TUTTI_TUNING="none",
                     TUTTI_IB_HCA="rxe0", TUTTI_TRANSPORT="verbs")
    ours = json.loads(text.splitlines()[-1])
    bare = [json.loads(line) for line in output_of([clients.rdma(), "rxe0", "1", "500"]).splitlines()]
    times = {f"tutti, {way}": ours[way] for way in WAYS}
    for way in WAYS:
        times[f"bare writes, {way}"] = min(row[way] for row in bare if row["bytes"] == SMALL)
        times[f"bare writes as large as ours, {way}"] = min(row[way] for row in bare if row["bytes"] != SMALL)
    return times


def inside(options):
    times = {}

    def note(key, us):
        times.setdefault(key, []).append(us)
        print(f"{key}: {us:.1f} us", file=sys.stderr, flush=True)

    for _ in range(options.rounds):
        for key, measure in {
                # MB/s of 2^20 bytes: as microseconds for LARGE
                "ib_write_bw": lambda: 1e6 / perftest("ib_write_bw", LARGE, 100, 3),
                "broadcast": lambda: tutti(options.build, "broadcast", 2, LARGE, 50, "verbs"),
                "broadcast, mapped": lambda: tutti(options.build, "broadcast", 2, LARGE, 50, "verbs", "mapped"),
                "ib_write_lat": lambda: perftest("ib_write_lat", SMALL, 1000, 4)}.items():
            note(key, measure())
        for key, us in small(options.build).items():
            note(key, us)
    for delay in ("no delay", "1 ms"):
        if delay != "no delay":
            subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"], check=True)
        for _ in range(3):
            for collective in ("broadcast", "all_reduce"):
                for ranks in (2, 4, 8):
                    note(f"{collective} of {ranks}, {delay}", tutti(options.build, collective, ranks, SMALL, 20, "tcp"))
    print(json.dumps(times))


def main():
    options = arguments()
    options.build = options.build.resolve()
    if options.inside:
        return inside(options)
    about = surroundings(options.build)
    clients = contenders.Clients(options.build)  # what is made here is there, too
    clients.rdma()
    clients.tutti("tutti_small")
    command = [ROOT / "tools/rdma-vm", "--mem", "3072", "--timeout", "1800", "--", sys.executable, __file__, "--inside",
               "--build", options.build, "--rounds", str(options.rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"verbs.py: rdma-vm ended with {done.returncode} (perftest has to be installed here)")
    times = json.loads(done.stdout)
    median = {key: statistics.median(values) for key, values in times.items()}
    ratios = {"bandwidth at 1 MiB, Tutti/ib_write_bw": median["ib_write_bw"] / median["broadcast"],
              "the same, tuttiMemAlloc": median["ib_write_bw"] / median["broadcast, mapped"],
              "8 B one way, Tutti/ib_write_lat": median["tutti, half round trip"] / median["ib_write_lat"],
              "8 B both ways at once, Tutti/ib_write_lat": median["tutti, exchange"] / median["ib_write_lat"]}
    for way in WAYS:
        ratios[f"{way} of 8 B, Tutti/bare writes"] = median[f"tutti, {way}"] / median[f"bare writes, {way}"]
    for key, us in median.items():
        print(f"{key:>44} {us:>12,.1f} us")
    for key, ratio in ratios.items():
        print(f"{key}: {ratio:.2f}")
    out = options.out or options.build / "bench" / "compare" / "verbs.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    write(out, about | {"us": times, "ratios": ratios})
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
