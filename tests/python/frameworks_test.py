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
HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples/python/frameworks"


def setUpModule():
    global FOLDER, PYTHON  # pylint: disable=global-variable-undefined
    folder = tempfile.TemporaryDirectory(prefix="tutti-frameworks-")
    unittest.addModuleCleanup(folder.cleanup)
    FOLDER = pathlib.Path(folder.name)
    PYTHON = environment.installed(BUILD, FOLDER, BESIDE)


def run(*command, **more):
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "PYTHON", "LD_LIBRARY"))}
    variables |= {"TUTTI_TUNING": "none", "JAX_PLATFORMS": "cpu", "RAY_USAGE_STATS_ENABLED": "0",
                  "RAY_AUTH_MODE": "disabled", "HOME": str(FOLDER), **more}
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, check=False,
                          cwd=FOLDER, env=variables)


def run_ranks(ranks, *command, **more):
    return run(PYTHON.parent / "tutti-run", "-n", ranks, PYTHON, *command, **more)


class Jax(unittest.TestCase):
    """jax_ranks.py has the cases."""

    def of(self, case, *ranks):
        for n in ranks:
            with self.subTest(ranks=n):
                done = run_ranks(n, HERE / "jax_ranks.py", case)
                self.assertEqual((done.returncode, sorted(done.stdout.splitlines())),
                                 (0, [f"{case}: rank {rank}" for rank in range(n)]), done.stderr)

    def test_results(self):
        self.of("results", 1, 3)

    def test_gradients(self):
        self.of("gradients", 1, 3)

    def test_order(self):
        self.of("order", 2)

    def test_trouble(self):
        self.of("trouble", 2)

    def test_training_as_one_process(self):
        losses = set()
        for n in (1, 2):
            done = run_ranks(n, EXAMPLES / "jax_training.py")
            lines = sorted(done.stdout.splitlines())
            self.assertEqual((done.returncode, len(lines)), (0, n), done.stderr)
            for rank, line in enumerate(lines):
                self.assertRegex(line, rf"^rank {rank} of {n}: loss 0\.\d{{4}}$")
                losses.add(line.partition(": ")[2])
        self.assertEqual(len(losses), 1, losses)

    def test_without_a_compiler(self):
        done = run_ranks(1, HERE / "jax_ranks.py", "trouble", CXX="/nowhere/c++", XDG_CACHE_HOME=str(FOLDER / "no"))
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "ImportError: tutti: there is no C.. compiler .*its collectives .* for the "
                         "jaxlib [0-9.]+ that is installed, when it is first used. Install g")


class Frameworks(unittest.TestCase):
    def test_ray(self):
        done = run(PYTHON, EXAMPLES / "ray_actors.py")
        said = [line for line in done.stdout.splitlines() if "(raylet)" not in line]  # that an actor has died
        self.assertEqual((done.returncode, said),
                         (0, ["sums: [6.0, 6.0, 6.0]", "then: ['rank 2 is lost', 'rank 2 is lost']",
                              "shrunk: [3.0, 3.0]", "grown: [6.0, 6.0, 6.0]"]), done.stderr)

    def test_cupy(self):
        theirs = run(os.environ.get("PYTHON", sys.executable), "-c", "import cupy, pathlib; cupy.zeros(1); "
                     "print(pathlib.Path(cupy.__file__).parents[1], cupy.cuda.runtime.getDeviceCount())")
        if theirs.returncode != 0:
            self.skipTest(f"CuPy does not run here: {theirs.stderr.strip().splitlines()[-1]}")
        site, gpus = theirs.stdout.split()
        (next(PYTHON.parents[1].glob("lib/python*/site-packages")) / "cupy.pth").write_text(site + "\n")
        for n in range(1, min(int(gpus), 2) + 1):
            done = run_ranks(n, EXAMPLES / "cupy_sum.py")
            total = n * (n + 1) // 2
            self.assertEqual((done.returncode, sorted(done.stdout.splitlines())),
                             (0, [f"rank {rank} of {n}: the sum is {total} to {total} in {1 << 20} places"
                                  for rank in range(n)]), done.stderr)

    def test_mypy(self):
        package = next(PYTHON.parents[1].glob("lib/python*/site-packages/tutti"))
        for path in (*sorted(EXAMPLES.parent.glob("*.py")), *sorted(EXAMPLES.glob("*.py")),
                     package / "_compiled.py", package / "_waiting.py", package / "jax/_collectives.py"):
            with self.subTest(path=path.name):
                done = run(PYTHON, "-m", "mypy", "--strict", "--config-file", EXAMPLES.parent / "mypy.ini", path)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("no issues found in 1 source file", done.stdout)

    def test_each_has_a_test(self):
        self.assertEqual({path.stem for path in EXAMPLES.glob("*.py")}, {"cupy_sum", "jax_training", "ray_actors"})


if __name__ == "__main__":
    BESIDE, why = environment.fetched(BUILD / "frameworks-pypi", "jax", "ray", "mypy")
    if BESIDE is None:
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main(verbosity=2)
