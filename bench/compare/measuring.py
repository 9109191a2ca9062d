"""Runs the contenders: each peer's settings once to find its two best for each size, then all in turn, round by
round."""
import hashlib
import json
import os
import pathlib
import platform
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass


def say(text):
    print(text, file=sys.stderr, flush=True)


def write(path, report):
    """As JSON in which every row of a list has a line."""
    def value(v):
        rows = isinstance(v, list) and v and isinstance(v[0], dict)
        return "[\n" + ",\n".join("  " + json.dumps(row) for row in v) + "\n ]" if rows else json.dumps(v)
    path.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {value(v)}" for k, v in report.items()) + "\n}\n")


def surroundings(build):
    """What figures depend on beside the library. To be called before anything is measured: the load is others'. A
    tuning file takes part only if TUTTI_TUNING names it."""
    tuning = os.environ.setdefault("TUTTI_TUNING", "none")
    if tuning != "none":
        tuning += ", sha256 " + hashlib.sha256(pathlib.Path(tuning).read_bytes()).hexdigest()[:16]
    source = pathlib.Path(__file__).resolve().parent
    commit = subprocess.run(["git", "-C", source, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
                            capture_output=True, text=True, check=False).stdout.strip()
    models = [line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
              if line.startswith("model name")]
    options = {o["name"]: o["value"] for o in json.loads((build / "meson-info/intro-buildoptions.json").read_text())}
    load = os.getloadavg()[0]
    if load > 0.5:
        say(f"something else is running here (load {load:.1f}): the figures will be rough, with more ranks than cores "
            "above all")
    return {"time": time.strftime("%Y-%m-%d %H:%M:%S"), "processor": models[0] if models else platform.machine(),
            "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(), "commit": commit or "unknown",
            "optimization": options["optimization"], "load_before": load, "tuning": tuning}


@dataclass(frozen=True)
class Batch:
    us: float
    line_ns: tuple = ()  # a cache line's way between the cores, before and after; (): nobody looked


def run_once(setting, ranks, sizes, seconds, batches, limit):
    """{bytes: microseconds}, the median over the run's batches."""
    runs = run_batches(setting, ranks, sizes, seconds, batches, limit)
    medians = {size: median(batch.us for batch in run) for size, run in runs.items()}
    return {size: us for size, us in medians.items() if us is not None}


def median(us):
    """None if there are none, or if it is no time: what calls add to a loop that touches large buffers may be lost in
    the loop's own variation."""
    us = list(us)
    middle = statistics.median(us) if us else 0
    return middle if middle > 0 else None


def run_batches(setting, ranks, sizes, seconds, batches, limit):
    """{bytes: [Batch]}; what a failing run printed before it failed counts."""
    command, directory = setting.command(ranks)
    command += [",".join(map(str, sizes)), str(seconds), str(batches)]
    environment, line = {**os.environ, **setting.environment}, os.memfd_create("line")  # gone with this process
    if len(os.sched_getaffinity(0)) > 1:  # a line that two ranks throw on one core takes as long as its turns
        environment["COMPARE_LINE"] = f"/proc/{os.getpid()}/fd/{line}"
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=limit)
        output, trouble = done.stdout, done.stderr.strip() if done.returncode else ""
    except subprocess.TimeoutExpired as late:
        output, trouble = (late.stdout or b"").decode(), f"not finished within {limit} s"
    finally:
        os.close(line)
        shutil.rmtree(directory, ignore_errors=True) if directory else None
    times = {}
    for line in output.splitlines():
        if line.startswith('{"bytes"') and line.endswith("}"):
            row = json.loads(line)
            ways = row.get("line_ns", [])
            times[row["bytes"]] = [Batch(us, tuple(ways[i:i + 2])) for i, us in enumerate(row["us"])]
    if trouble and len(times) < len(sizes):
        last = trouble.splitlines()[-1]
        say(f"  {setting.library} ({setting.label}) at {ranks} ranks: only {len(times)} of {len(sizes)} sizes: {last}")
    return times


