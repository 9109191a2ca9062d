"""How tools/gpu-check runs its cells: each within a limit and before a deadline, its result written down at once, so
that nothing is lost if all of it is stopped. A cell is (what, OK | FAILED | skipped, seconds, detail)."""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import traceback

OUT_OF_TIME = "out of time"
PATIENCE = 10           # seconds that an operation waits for its peers: -T
MOST_FAILURES = 2       # of one list of algorithms; the rest would fail for the same reason, and cost as much time
LONGEST_DETAIL = 300
UNKILLABLE = 20         # seconds after which a killed process is left to itself: a driver may hold it
LONGEST_OUTPUT = 20000  # characters of a failed command that are kept, half from each end
TABLE_ROW = re.compile(r"^\s+\d+\s+\d+\s+\w+\s+\w+\s+-?\d+")
RIGHT = "Out of bounds values : 0 OK"
MOVED = re.compile(r"^GPUs on hosts: kernels have read (\d+) bytes and written (\d+), and (\d+) in lines$", re.M)


class Result:
    """Of a command. stdout has what it wrote to its standard error as well; returncode is None if it was stopped."""

    def __init__(self, returncode, stdout, seconds):
        self.returncode, self.stdout, self.seconds = returncode, stdout, seconds


def complaint(text):
    """What a program says of its failure: its first line that is neither of a table, a comment nor the library's
    information; else the last."""
    lines = [TABLE_ROW.sub("", line).strip() for line in MOVED.sub("", text).splitlines() if " TUTTI INFO " not in line]
    own = [line for line in lines if line and not line.startswith("#") and not re.fullmatch(r"[-\d.e+\sN/A]+", line)]
    return (own or [line for line in lines if line][-1:] or [""])[0]


def moved(text):
    """What the kernels of all processes have read and written, where GPUs are made of hosts that count it."""
    read, written, lines = (sum(map(int, numbers)) for numbers in zip((0, 0, 0), *MOVED.findall(text)))
    return f"{read} B read, {written} B written, {lines} B in lines" if read + written + lines else ""


def tables_of(text, algorithms):
    """The part of a *_perf's output for each algorithm, by its header; "" for those that it did not come to."""
    parts = re.split(r"^# Algorithm: (.*)$", text, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2]))
    return {algorithm: found.get(algorithm, "") for algorithm in algorithms}


