"""Runs the contenders: each peer's settings once to find its best for each size, then all in turn, round by round."""
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict


def say(text):
    print(text, file=sys.stderr, flush=True)


def write(path, report):
    """As JSON in which every row of a list has a line."""
    def value(v):
        rows = isinstance(v, list) and v and isinstance(v[0], dict)
        return "[\n" + ",\n".join("  " + json.dumps(row) for row in v) + "\n ]" if rows else json.dumps(v)
    path.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {value(v)}" for k, v in report.items()) + "\n}\n")


def run_once(setting, ranks, sizes, seconds, batches, limit):
    """{bytes: microseconds}, the median over the run's batches; what a failing run printed before it failed counts."""
    command, directory = setting.command(ranks)
    command += [",".join(map(str, sizes)), str(seconds), str(batches)]
    environment = {**os.environ, **setting.environment}
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=limit)
        output, trouble = done.stdout, done.stderr.strip() if done.returncode else ""
    except subprocess.TimeoutExpired as late:
        output, trouble = (late.stdout or b"").decode(), f"not finished within {limit} s"
    finally:
        shutil.rmtree(directory, ignore_errors=True) if directory else None
    times = {}
    for line in output.splitlines():
        if line.startswith('{"bytes"') and line.endswith("}"):
            row = json.loads(line)
            times[row["bytes"]] = statistics.median(row["us"])
    if trouble and len(times) < len(sizes):
        last = trouble.splitlines()[-1]
        say(f"  {setting.library} ({setting.label}) at {ranks} ranks: only {len(times)} of {len(sizes)} sizes: {last}")
    return times


def best_settings(settings, ranks, sizes, effort):
    """{setting: sizes at which it is its library's fastest}."""
    found = defaultdict(dict)  # (library, bytes) -> {setting: time}
    for setting in settings:
        if setting.fits(ranks):
            say(f"  trying {setting.library}, {setting.label}")
            for size, us in run_once(setting, ranks, sizes, *effort).items():
                found[setting.library, size][setting] = us
    chosen = defaultdict(list)
    for (_, size), times in found.items():
        chosen[min(times, key=times.get)].append(size)
    return {setting: sorted(sizes) for setting, sizes in chosen.items()}


def alternate(chosen, ranks, rounds, effort):
    """[{bytes, ranks, library, setting, us, rounds}]: medians over rounds in which all take turns."""
    times = defaultdict(list)
    order = list(chosen)
    for number in range(rounds):
        say(f"  {ranks} ranks, round {number + 1} of {rounds}")
        for setting in order:
            for size, us in run_once(setting, ranks, chosen[setting], *effort).items():
                times[setting, size].append(us)
        random.Random(number).shuffle(order)  # nobody always follows the same one
    return [{"ranks": ranks, "bytes": size, "library": setting.library, "setting": setting.label,
             "us": statistics.median(values), "rounds": values} for (setting, size), values in times.items()]


def machine_limits(program, sizes):
    """Of all sizes that take longer than the clock."""
    asked = [str(size) for size in sizes if size >= 1024]
    return json.loads(subprocess.run([program, *asked], capture_output=True, text=True, check=True).stdout)


def init_milliseconds(setting, ranks, repeats):
    """From the first call of the first rank to the last rank's first finished all-reduce: the median."""
    values = []
    for _ in range(repeats):
        command = setting.command(ranks)[0][:-1] + ["init", str(time.monotonic() + 0.3)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            values.append(json.loads(done.stdout)["init_ms"])
    return statistics.median(values) if values else None
