#!/usr/bin/env python3
"""torch_test.py BUILD: PyTorch over the wheel, from a fresh virtual environment. Skips (77) where there is no torch."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import environment

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
THEIRS = SOURCE / "bindings/torch/tests"

TWO = """
import torch, torch.distributed as dist
dist.init_process_group("tutti")
x = torch.full((3,), float(dist.get_rank() + 1))
dist.all_reduce(x)
assert dist.get_backend() == "tutti" and x.tolist() == [3.0] * 3, x
dist.destroy_process_group()
"""


LOST = """
import os, torch, tutti.torch
comm = tutti.init(timeout=60)
model = tutti.torch.DataParallelBucket(torch.nn.Linear(8, 8), comm)
if comm.rank == 2:
    model(torch.ones(2, 8)).sum().backward()
    os._exit(0)
try:
    while True:  # the first ones may end well
        model(torch.ones(2, 8)).sum().backward()
except tutti.RemoteError as error:
    print("in backward:", error, flush=True)
comm.abort()
"""


def setUpModule():
    global CACHE, FOLDER, PYTHON  # pylint: disable=global-variable-undefined
    folder = tempfile.TemporaryDirectory(prefix="tutti-torch-")
    unittest.addModuleCleanup(folder.cleanup)
    FOLDER = pathlib.Path(folder.name)
    PYTHON = environment.installed(BUILD, FOLDER, TORCH)
    CACHE = FOLDER / "cache"


def run(*command, **more):
    own = ("TUTTI_", "SLURM_", "PMI", "OMPI_", "PYTHON", "LD_LIBRARY")
    variables = {k: v for k, v in os.environ.items() if not k.startswith(own)}
    variables |= {"TUTTI_TUNING": "none", "XDG_CACHE_HOME": str(CACHE), "OMP_NUM_THREADS": "1",
                  "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=1500, check=False,
                          errors="backslashreplace", cwd=FOLDER, env=variables | more)


def run_ranks(ranks, *command, **more):
    return run(PYTHON.parent / "tutti-run", "-n", ranks, PYTHON, *command, **more)


class Backend(unittest.TestCase):
    def test_found_and_compiled_once_without_an_import(self):
        shutil.rmtree(CACHE, ignore_errors=True)  # of tests that ran before
        first = run_ranks(2, "-c", TWO)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(len(re.findall("tutti: compiling its backend", first.stderr)), 1)
        made = list((CACHE / "tutti").glob("torch-*/*"))
        self.assertEqual(sorted(path.name for path in made), ["_C.so", "lock"])
        again = run_ranks(2, "-c", TWO, CXX="/nowhere/c++")
        self.assertEqual((again.returncode, again.stderr), (0, ""))

    def test_the_manuals_training(self):
        blocks = re.findall(r"```python\n(.*?)```", (SOURCE / "docs/python.md").read_text(), re.S)
        script = next(block for block in blocks if "DistributedDataParallel" in block)
        done = run_ranks(2, "-c", script)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(re.sub(r"0\.0\d\d$", "0.0", line) for line in done.stdout.splitlines()),
                         ["rank 0 of 2: loss 0.0", "rank 1 of 2: loss 0.0"])

    def test_without_a_compiler(self):
        for compiler, says in {"": "yes: c.. compiles it", "/nowhere/c++": r"no: .* compiler /nowhere/c\+\+"}.items():
            self.assertRegex(run(PYTHON, "-m", "tutti", CXX=compiler).stdout, rf"(?m)^  backend  {says}")
        done = run_ranks(1, "-c", TWO, CXX="/nowhere/c++", XDG_CACHE_HOME=str(FOLDER / "no"))
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "ImportError: tutti: there is no C.. compiler .*Install g")
        self.assertEqual([path.name for path in (FOLDER / "no/tutti").glob("torch-*/*")], ["lock"])

    def test_a_compiler_that_fails(self):
        (FOLDER / "broken").write_text("#!/bin/sh\necho 'all.cpp:1: error: no Python.h' >&2\nexit 1\n")
        (FOLDER / "broken").chmod(0o755)
        done = run_ranks(2, "-c", TWO, CXX=str(FOLDER / "broken"), XDG_CACHE_HOME=str(FOLDER / "none"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("does not compile for torch", done.stderr)
        self.assertIn("error: no Python.h", done.stderr)

    def test_one_that_was_built_for_another_torch(self):
        made = next(PYTHON.parents[1].glob("lib/python*/site-packages/tutti_torch")) / "_C.so"
        made.write_bytes(b"no library")
        self.addCleanup(made.unlink)
        done = run_ranks(1, "-c", TWO)
        self.assertRegex(done.stderr, "built for another torch than .*build it again")

    def test_a_cache_that_can_not_be_written(self):
        (FOLDER / "file").touch()
        done = run_ranks(1, "-c", TWO, XDG_CACHE_HOME=str(FOLDER / "file"))
        self.assertIn("XDG_CACHE_HOME can name another", done.stderr)


class Conformance(unittest.TestCase):
    def test_what_pytorch_builds_on_groups(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                (FOLDER / f"saved{ranks}").mkdir()
                done = run_ranks(ranks, THEIRS / "frameworks.py", FOLDER / f"saved{ranks}")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(len(re.findall("^rank . ok$", done.stdout, re.M)), ranks, done.stdout)

    def test_every_type_and_op(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                done = run_ranks(ranks, THEIRS / "matrix.py")
                self.assertEqual(len(re.findall(r"^rank \d ok$", done.stdout, re.M)), ranks, done.stdout + done.stderr)

    def test_groups_that_lose_ranks(self):
        for kind, ends in {"shrink": 3, "shrink_after_a_death": 2, "reconfigure": 2, "recorder": 3, "profiler": 3,
                           "memory": 3, "hooks_of_python": 3}.items():
            with self.subTest(kind=kind):
                done = run(PYTHON.parent / "tutti-run", "--keep-going", "-n", 3, PYTHON, THEIRS / "recovery.py", kind)
                self.assertEqual(len(re.findall(r"^rank \d ok$", done.stdout, re.M)), ends, done.stdout + done.stderr)

    def test_groups_of_several_hosts_that_lose_ranks(self):
        apart = 'TUTTI_HOSTID=host$RANK exec "$0" "$@"'
        for kind, ends in {"shrink": 3, "shrink_after_a_death": 2, "reconfigure": 2}.items():
            with self.subTest(kind=kind):
                done = run(PYTHON.parent / "tutti-run", "--keep-going", "-n", 3, "sh", "-c", apart, PYTHON,
                           THEIRS / "recovery.py", kind)
                self.assertEqual(len(re.findall(r"^rank \d ok$", done.stdout, re.M)), ends, done.stdout + done.stderr)

    def test_hugging_face(self):
        if run(PYTHON, "-c", "import accelerate, transformers").returncode != 0:
            self.skipTest("there are no accelerate and transformers beside torch")
        said = {}
        for backend in ("tutti", "gloo"):
            done = run_ranks(2, THEIRS / "huggingface.py", backend)
            self.assertEqual(done.returncode, 0, done.stderr)
            said[backend] = re.findall(r"^rank \d ok: (\d+\.\d{4})$", done.stdout, re.M)
        self.assertEqual((len(said["tutti"]), said["tutti"]), (2, said["gloo"]))

    def passes(self, script, needs, words, least):
        if run(PYTHON, "-c", f"import {needs}").returncode != 0:
            self.skipTest(f"there is no {needs} beside torch")
        # -u: without a buffer of texts. Where threads print during each other's flush, older versions of Python write
        # memory as it is (https://github.com/python/cpython/issues/119506).
        done = run(PYTHON, "-u", THEIRS / script)
        self.assertEqual(done.returncode, 0, done.stderr[-20000:])
        # Bytes that are no text: memory that was overwritten.
        self.assertNotRegex(done.stdout, r".*\\x[0-9a-f]{2}")
        passed = re.search(words, done.stdout, re.M)
        self.assertTrue(passed, done.stdout[-2000:])
        self.assertGreaterEqual(int(passed[1]), least)
        print(passed[0], flush=True)

    def test_pytorchs_own_tests(self):
        self.passes("conformance.py", "expecttest", r"^conformance: (\d+) passed, 1 exceptions", 90)

    def test_torchfts_own_tests(self):
        self.passes("torchft_suite.py", "torchft, parameterized", r"^torchft: (\d+) passed", 40)


class Layers(unittest.TestCase):
    def of(self, script, *counts):
        cases = re.findall("^def case_", (HERE / script).read_text(), re.M)
        for ranks in counts:
            with self.subTest(ranks=ranks):
                done = run_ranks(ranks, HERE / script)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(len(re.findall(" ok$", done.stdout, re.M)), ranks * len(cases))

    def test_beside_one_process(self):
        self.of("torch_layers.py", 1, 2, 3)

    def test_tensors_of_all_kinds(self):
        self.of("torch_tensors.py", 1, 2)

    def test_a_lost_rank(self):
        done = run_ranks(3, "-c", LOST)
        self.assertEqual(len(re.findall("^in backward: .*rank 2", done.stdout, re.M)), 2, done.stdout + done.stderr)


class Examples(unittest.TestCase):
    def loss(self, script, ranks=1, *arguments):
        done = run_ranks(ranks, SOURCE / f"examples/python/torch/{script}.py", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        losses = {float(loss) for loss in re.findall(r": loss (\d\.\d{4})$", done.stdout, re.M)}
        self.assertEqual(len(losses), 1, done.stdout)
        return losses.pop()

    def test_losses_beside_one_process(self):
        alone = self.loss("alone")
        self.assertLess(alone, 0.2)
        for script, ranks, *arguments in (("bucket", 2), ("zero", 2, "1"), ("zero", 2, "3"), ("server", 3)):
            with self.subTest(script=script, arguments=arguments):
                self.assertAlmostEqual(self.loss(script, ranks, *arguments), alone, delta=0.002)
        self.assertLess(self.loss("server", 3, "--asynchronous"), 0.5)

    def test_a_rank_that_is_lost(self):
        done = run(PYTHON.parent / "tutti-run", "--keep-going", "-n", 3, PYTHON,
                   SOURCE / "examples/python/torch/elastic.py")
        self.assertEqual(len(re.findall(r"^rank [01]: rank 2 is lost in step 20$", done.stdout, re.M)), 2, done.stderr)
        losses = re.findall(r"^rank [01] of 2: loss (\d\.\d{4})$", done.stdout, re.M)
        self.assertEqual((len(losses), len(set(losses))), (2, 1), done.stdout)
        self.assertAlmostEqual(float(losses[0]), self.loss("alone"), delta=0.002)

    def test_ranks_that_torchrun_starts_again(self):
        done = run(PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", 3, "--max-restarts", 1,
                   SOURCE / "examples/python/torch/restarted.py", FOLDER / "checkpoint")
        said = re.findall(r"rank \d of 3: from step 16, loss (\d\.\d{4})", done.stdout)  # torchrun mixes lines
        self.assertEqual((done.returncode, len(said), len(set(said))), (0, 3, 1), done.stdout + done.stderr)
        self.assertAlmostEqual(float(said[0]), self.loss("alone"), delta=0.002)

    def test_a_replica_that_comes_again(self):
        if run(PYTHON, "-c", "import torchft").returncode != 0:
            self.skipTest("there is no torchft beside torch")
        done = run(PYTHON, SOURCE / "examples/python/torch/replicas.py")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("replica 2: gets its state from another one", done.stdout)
        losses = re.findall(r"replica \d: 40 steps, loss (\d\.\d{4})", done.stdout)
        self.assertEqual((len(losses), len(set(losses))), (3, 1), done.stdout)
        self.assertAlmostEqual(float(losses[0]), self.loss("alone"), delta=0.002)

    def has_types(self, *names):
        if run(PYTHON, "-m", "mypy", "--version").returncode != 0:
            self.skipTest("there is no mypy beside torch")
        folder = SOURCE / "examples/python/torch"
        for name in names:
            with self.subTest(name=name):
                done = run(PYTHON, "-m", "mypy", "--strict", "--untyped-calls-exclude=torch", "--config-file",
                           folder.parent / "mypy.ini", folder / f"{name}.py", MYPYPATH=str(folder))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("no issues found in 1 source file", done.stdout)

    def test_mypy(self):
        self.has_types("alone", "bucket", "digits", "elastic", "restarted", "server", "zero")

    def test_mypy_with_torchft(self):
        if run(PYTHON, "-c", "import torchft").returncode != 0:
            self.skipTest("there is no torchft beside torch")
        self.has_types("replicas")

    def test_each_has_a_test(self):
        self.assertEqual({path.stem for path in (SOURCE / "examples/python/torch").glob("*.py")},
                         {"alone", "bucket", "digits", "elastic", "replicas", "restarted", "server", "zero"})


if __name__ == "__main__":
    TORCH, why = environment.folder_of_torch(BUILD)
    if TORCH is None:
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main(verbosity=2)
