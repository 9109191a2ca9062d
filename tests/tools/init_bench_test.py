"""init_bench: a row of ranks, and what it does where memory is short."""

import signal
import subprocess
import sys
import unittest

INIT_BENCH = sys.argv.pop(1)


def run(*arguments, **options):
    return subprocess.run([INIT_BENCH, *arguments], capture_output=True, text=True, timeout=100, **options)


def rows(done):
    return [line.split() for line in done.stdout.splitlines() if line.strip() and line.split()[0].isdigit()]


class Rows(unittest.TestCase):
    def test_64_ranks_join_and_call(self):
        done = run("-n", "64")
        self.assertEqual(done.returncode, 0, done.stderr)
        [row] = rows(done)
        self.assertEqual(row[0], "64")
        self.assertNotIn("-", row)

    def test_with_little_memory_they_only_join_and_the_table_says_so(self):
        done = run("-n", "64", "--memory", "60")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("# 64 ranks join only: with their links they would hold about 0.1 GiB, of 0.1 that", done.stdout)
        [row] = rows(done)
        self.assertEqual(row[5:7], ["-", "-"])

    def test_with_less_than_that_the_row_is_not_begun(self):
        done = run("-n", "64", "--memory", "8")
        self.assertEqual(done.returncode, 1)
        self.assertIn("# no row of 64 ranks: to join alone takes about 0.0 GiB, of 0.0 that are", done.stdout)
        self.assertEqual(rows(done), [])

    def test_parent_that_ignores_its_children(self):
        done = run("-n", "2", "--join-only", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(rows(done)), 1)


if __name__ == "__main__":
    unittest.main()