class Check:
    """folder: where gpu-check lies, with bin/ and lib/ beside it if it was packed; out: for results; seconds: until all
    has to have ended; device: cuda or cpu; small: no large messages; match: regular expression, only cells with it in
    their names; build: where programs are that were not packed."""

    def __init__(self, folder, out, seconds=600, device="cuda", small=False, match="", build=None):
        packed = (folder / "bin").is_dir()
        self.folder = folder
        self.bin = folder / "bin" if packed else None
        self.build = None if packed else build or folder.parent / "build"
        self.environment = dict(os.environ)
        if packed:  # before what was there, by which the driver's library may be found
            others = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
            self.environment["LD_LIBRARY_PATH"] = ":".join([str(folder / "lib")] + others)
        self.out = out
        self.device = device
        self.small = small
        self.match = re.compile(match)
        self.cells = []
        self.documents = {}  # of benchmarks, by name
        self.targets = []
        self.commands = 0
        self.began = time.monotonic()
        self.end = self.deadline = self.began + seconds
        self.interrupted = False
        self.job = None
        commit = folder / "commit"
        self.commit = commit.read_text().strip() if commit.exists() else ""

    def program(self, name):
        if self.bin:
            return str(self.bin / name)
        folders = {"tutti-": "tools", "train": "examples", "test-": "tests/cuda"}
        folder = next((where for start, where in folders.items() if name.startswith(start)), "bench")
        return str(self.build / folder / name)

    def library(self, name):
        """Its full path; None if it is not there."""
        path = (self.folder / "lib" if self.bin else self.build / "src" / "nccl") / name
        return path.resolve() if path.exists() else None

    # ---- time

    def plan(self, shares):
        """Names of the parts, in turn: each has its share of the time that is left, and what it leaves is for the
        others."""
        for at, (name, share) in enumerate(shares):
            now = time.monotonic()
            self.deadline = now + (self.end - now) * share / sum(other for _, other in shares[at:])
            yield name

    def left(self):
        return 0.0 if self.interrupted else self.deadline - time.monotonic()

    def interrupt(self, *_):
        """A signal's handler: ends what runs; all that would come is skipped."""
        self.interrupted = True
        if self.job is not None:
            kill_all(self.job)

    # ---- cells

    def note(self, what, result, seconds, detail):
        detail = detail if len(detail) <= LONGEST_DETAIL else detail[:LONGEST_DETAIL] + "..."
        self.cells.append((what, result, seconds, detail))
        print(f"{result:8} {seconds:6.1f} s  {what}{'  ' + detail if detail else ''}", flush=True)
        self.save()

    def skip(self, what, why):
        if self.wanted(what):
            self.note(what, "skipped", 0.0, why)

    def withdraw(self, what, why):
        """The last cell, if it is this one, is skipped after all: what it ran says that it can't be done here."""
        if self.cells and self.cells[-1][0] == what:
            self.cells.pop()
            self.note(what, "skipped", 0.0, why)

    def wanted(self, what):
        return self.match.search(what) is not None

    def only_on_gpus(self, what, why="it needs a GPU", program=None):
        """False, and the cell is skipped, where ranks are on CPUs, or where a rehearsal has not this program."""
        if self.device == "cpu":
            self.skip(what, why)
        elif self.small and program and not os.path.exists(self.program(program)):
            self.skip(what, f"there is no {program} to rehearse with")
        else:
            return True
        return False

    def run(self, what, command, limit=60, good=lambda r: r.returncode == 0, detail=lambda r: "", environment=None):
        """One cell. good: of a Result, whether it is right; detail: what to say of one that is. None if it did not
        run."""
        if not self.wanted(what):
            return None
        left = self.left()
        if left < 1:
            return self.skip(what, OUT_OF_TIME)
        result = self.execute(command, min(limit, left), environment)
        if result.returncode is None and (self.interrupted or left < limit):
            return self.skip(what, f"{OUT_OF_TIME}: stopped after {result.seconds:.0f} s")
        fine = result.returncode is not None and good(result)
        if fine:
            said = [detail(result), moved(result.stdout)]
            self.note(what, "OK", result.seconds, "  ".join(part for part in said if part))
        else:
            self.failed(what, result, command, self.why(result, limit))
        return result

    def perf(self, what, collective, kind, n, arguments, limit=60, keep=None, device=None, environment=None,
             detail=lambda r: ""):
        """One cell, which is a run of a *_perf. keep: the name of its JSON among the benchmarks."""
        command = self.perf_command(collective, kind, n, arguments, device)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "report.json")
            result = self.run(what, command + (["--json", str(file)] if keep else []), limit,
                              lambda r: r.returncode == 0 and RIGHT in r.stdout, detail, environment)
            if keep and file.exists():
                self.keep(keep, read_json(file))
        return result

    def perf_command(self, collective, kind, n, arguments, device=None):
        """kind: whether ranks are threads, or processes. device: if not that of the check."""
        head, tail = ([], ["-t", str(n)]) if kind == "threads" else ([self.program("tutti-run"), "-n", str(n)], [])
        device = device if device and self.device != "cpu" else self.device
        return head + [self.program(f"{collective}_perf"), "--device", device, "-T", str(PATIENCE)] + tail + arguments

    def tables(self, name, collective, kind, n, algorithms, arguments, limit=20, device=None):
        """A cell for each algorithm, all in one process, until one ends it: the others are for another process.
        name: of the algorithm's cell; limit: seconds for one algorithm."""
        waiting = [algorithm for algorithm in algorithms if self.wanted(name(algorithm))]
        failures = 0
        while waiting:
            left, most = self.left(), limit * len(waiting)
            why = OUT_OF_TIME if left < 1 else f"{failures} before it have failed" if failures >= MOST_FAILURES else ""
            if why:
                for algorithm in waiting:
                    self.skip(name(algorithm), why)
                return
            command = self.perf_command(collective, kind, n, arguments, device)
            for algorithm in waiting:
                command += ["--algo", algorithm]
            result = self.execute(command, min(most, left))
            cut = result.returncode is None and (self.interrupted or left < most)
            done, ran = self.judge(name, waiting, result, command, cut, most)
            failures += ran - done
            waiting = waiting[ran:]

    def judge(self, name, algorithms, result, command, cut, limit):
        """The cells of the tables that a command has printed; of these how many are OK, and how many there are."""
        tables = tables_of(result.stdout, algorithms)
        each = result.seconds / max(1, sum(1 for text in tables.values() if text))
        good = 0
        for at, (algorithm, text) in enumerate(tables.items()):
            ended = "# Out of bounds values" in text
            last = at + 1 == len(algorithms)
            if ended and RIGHT in text and not (last and result.returncode not in (0, 7)):
                self.note(name(algorithm), "OK", each, "")
                good += 1
            elif ended and not last:
                self.failed(name(algorithm), result, command, complaint(text), each)
            elif cut:
                self.skip(name(algorithm), f"{OUT_OF_TIME}: stopped after {result.seconds:.0f} s")
                return good, at + 1
            else:
                self.failed(name(algorithm), result, command, self.why(result, limit, text), each)
                return good, at + 1
        return good, len(algorithms)

    def failed(self, what, result, command, why, seconds=None):
        self.record("failures.txt", what, result, command)
        self.note(what, "FAILED", result.seconds if seconds is None else seconds, why)

    def record(self, name, what, result, command):
        """Appends what a command has said to a file of the results."""
        with open(self.out / name, "a", encoding="utf-8") as file:
            text, half = result.stdout, LONGEST_OUTPUT // 2
            if len(text) > LONGEST_OUTPUT:
                text = f"{text[:half]}\n... {len(text) - 2 * half} characters ...\n{text[-half:]}"
            how = "stopped" if result.returncode is None else f"exit code {result.returncode}"
            file.write(f"==== {what}\n$ {' '.join(command)}\n{text}\n---- {how} after {result.seconds:.1f} s\n\n")

    def own_failure(self, part):
        """An exception in gpu-check itself, which ends one part only."""
        text = traceback.format_exc()
        self.failed(f"{part}: gpu-check itself", Result(1, text, 0.0), [], text.strip().splitlines()[-1])

    @staticmethod
    def why(result, limit, text=None):
        said = complaint(text or result.stdout)
        if result.returncode is None:
            return f"not finished within {limit:.0f} s" + (f": {said}" if said else "")
        return (f"exit code {result.returncode}: " if result.returncode else "") + said

    # ---- commands

    def start(self, command, output, environment=None):
        """`job` from now on. Who interrupts while it starts finds no job to end."""
        self.commands += 1
        self.job = subprocess.Popen(command, env=self.environment | (environment or {}), stdin=subprocess.DEVNULL,
                                    stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        if self.interrupted:
            kill_all(self.job)
        return self.job

    def execute(self, command, limit, environment=None):
        """Its output goes to a file, so that there is one to look at however it ends."""
        begin = time.monotonic()
        with tempfile.TemporaryFile() as output:
            try:
                job = self.start(command, output, environment)
            except OSError as error:
                return Result(127, str(error), 0.0)
            try:
                code = job.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
                end(job)
            self.job = None
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
        return Result(None if self.interrupted else code, text, time.monotonic() - begin)

    # ---- results

    def keep(self, name, document):
        if document is not None:
            self.documents[name] = document
            write_json(self.out / "benchmarks.json", self.documents)

    def save(self):
        write_json(self.out / "cells.json",
                   {"commit": self.commit, "device": self.device, "seconds": time.monotonic() - self.began,
                    "commands": self.commands, "targets": self.targets, "cells": self.cells})

    def count(self, result):
        return sum(1 for cell in self.cells if cell[1] == result)

    def summary(self):
        """What is not OK, by name, and the sum. The exit code: 1 if a cell failed, 3 if time ran out."""
        for result in ("skipped", "FAILED"):
            for what, how, seconds, detail in self.cells:
                if how == result:
                    print(f"{how:8} {seconds:6.1f} s  {what}{'  (' + detail + ')' if detail else ''}")
        print(f"{self.count('OK')} OK, {self.count('FAILED')} failed, {self.count('skipped')} skipped; {self.commands} "
              f"commands in {time.monotonic() - self.began:.0f} s; details in {self.out}")
        self.save()
        late = any(how == "skipped" and detail.startswith(OUT_OF_TIME) for _, how, _, detail in self.cells)
        return 1 if self.count("FAILED") else 3 if late else 0


def kill_all(job):
    """A command and what it has started in its session."""
    try:
        os.killpg(job.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def end(job):
    """Kills, and waits, but not for ever."""
    kill_all(job)
    try:
        job.wait(UNKILLABLE)
    except subprocess.TimeoutExpired:
        pass


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def write_json(path, what):
    """Whole or not at all."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(what, indent=1))
    beside.replace(path)
