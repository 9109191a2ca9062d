#!/usr/bin/env python3
"""Tutti's all-reduce between two or more hosts (network namespaces on this machine, a veth pair and a bridge between
them): bytes beside iperf3 with as many streams, between two hosts in both directions at once, among more from each to
the next one, for as many bytes as a ring sends; between two beside a plain TCP connection (a ping-pong of 8 B, and as
many bytes in both directions at once); all sizes beside Gloo (its classes, which poll, and gloo::allreduce: the
fastest of them). All take turns; prints medians and ratios, writes JSON. Needs root."""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import contenders
from measuring import say, surroundings, write

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NETNS_RUN = ROOT / "tools" / "netns-run"
SIZES = [8, 1 << 10, 32 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
BYTES_MATTER = 1 << 20


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="Tutti's build directory (build)")
    parser.add_argument("--hosts", type=int, default=2, help="of one rank each (2)")
    parser.add_argument("--rounds", type=int, default=5, help="how often all take turns (5)")
    parser.add_argument("--seconds", type=float, default=0.3, help="per size and round (0.3)")
    parser.add_argument("--streams", type=int, default=2, help="connections between the ranks (2)")
    parser.add_argument("--out", type=pathlib.Path, help="where the JSON goes (BUILD/bench/compare/hosts.json)")
    return parser.parse_args()


def on_hosts(hosts, script, **environment):
    """What the ranks print, as the objects of their JSON lines. script: for sh, with $RANK."""
    done = subprocess.run([sys.executable, NETNS_RUN, "--hosts", str(hosts), "--", "sh", "-c", script],
                          capture_output=True, text=True, timeout=300,
                          env={**os.environ, **contenders.KEEP_MEMORY, **environment})
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"exit code {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def sizes_of(rows):
    return {row["bytes"]: statistics.median(row["us"]) for row in rows if "bytes" in row}


class Contest:
    def __init__(self, options):
        self.options = options
        self.clients = contenders.Clients(options.build)
        self.effort = f"{','.join(map(str, SIZES))} {options.seconds} 5"
        # Gloo's messages of 256 MiB end with its own time-out on a busy machine.
        self.less_effort = f"{','.join(map(str, SIZES[:-1]))} {options.seconds} 5"
        self.pingpong = contenders.compile_once(self.clients.out / "pingpong",
                                                [contenders.HERE / "pingpong.c", self.clients.loop], "cc", "-std=gnu11")
        self.has_gloo = pathlib.Path(contenders.PEERS["Gloo"][0]).exists()
        self.has_iperf = shutil.which("iperf3") is not None

    # Each rank on a core of its own: hosts have no cores to themselves here, so LOCAL_RANK would be 0 on both.
    def tutti(self):
        start = f"unset LOCAL_WORLD_SIZE; LOCAL_RANK=$RANK exec {self.clients.tutti()} private all_reduce"
        rows = on_hosts(self.options.hosts, f"{start} {self.effort}", TUTTI_SOCKETS=str(self.options.streams))
        return {("Tutti", size): us for size, us in sizes_of(rows).items()}

    def plain(self):
        rows = on_hosts(2, f"exec {self.pingpong} 20000 {','.join(map(str, SIZES))} {self.options.seconds}")
        exchanges = {("exchange", size): us for size, us in sizes_of(rows).items()}
        return {("round trip", 8): rows[0]["round_trip_us"], **exchanges}

    def gloo(self):
        times = {}
        for way in ("halving_doubling poll", "ring_chunked poll", "function sleep"):
            with tempfile.TemporaryDirectory(prefix="compare-") as directory:
                rows = on_hosts(self.options.hosts, f"exec {self.clients.gloo()} {directory} {way} all_reduce "
                                f"{self.less_effort}", COMPARE_INTERFACE="eth0")
            for size, us in sizes_of(rows).items():
                times["Gloo", size] = min(us, times.get(("Gloo", size), us))
        return times

    def iperf(self):
        """As the time that the bytes of an all-reduce take in each direction while the other one is busy as well."""
        hosts = self.options.hosts
        rate = self.rate_between_two() if hosts == 2 else self.rate_of_a_ring()
        return {("iperf3", size): 1e6 * 2 * (hosts - 1) / hosts * size * 8 / rate for size in SIZES
                if size >= BYTES_MATTER}

    def rate_between_two(self):
        script = ("if [ $RANK = 0 ]; then exec iperf3 -s -1 >/dev/null; fi; sleep 0.3; "
                  f"iperf3 -c $MASTER_ADDR -P {self.options.streams} --bidir -t 2 -J | tr -d '\\n\\t'")
        end = on_hosts(2, script)[0]["end"]
        return statistics.mean(end[key]["bits_per_second"] for key in ("sum_received", "sum_received_bidir_reverse"))

    def rate_of_a_ring(self):
        """Of each host to the next one, all at once."""
        hosts = self.options.hosts
        script = (f"iperf3 -s -1 >/dev/null & sleep 0.5; next=$(((RANK + 1) % {hosts} + 1)); "
                  f"iperf3 -c ${{MASTER_ADDR%.*}}.$next -P {self.options.streams} -t 2 -J | tr -d '\\n\\t'; echo; wait")
        ends = [row["end"] for row in on_hosts(hosts, script)]
        return statistics.mean(end["sum_received"]["bits_per_second"] for end in ends)

    def everybody(self):
        plain = [self.plain] * (self.options.hosts == 2)
        return [self.tutti] + plain + [self.gloo] * self.has_gloo + [self.iperf] * self.has_iperf


def report(medians):
    lines, ratios = [], {}
    for size in SIZES:
        ours = medians.get(("Tutti", size))
        if ours is None:
            continue
        line = f"{size:>12} B  Tutti {ours:>12,.2f} us"
        for name in ("Gloo", "iperf3", "round trip", "exchange"):
            theirs = medians.get((name, size))
            if theirs is not None:
                ratios[f"{name}/Tutti at {size}"] = theirs / ours
                line += f"   {name} {theirs:,.2f} us ({theirs / ours:.2f})"
        lines.append(line)
    return "\n".join(lines), ratios


def main():
    options = arguments()
    options.build = options.build.resolve()
    probe = subprocess.run([sys.executable, NETNS_RUN, "--probe"], capture_output=True, text=True)
    if probe.returncode != 0:
        sys.exit(f"hosts.py: {probe.stderr.strip()}")
    about = surroundings(options.build)
    contest = Contest(options)
    times = {}
    order = contest.everybody()
    for number in range(options.rounds):
        say(f"  round {number + 1} of {options.rounds}")
        for contender in order:
            try:
                for key, us in contender().items():
                    times.setdefault(key, []).append(us)
            except (RuntimeError, subprocess.TimeoutExpired, KeyError, IndexError) as error:
                say(f"  {contender.__name__}: {error}")
        order = order[1:] + order[:1]
    text, ratios = report({key: statistics.median(values) for key, values in times.items()})
    print("medians; in brackets: the other's time over Tutti's\n" + text)
    out = options.out or contest.clients.out / "hosts.json"
    rows = [{"who": who, "bytes": size, "us": values} for (who, size), values in times.items()]
    write(out, about | {"hosts": options.hosts, "streams": options.streams, "results": rows, "ratios": ratios})
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
