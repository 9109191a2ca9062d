#!/usr/bin/env python3
"""examples_test.py TUTTI_RUN PROGRAM...: the programs of examples/ run as their first lines say, alone, under another
launcher, and without a rank that never comes."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

TUTTI_RUN = sys.argv.pop(1)
PROGRAMS = {pathlib.Path(path).name: path for path in sys.argv[1:]}
del sys.argv[1:]

# What each rank says, of {ranks}.
SAYS = {
    "hello": r"rank \d+ of {ranks}: the sum is \d+",
    "streams": r"rank \d+ of {ranks}: 8 blocks, 0 wrong numbers; when .* the stream was (done|still summing)",
    "neighbours": r"rank \d+ of {ranks}: cells \d+ to \d+ from rank \d+, \d+ to \d+ from rank \d+, 0 wrong",
    "one_sided": r"rank \d+ of {ranks}: the sum of what came by is \d+",
    "split": r"rank \d+ of {ranks}: row \d+ sums to \d+, column \d+ to \d+, the grid to \d+",
    "data_parallel": r"{ranks} ranks: y = 3\.000 x \+ 1\.000",
}


def run(*command, **more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "SLURM_", "PMI", "OMPI_"))}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False,
                          env=dict(kept, TUTTI_TUNING="none", **more))


class Examples(unittest.TestCase):
    def right(self, done, name, ranks):
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        lines = done.stdout.splitlines()
        for line in lines:
            self.assertRegex(line, f"^{SAYS[name].format(ranks=ranks)}$")
        said_by = sorted(int(r) for r in re.findall(r"^rank (\d+)", done.stdout, re.M))
        self.assertEqual((len(lines), said_by), (1, []) if name == "data_parallel" else (ranks, list(range(ranks))))

    def test_each_among_some_ranks(self):
        self.assertEqual(SAYS.keys(), PROGRAMS.keys())
        for name, program in PROGRAMS.items():
            for ranks in (1, 2, 4, 6):
                with self.subTest(name=name, ranks=ranks):
                    self.right(run(TUTTI_RUN, "-n", str(ranks), program), name, ranks)

    def test_each_without_a_launcher(self):
        for name, program in PROGRAMS.items():
            with self.subTest(name=name):
                self.right(run(program), name, 1)

    def test_each_under_mpirun(self):
        mpirun = shutil.which("mpirun.openmpi")
        if mpirun is None:
            self.skipTest("mpirun.openmpi is not installed")
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        for name, program in PROGRAMS.items():
            with self.subTest(name=name):
                self.right(run(mpirun, *as_root, "--oversubscribe", "-n", "4", program), name, 4)

    def test_each_says_which_rank_is_missing(self):
        for name, program in PROGRAMS.items():
            with self.subTest(name=name):
                done = run(TUTTI_RUN, "-n", "2", "--keep-going", "sh", "-c",
                           'if [ $RANK = 0 ]; then "$0"; echo "the exit code is $?"; fi', program,
                           TUTTI_INIT_TIMEOUT_MS="200")
                self.assertEqual(done.stdout, "the exit code is 1\n", done.stderr)
                self.assertRegex(done.stderr, rf"{name}\.c:\d+: .*rank 1")


if __name__ == "__main__":
    unittest.main()
