#!/usr/bin/env python3
"""train_gpu_test.py TUTTI_RUN TRAIN_CHARS EMULATED: `train_chars --device cuda`, on emulated GPUs (EMULATED), ends at
the losses of ranks on CPUs, to the last bit: both add up in the same order, and take exp and tanh from one library."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from casualty import train_without_rank_2

TUTTI_RUN, TRAIN, EMULATED = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
STEPS, BATCH, RANKS = 3, 8, 2


def run(program, ranks, mode, *arguments):
    command = [TUTTI_RUN, "-n", str(ranks), program, "--mode", mode, "--steps", str(STEPS), "--batch", str(BATCH),
               "--quiet", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def train(program, ranks, mode, *arguments):
    done = run(program, ranks, mode, *arguments)
    if done.returncode != 0:
        raise AssertionError(f"{mode}: {done.stdout}{done.stderr}")
    return re.search(r"final loss (\S+) after", done.stdout).group(1)


class TrainingOnGpus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.alone = train(TRAIN, 1, "single", "--parts", RANKS)

    def test_one_rank(self):
        for mode in ("single", "dataparallel"):
            with self.subTest(mode=mode):
                self.assertEqual(train(EMULATED, 1, mode, "--device", "cuda", "--parts", RANKS), self.alone)

    def test_ranks(self):
        for mode in ("bucketed", "ps-sharded", "push-pull", "zero2", "zero3"):
            with self.subTest(mode=mode):
                self.assertEqual(train(EMULATED, RANKS, mode, "--device", "cuda"), self.alone)

        self.assertEqual(train(EMULATED, RANKS, "async", "--device", "cuda", "--staleness", 0), self.alone)
        with self.subTest(mode="async-arrival"):
            self.assertAlmostEqual(float(train(EMULATED, RANKS, "async-arrival", "--device", "cuda")),
                                   float(self.alone), delta=0.5)
        with self.subTest("a CPU as the server"):
            self.assertEqual(train(EMULATED, RANKS + 1, "ps-cpu", "--device", "cuda"), self.alone)

    def test_elastic(self):
        command = [TUTTI_RUN, "--keep-going", "-n", "3", EMULATED, "--device", "cuda", "--mode", "bucketed",
                   "--elastic", "--steps", "110", "--batch", "12"]
        code, output, errors = train_without_rank_2(command)
        self.assertEqual(code, 0, errors)
        self.assertIn("rank 2 is gone", errors)
        self.assertRegex(output, r"2 ranks: final loss [23]\.\d+ after 110 steps")

    def test_losses_of_all_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            curves = [pathlib.Path(folder) / "cpu", pathlib.Path(folder) / "gpu"]
            train(TRAIN, RANKS, "naive", "--curve", curves[0])
            train(EMULATED, RANKS, "naive", "--device", "cuda", "--curve", curves[1])
            losses = [json.loads(curve.read_text())["losses"] for curve in curves]
            self.assertEqual(len(losses[0]), STEPS)
            self.assertEqual(losses[0], losses[1])

    def test_no_gpu(self):
        done = subprocess.run([TRAIN, "--device", "cuda"], capture_output=True, text=True, timeout=100, check=False,
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"train_chars: --device cuda: (this build of Tutti has no CUDA|there is no GPU)")


unittest.main()
