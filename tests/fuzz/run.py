#!/usr/bin/env python3
"""Runs libFuzzer's programs, one after the other.

  run.py BUILD SECONDS [TARGET...]   BUILD: configured with -Dfuzz=true. Without TARGET: all.

What a target finds new goes to BUILD/fuzz/TARGET, and is where the next run begins. Prints a line of a table for each:
executions, seconds, edges of the program that were reached, and inputs that were kept. An input that ends the program
is BUILD/fuzz/crash-..., as is one that takes longer than 30 s; then the exit code is 1.
"""
import os
import pathlib
import re
import subprocess
import sys


HERE = pathlib.Path(__file__).resolve().parent
SURROUNDINGS = {"TUTTI_DEBUG": "NONE", "TUTTI_TUNING": "none",
                "ASAN_OPTIONS": "malloc_context_size=3:quarantine_size_mb=16:detect_stack_use_after_return=1",
                "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
LEAK = ["machines"]  # hwloc 2.9 does, where a description is none
LIMITS = ["-timeout=30", "-rss_limit_mb=2048", "-max_len=4096", "-print_final_stats=1"]


def run(build, name, seconds):
    work = build / "fuzz"
    (work / name).mkdir(parents=True, exist_ok=True)
    words = HERE / "corpus" / (name + ".dict")
    surroundings = dict(SURROUNDINGS)
    if name in LEAK:  # at its end, too
        surroundings["ASAN_OPTIONS"] += ":detect_leaks=0"
    done = subprocess.run([build / "tests/fuzz" / f"fuzz-{name}", f"-max_total_time={seconds}", *LIMITS,
                           f"-artifact_prefix={work}/", f"-detect_leaks={int(name not in LEAK)}",
                           *([f"-dict={words}"] if words.exists() else []),
                           work / name, HERE / "corpus" / name],
                          env={**os.environ, **surroundings}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    said = done.stdout.decode(errors="replace")

    def last(pattern):
        return (re.findall(pattern, said) or ["-"])[-1]

    figures = [last(pattern) for pattern in (r"number_of_executed_units: (\d+)", r"Done \d+ runs in (\d+) second",
                                             r"cov: (\d+)", r"corp: (\d+)")]
    print("| " + " | ".join([name, *figures]) + " |", flush=True)
    if done.returncode != 0:
        print("\n".join(said.splitlines()[-60:]), file=sys.stderr, flush=True)
    return done.returncode == 0


def main(build, seconds, *names):
    build = pathlib.Path(build).resolve()
    names = names or sorted(path.name.removeprefix("fuzz-") for path in (build / "tests/fuzz").glob("fuzz-*")
                            if path.is_file())
    return 0 if all([run(build, name, int(seconds)) for name in names]) else 1


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
