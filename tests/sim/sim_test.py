#!/usr/bin/env python3
"""What sim says of jobs that fail: sim_test.py SIM."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

SIM = sys.argv.pop(1)


def children(process):
    """The processes that this one has made."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended since
            if re.search(rf"^PPid:\t{process}$", (folder / "status").read_text(), re.M):
                found.append(int(folder.name))
    return found


def stopped(process):
    """Stops it, if it is still there: controllers soon end."""
    with contextlib.suppress(OSError):
        os.kill(process, signal.SIGSTOP)
        while (state := pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]) not in "TZ":
            pass
        return state == "T"
    return False


class Failures(unittest.TestCase):
    def test_a_job_that_does_not_end_is_named_with_its_stacks(self):
        done = subprocess.run([SIM, "--seeds", "1", "--limit", "1"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("seed 1: it took longer than 1 ms of real time", done.stdout)
        self.assertRegex(done.stderr, r"process \d+, thread \d+:\n.*sim\(.*\[0x")

    def test_a_controller_that_crashes_ends_its_job(self):
        sim = subprocess.Popen([SIM, "--seeds", "2000", "--jobs", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
        self.addCleanup(sim.kill)
        controller = None
        while controller is None:
            self.assertIsNone(sim.poll())
            controllers = [c for worker in children(sim.pid) for c in children(worker)]
            controller = next((c for c in controllers if children(c) and stopped(c)), None)
        os.kill(controller, signal.SIGSEGV)
        os.kill(controller, signal.SIGCONT)
        self.assertIn("the simulation itself crashed", sim.stdout.readline())
        sim.kill()
        self.assertRegex(sim.stderr.read(), rf"process {controller}, thread {controller}:\n.*sim\(.*\[0x")

    def test_jobs_that_end_in_time_are_right(self):
        done = subprocess.run([SIM, "--seeds", "2"], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("2 seeds, 0 failed", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
