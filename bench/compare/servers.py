#!/usr/bin/env python3
"""The price of a parameter server: what the busiest rank sends, and the time, over the number of ranks, for a central
server, one sharded over all ranks, and a ring. Bytes are proven, times are the cost model's, with a core for each rank,
and, for as many ranks as are worth it here, measured. Prints a table and writes an SVG."""
import argparse
import math
import os
import pathlib
import re
import subprocess

from plot import text

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WAYS = {"server": ("central server", "#c0392b"), "direct": ("sharded over all ranks", "#0b6e4f"),
        "ring": ("ring", "#2c5aa0")}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 420, 300, 80, 40, 48


def run(*command):
    environment = os.environ | {"TUTTI_TUNING": "none"}
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True,
                          env=environment).stdout


def busiest(build, algorithm, ranks):
    """What the busiest rank sends, in units of the buffer."""
    out = run(build / "tools" / "tutti-plan", "verify", "--op", "all_reduce", "--algo", algorithm, "--ranks", ranks)
    sent, columns = re.search(r"busiest rank +\d+ chunks? = (\d+)/(\d+)", out).groups()
    return int(sent) / int(columns)


def predicted(build, algorithm, ranks, size):
    out = run(build / "tools" / "tutti-plan", "explain", "--op", "all_reduce", "--algo", algorithm, "--ranks", ranks,
              "--bytes", size, "--cores", ranks)
    return float(re.search(rf"^{algorithm} +([0-9.e+]+)", out, re.MULTILINE).group(1))


def measured(build, algorithm, ranks, size):
    out = run(build / "tools" / "tutti-run", "-n", ranks, build / "bench" / "all_reduce_perf", "-b", size, "-e", size,
              "-c", 0, "--algo", algorithm)
    return float(re.search(rf"^ +{size} +\d+ +\S+ +\S+ +\S+ +([0-9.]+)", out, re.MULTILINE).group(1))


def panel(offset, title, curves, dots, unit):
    """curves, dots: {algorithm: [(ranks, value)]}."""
    values = [v for points in (*curves.values(), *dots.values()) for _, v in points]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x(ranks):
        return offset + LEFT + WIDTH * math.log2(ranks / 2) / 5

    def y(value):
        return TOP + HEIGHT * (high - math.log10(value)) / max(1, high - low)

    parts = [text(offset + LEFT + WIDTH / 2, TOP - 16, title, extra='font-size="14"')]
    for power in range(low, high + 1):
        parts.append(f'<line x1="{x(2):.1f}" x2="{x(64):.1f}" y1="{y(10 ** power):.1f}" y2="{y(10 ** power):.1f}" '
                     'stroke="#ddd"/>')
        parts.append(text(offset + LEFT - 6, y(10 ** power) + 4, f"{10.0 ** power:g}{unit}", "end"))
    parts += [text(x(2 ** p), TOP + HEIGHT + 18, str(2 ** p)) for p in range(1, 7)]
    parts.append(text(offset + LEFT + WIDTH / 2, TOP + HEIGHT + 38, "ranks"))
    for index, (algorithm, (name, colour)) in enumerate(WAYS.items()):
        path = " ".join(f"{x(n):.1f},{y(v):.1f}" for n, v in curves[algorithm])
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(n):.1f}" cy="{y(v):.1f}" r="4" fill="none" stroke="{colour}" stroke-width="2"/>'
                  for n, v in dots.get(algorithm, [])]
        parts.append(text(offset + LEFT + 10, TOP + 16 + 16 * index, name, "start", f'fill="{colour}"'))
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="Tutti's build directory (build)")
    parser.add_argument("--bytes", type=int, default=16 << 20, help="of each rank's buffer (16 MiB)")
    parser.add_argument("--out", type=pathlib.Path, help="the SVG (BUILD/bench/compare/servers.svg)")
    options = parser.parse_args()
    build, size = options.build.resolve(), options.bytes
    counts = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    sent = {a: [(n, busiest(build, a, n)) for n in counts] for a in WAYS}
    times = {a: [(n, predicted(build, a, n, size) / 1e3) for n in counts] for a in WAYS}
    here = {a: [(n, measured(build, a, n, size) / 1e3) for n in (2, 4, 6, 8)] for a in WAYS}
    print(f"{'ranks':>5}" + "".join(f"{name:>26}" for name, _ in WAYS.values())
          + "\n      sent by the busiest rank, in buffers / ms predicted / ms measured here")
    for n in counts:
        cells = (f"{dict(sent[a])[n]:.2f} / {dict(times[a])[n]:.2f} / "
                 + (f"{dict(here[a])[n]:.2f}" if n in dict(here[a]) else "-") for a in WAYS)
        print(f"{n:>5}" + "".join(f"{cell:>26}" for cell in cells))
    out = options.out or build / "bench" / "compare" / "servers.svg"
    out.parent.mkdir(parents=True, exist_ok=True)
    left = panel(0, "sent by the busiest rank, in buffers", sent, {}, "")
    right = panel(LEFT + WIDTH + 30, f"all-reduce of {size >> 20} MiB: lines predicted, circles measured", times, here,
                  " ms")
    out.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * (LEFT + WIDTH + 30)}" '
                   f'height="{TOP + HEIGHT + BOTTOM}" font-family="sans-serif" font-size="12">'
                   f'<rect width="100%" height="100%" fill="white"/>{left}{right}</svg>\n')
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
