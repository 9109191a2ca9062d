#!/usr/bin/env python3
"""How a training step grows with the number of hosts where links are slow: a central parameter server, one sharded
over all ranks, and a ring. Measured between network namespaces of limited rate (tools/netns-run; needs root), beside
what bytes over rate predict. Prints a table and writes an SVG and the figures.

With S bytes of gradients and B bytes a second that a host may send, communication takes n S/B over a central server
(S to it, then the sum from it to n - 1 others) and 2 (n - 1)/n S/B in a ring or over n servers (Patarasuk and Yuan
2009). alpha is that over the time of the pass, and n ranks with a batch each make n / (1 + alpha) of one's speed."""
import argparse
import json
import pathlib
import platform
import re
import subprocess
import sys
import time

from plot import text

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WAYS = {"central": ("central server", "#c0392b"), "sharded": ("sharded over all ranks", "#0b6e4f"),
        "ring": ("ring", "#2c5aa0")}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 420, 300, 70, 40, 48
UNITS = {"mbit": 1e6 / 8, "gbit": 1e9 / 8}


def bytes_per_second(rate):
    value, unit = re.fullmatch(r"([0-9.]+)(mbit|gbit)", rate).groups()
    return float(value) * UNITS[unit]


def predicted(way, ranks, options):
    """Milliseconds of a step."""
    if ranks == 1:
        return options.pass_ms
    once = 1000 * options.mib * (1 << 20) / bytes_per_second(options.rate)
    return options.pass_ms + once * (ranks if way == "central" else 2 * (ranks - 1) / ranks)


def measured(way, ranks, options):
    """The same."""
    command = [ROOT / "tools/netns-run", "--hosts", ranks, "--rate", options.rate, "--",
               options.build / "bench/dp_step", "--mode", way, "--mib", options.mib, "--pass-ms", options.pass_ms,
               "--steps", options.steps]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    found = re.search(r"a step of ([0-9.]+) ms", done.stdout)
    if done.returncode != 0 or not found:
        sys.exit(f"{way} on {ranks} hosts: {done.stderr or done.stdout}")
    return float(found[1])


def panel(offset, title, lines, dots, highest):
    """lines, dots: {way: [(ranks, value)]}."""
    most = max(n for points in lines.values() for n, _ in points)

    def x(ranks):
        return offset + LEFT + WIDTH * (ranks - 1) / max(1, most - 1)

    def y(value):
        return TOP + HEIGHT * (1 - value / highest)

    parts = [text(offset + LEFT + WIDTH / 2, TOP - 16, title, extra='font-size="14"')]
    for tenth in range(0, 11, 2):
        at = highest * tenth / 10
        parts.append(f'<line x1="{x(1):.1f}" x2="{x(most):.1f}" y1="{y(at):.1f}" y2="{y(at):.1f}" stroke="#ddd"/>')
        parts.append(text(offset + LEFT - 6, y(at) + 4, f"{at:.3g}", "end"))
    for n in sorted({n for points in lines.values() for n, _ in points}):
        parts.append(text(x(n), TOP + HEIGHT + 18, str(n)))
    parts.append(text(offset + LEFT + WIDTH / 2, TOP + HEIGHT + 38, "hosts"))
    for index, (way, (name, colour)) in enumerate(WAYS.items()):
        path = " ".join(f"{x(n):.1f},{y(v):.1f}" for n, v in lines[way])
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-dasharray="5 4"/>')
        parts += [f'<circle cx="{x(n):.1f}" cy="{y(v):.1f}" r="4" fill="{colour}"/>' for n, v in dots[way]]
        parts.append(text(offset + LEFT + 10, TOP + 16 + 16 * index, name, "start", f'fill="{colour}"'))
    return "".join(parts)


def svg(rows, options):
    def curves(value):
        return {way: [(row["hosts"], value(row)) for row in rows if row["way"] == way] for way in WAYS}

    def speedup(of):
        return curves(lambda row: row["hosts"] * options.pass_ms / row[of])

    width, height = 2 * (LEFT + WIDTH + 30), TOP + HEIGHT + BOTTOM
    link = f"{options.mib:g} MiB of gradients, {options.rate} a host"
    steps = panel(0, f"ms of a step: {link}", curves(lambda row: row["predicted_ms"]),
                  curves(lambda row: row["measured_ms"]), 1.05 * max(row["measured_ms"] for row in rows))
    speeds = panel(LEFT + WIDTH + 30, f"speed-up: a pass of {options.pass_ms:g} ms", speedup("predicted_ms"),
                   speedup("measured_ms"), max(row["hosts"] for row in rows))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
            f'font-size="12"><rect width="100%" height="100%" fill="white"/>{steps}{speeds}</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="Tutti's build directory (build)")
    parser.add_argument("--hosts", default="2,3,4,6,8", help="how many, each with a rank (2,3,4,6,8)")
    parser.add_argument("--rate", default="200mbit", help="what each host may send: mbit or gbit (200mbit)")
    parser.add_argument("--mib", type=float, default=1, help="of gradients (1)")
    parser.add_argument("--pass-ms", type=float, default=100, help="how long a rank computes (100)")
    parser.add_argument("--steps", type=int, default=7, help="of each; the median counts (7)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("steps"), help="OUT.svg and OUT.json (steps)")
    options = parser.parse_args()
    options.build = options.build.resolve()
    rows = [{"way": way, "hosts": 1, "predicted_ms": options.pass_ms, "measured_ms": options.pass_ms} for way in WAYS]
    print("way      hosts  predicted ms  measured ms   alpha  speed-up")
    for ranks in [int(n) for n in options.hosts.split(",")]:
        for way in WAYS:
            row = {"way": way, "hosts": ranks, "predicted_ms": round(predicted(way, ranks, options), 1),
                   "measured_ms": measured(way, ranks, options)}
            rows.append(row)
            print(f"{way:8} {ranks:5}  {row['predicted_ms']:12.1f}  {row['measured_ms']:11.1f}  "
                  f"{row['measured_ms'] / options.pass_ms - 1:6.2f}  "
                  f"{ranks * options.pass_ms / row['measured_ms']:8.2f}", flush=True)
    options.out.with_suffix(".svg").write_text(svg(rows, options))
    machine = {"machine": platform.platform(), "date": time.strftime("%Y-%m-%d"), "rate": options.rate,
               "mib": options.mib, "pass_ms": options.pass_ms, "steps": options.steps, "rows": rows}
    options.out.with_suffix(".json").write_text(json.dumps(machine, indent=1) + "\n")


main()
