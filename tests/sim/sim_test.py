#!/usr/bin/env python3
"""What sim says of jobs that fail: sim_test.py SIM."""
import subprocess
import sys
import unittest

SIM = sys.argv.pop(1)


class Failures(unittest.TestCase):
    def test_a_job_that_does_not_end_is_named_with_its_stacks(self):
        done = subprocess.run([SIM, "--seeds", "1", "--limit", "1"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("seed 1: it took longer than 1 ms of real time", done.stdout)
        self.assertRegex(done.stderr, r"process \d+, thread \d+:\n.*sim\(.*\[0x")

    def test_jobs_that_end_in_time_are_right(self):
        done = subprocess.run([SIM, "--seeds", "2"], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("2 seeds, 0 failed", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
