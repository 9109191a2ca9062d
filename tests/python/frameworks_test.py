#!/usr/bin/env python3
"""frameworks_test.py BUILD: the wheel beside JAX, Ray and mypy, which pip fetches into BUILD/frameworks-pypi. Skips
(77) where it can't."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import environment

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/python/frameworks"


def setUpModule():
    global FOLDER, PYTHON  # pylint: disable=global-variable-undefined
    folder = tempfile.TemporaryDirectory(prefix="tutti-frameworks-")
    unittest.addModuleCleanup(folder.cleanup)
    FOLDER = pathlib.Path(folder.name)
    PYTHON = environment.installed(BUILD, FOLDER, BESIDE)


def run(*command):
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "PYTHON", "LD_LIBRARY"))}
    variables |= {"TUTTI_TUNING": "none", "JAX_PLATFORMS": "cpu", "RAY_USAGE_STATS_ENABLED": "0",
                  "RAY_AUTH_MODE": "disabled", "HOME": str(FOLDER)}
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, check=False,
                          cwd=FOLDER, env=variables)


class Frameworks(unittest.TestCase):
    def test_jax(self):
        done = run(PYTHON.parent / "tutti-run", "-n", 2, PYTHON, EXAMPLES / "jax_callback.py")
        self.assertEqual((done.returncode, sorted(done.stdout.splitlines())),
                         (0, [f"rank {rank} of 2: y = 3.00 x + -1.00" for rank in range(2)]), done.stderr)

    def test_ray(self):
        done = run(PYTHON, EXAMPLES / "ray_actors.py")
        said = [line for line in done.stdout.splitlines() if "(raylet)" not in line]  # that an actor has died
        self.assertEqual((done.returncode, said),
                         (0, ["sums: [6.0, 6.0, 6.0]", "then: ['rank 2 is lost', 'rank 2 is lost']",
                              "shrunk: [3.0, 3.0]", "grown: [6.0, 6.0, 6.0]"]), done.stderr)

    def test_mypy(self):
        for path in sorted(EXAMPLES.parent.glob("*.py")):
            with self.subTest(path=path.name):
                done = run(PYTHON, "-m", "mypy", "--strict", path)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("no issues found in 1 source file", done.stdout)

    def test_each_has_a_test(self):
        self.assertEqual({path.stem for path in EXAMPLES.glob("*.py")}, {"jax_callback", "ray_actors"})


if __name__ == "__main__":
    BESIDE, why = environment.fetched(BUILD / "frameworks-pypi", "jax", "ray", "mypy")
    if BESIDE is None:
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main(verbosity=2)
