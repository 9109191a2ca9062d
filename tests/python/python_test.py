#!/usr/bin/env python3
"""python_test.py BUILD: the wheel, installed into a fresh virtual environment and used from there alone."""
import os
import pathlib
import sys
import tempfile
import subprocess
import unittest

import wheel

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
HERE = pathlib.Path(__file__).resolve().parent


def setUpModule():
    global FOLDER, PYTHON, WHEEL  # pylint: disable=global-variable-undefined
    FOLDER = tempfile.TemporaryDirectory(prefix="tutti-python-")
    unittest.addModuleCleanup(FOLDER.cleanup)
    PYTHON, WHEEL = wheel.installed(BUILD, pathlib.Path(FOLDER.name))


def environment():
    own = ("TUTTI_", "SLURM_", "PMI", "OMPI_", "PYTHON", "LD_LIBRARY", "MPLCONFIG")
    return {k: v for k, v in os.environ.items() if not k.startswith(own)} | {"TUTTI_TUNING": "none"}


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=FOLDER.name,
                          env=environment() | more)


def run_ranks(ranks, *command, **more):
    return run(PYTHON.parent / "tutti-run", "-n", str(ranks), PYTHON, *command, **more)


class Operations(unittest.TestCase):
    def test_all_of_them_against_numpy(self):
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                done = run_ranks(ranks, HERE / "collectives.py")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(len(done.stdout.splitlines()), ranks)


if __name__ == "__main__":
    unittest.main()
