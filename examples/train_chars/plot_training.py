#!/usr/bin/env python3
"""plot_training.py BUILD [--ranks N] [--steps N]: trains in every mode, draws docs/img/dp-loss.svg and dp-step.svg.

dp-loss.svg: the loss of the whole batch over steps, all modes. dp-step.svg: one iteration of rank 0 of dp_perf, what
the training thread does and what travels beside it. Prints the final losses, as the programs do.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from xml.sax.saxutils import escape

MODES = {"single": "#000000", "naive": "#7d3c98", "bucketed": "#0b6e4f", "ps": "#c0392b", "ps-cpu": "#884422",
         "ps-sharded": "#e67e22", "async": "#2471a3", "zero1": "#5cb85c", "zero2": "#16a085", "zero3": "#b7950b",
         "dataparallel": "#7f8c8d"}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 720, 360, 60, 40, 44


def text(x, y, words, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(words)}</text>'


def picture(width, height, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
            f'font-size="12"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n')


def smooth(losses, window):
    """The mean of the last few: a batch is small."""
    return [sum(losses[max(0, i - window + 1):i + 1]) / len(losses[max(0, i - window + 1):i + 1])
            for i in range(len(losses))]


def draw_losses(curves, ranks):
    steps = max(len(losses) for losses in curves.values())
    high, low = max(losses[0] for losses in curves.values()), min(min(losses) for losses in curves.values())

    def point(step, loss):
        return f"{LEFT + WIDTH * step / steps:.1f},{TOP + HEIGHT * (high - loss) / (high - low):.1f}"

    title = f"loss over steps, {ranks} ranks (mean of the last 10)"
    parts = [text(LEFT + WIDTH / 2, TOP - 16, title, extra='font-size="14"')]
    for tick in range(6):
        loss, step = low + (high - low) * tick / 5, steps * tick // 5
        y = TOP + HEIGHT * (high - loss) / (high - low)
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 6, y + 4, f"{loss:.2f}", "end"))
        parts.append(text(LEFT + WIDTH * step / steps, TOP + HEIGHT + 18, str(step)))
    for index, (mode, losses) in enumerate(curves.items()):
        # Curves that are equal lie on each other: dashes of different phases let all of them be seen.
        path = " ".join(point(step, loss) for step, loss in enumerate(smooth(losses, 10)))
        dashes = ("" if mode in ("single", "async", "ps-cpu")
                  else f'stroke-dasharray="6 30" stroke-dashoffset="{-4 * index}"')
        width = 5 if mode == "single" else 2
        colour = "#ddd" if mode == "single" else MODES[mode]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" {dashes}/>')
        parts.append(text(LEFT + WIDTH + 16, TOP + 16 + 18 * index, mode, "start", f'fill="{MODES[mode]}"'))
    return picture(LEFT + WIDTH + 120, TOP + HEIGHT + BOTTOM, parts)


def one_step(events):
    """The events of the shortest iteration, which was disturbed least, in microseconds from its beginning."""
    begins = [e["ts"] for e in events if e.get("name") == "Begin"]
    ends = [e["ts"] + e["dur"] for e in events if e.get("name") == "Synchronize"]
    begin, end = min(list(zip(begins, ends))[2:], key=lambda pair: pair[1] - pair[0])
    inside = [e for e in events if e["ph"] == "X" and begin <= e["ts"] <= end and e["name"] != "Begin"]
    return [{**e, "ts": e["ts"] - begin} for e in inside], end - begin


def draw_step(trace, ranks):
    events, length = one_step(trace["traceEvents"])
    rows = {1: TOP + 30, 2: TOP + 100}

    def x(us):
        return LEFT + 60 + WIDTH * us / length

    title = f"one step of rank 0 of {ranks}, bucketed beside a pass that leaves the core free"
    parts = [text(LEFT + 60 + WIDTH / 2, TOP - 16, title, extra='font-size="14"'),
             text(LEFT + 50, rows[1] + 16, "training", "end"), text(LEFT + 50, rows[2] + 16, "communication", "end")]
    synchronize = next(e for e in events if e["name"] == "Synchronize")
    width = x(synchronize["ts"]) - x(0)
    parts.append(f'<rect x="{x(0):.1f}" y="{rows[1]}" width="{width:.1f}" height="24" fill="#d5e8d4"/>')
    parts.append(text((x(0) + x(synchronize["ts"])) / 2, rows[1] + 16, "backward"))
    for event in events:
        name, y = event["name"], rows[event["tid"]]
        width = max(1.0, x(event["ts"] + event["dur"]) - x(event["ts"]))
        if name.startswith("ready"):
            parts.append(f'<line x1="{x(event["ts"]):.1f}" x2="{x(event["ts"]):.1f}" y1="{y - 8}" y2="{y + 32}" '
                         f'stroke="#555"><title>{escape(name)}</title></line>')
            continue
        colour = {"Synchronize": "#f5b7b1", "Step": "#aed6f1"}.get(name, "#82c99d")
        parts.append(f'<rect x="{x(event["ts"]):.1f}" y="{y}" width="{width:.1f}" height="24" fill="{colour}" '
                     f'stroke="#777" stroke-width="0.5"><title>{escape(name)}: {event["dur"]:.0f} us</title></rect>')
        if width > 60:
            parts.append(text(x(event["ts"]) + width / 2, y + 16, name.split(":")[0], extra='font-size="10"'))
    for tick in range(6):
        parts.append(text(x(length * tick / 5), rows[2] + 50, f"{length * tick / 5:.0f} us"))
    parts.append(text(LEFT + 60, rows[2] + 72, "Lines: a gradient is ready. Green: a bucket of 4 MiB is reduced. Red: "
                      "Synchronize waits.", "start"))
    return picture(LEFT + WIDTH + 120, rows[2] + 90, parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    images = pathlib.Path(__file__).resolve().parents[2] / "docs" / "img"
    with tempfile.TemporaryDirectory() as folder:
        curve, trace = pathlib.Path(folder) / "curve", pathlib.Path(folder) / "trace"

        def train(ranks, mode, *more):
            command = [options.build / "tools/tutti-run", "-n", ranks, options.build / "examples/train_chars",
                       "--mode", mode, "--steps", options.steps, "--quiet", "--curve", curve, *more]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"{mode}: {done.stderr}")
            print(done.stdout.splitlines()[-1])
            return json.loads(curve.read_text())["losses"]

        curves = {mode: train(options.ranks, mode) for mode in MODES}
        (images / "dp-loss.svg").write_text(draw_losses(curves, options.ranks))
        command = [options.build / "tools/tutti-run", "-n", 2, options.build / "bench/dp_perf", "--steps", 1,
                   "--layers", 24, "--bucket-kib", 4096, "--iterations", 40, "--trace", trace]
        subprocess.run(list(map(str, command)), check=True)
        (images / "dp-step.svg").write_text(draw_step(json.loads(trace.read_text()), 2))


main()