def best_settings(settings, ranks, sizes, effort):
    """{setting: sizes at which it is one of its library's two fastest, or the first one, how the library comes, and not
    far behind}: one short look does not tell the best."""
    found = defaultdict(dict)  # (library, bytes) -> {setting: time}
    for setting in settings:
        if setting.fits(ranks):
            say(f"  trying {setting.library}, {setting.label}")
            for size, us in run_once(setting, ranks, sizes, *effort).items():
                found[setting.library, size][setting] = us
    chosen = defaultdict(list)
    for (_, size), times in found.items():
        order = sorted(times, key=times.get)
        for setting in times:
            if setting in order[:2] or (setting == next(iter(times)) and times[setting] < 1.5 * times[order[0]]):
                chosen[setting].append(size)
    return {setting: sorted(sizes) for setting, sizes in chosen.items()}


def alternate(chosen, ranks, rounds, effort, machine, sizes):
    """Rounds in which all take turns, the machine's limits among them: ([{bytes, ranks, library, setting, us, rounds}]
    with medians, the best that the machine did in any of the rounds). If the distance of the cores changes meanwhile,
    rows also have {us, batches} for "near" and "far"."""
    times, limits, runs = defaultdict(list), [], defaultdict(list)
    order = [*chosen, None]
    for number in range(rounds):
        say(f"  {ranks} ranks, round {number + 1} of {rounds}")
        for setting in order:
            if setting is None:
                limits.append(machine_limits(machine, ranks, sizes))
                continue
            for size, run in run_batches(setting, ranks, chosen[setting], *effort).items():
                times[setting, size].append(statistics.median(batch.us for batch in run))
                runs[setting, size] += run
        random.Random(number).shuffle(order)  # nobody always follows the same one
    by_distance = apart(runs)
    return [{"ranks": ranks, "bytes": size, "library": setting.library, "setting": setting.label,
             "us": us, "rounds": values, **by_distance[setting, size]}
            for (setting, size), values in times.items() if (us := median(values)) is not None], best_limits(limits)


def apart(runs):
    """{key: {"near": {us, batches}, "far": ...}} of {key: [Batch]}, where cores are near if a line takes at most twice
    as long as in the calm, and far from three times on, before and after the batch. {} for each unless some are far."""
    ways = sorted(way for run in runs.values() for batch in run for way in batch.line_ns)
    calm = ways[len(ways) // 20] if ways else 0
    found = {key: {} for key in runs}
    for key, run in runs.items():
        near = [batch.us for batch in run if batch.line_ns and max(batch.line_ns) <= 2 * calm]
        far = [batch.us for batch in run if batch.line_ns and min(batch.line_ns) >= 3 * calm]
        found[key] = {name: {"us": middle, "batches": len(us)}
                      for name, us in (("near", near), ("far", far)) if (middle := median(us)) is not None}
    some = any("far" in each for each in found.values())
    return {key: each if some else {} for key, each in found.items()}


def machine_limits(program, ranks, sizes):
    """Of all sizes that take longer than the clock."""
    asked = [str(size) for size in sizes if size >= 1024]
    return json.loads(subprocess.run([program, str(ranks), *asked], capture_output=True, text=True, check=True).stdout)


def best_limits(rounds):
    """A limit is what was reached once: the shortest times, the highest rates."""
    return {"hand_over_ns": min(r["hand_over_ns"] for r in rounds), "meeting_us": min(r["meeting_us"] for r in rounds),
            "copy_one_core_gbs": max(r["copy_one_core_gbs"] for r in rounds),
            "copy_by_size_gbs": {size: max(r["copy_by_size_gbs"][size] for r in rounds)
                                 for size in rounds[0]["copy_by_size_gbs"]}}


def init_milliseconds(setting, ranks, repeats):
    """Of Tutti, from the first call of the first rank to the last rank's first finished all-reduce: the median."""
    values = []
    for _ in range(repeats):
        command = setting.command(ranks)[0][:-2] + ["init", str(time.monotonic() + 0.3)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            values.append(json.loads(done.stdout)["init_ms"])
    return statistics.median(values) if values else None
