#!/usr/bin/env python3
"""train_test.py TUTTI_RUN TRAIN_CHARS: the example ends at the same loss in all modes, and goes on from checkpoints."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import safetensors_reader as safetensors
from casualty import train_without_rank_2

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
from addresses import own_address  # noqa: E402

TUTTI_RUN, TRAIN = sys.argv.pop(1), sys.argv.pop(1)
STEPS = 12


def train_output(ranks, mode, *arguments, hosts=None):
    """mode: None for none. hosts: a letter for each rank; those with different ones take each other for other hosts."""
    apart = (f'export LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR={own_address()}; '
             f'TUTTI_HOSTID=$(echo {hosts} | cut -c $((RANK + 1))) exec "$0" "$@"')
    command = [TUTTI_RUN, "-n", str(ranks), *(("sh", "-c", apart) if hosts else ()), TRAIN,
               *(("--mode", mode) if mode else ()), "--quiet", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False,
                          env={**os.environ, "TUTTI_SECRET": "12" * 32} if hosts else None)
    if done.returncode != 0:
        raise AssertionError(f"{mode}: {done.stdout}{done.stderr}")
    return done.stdout


def loss_of(output):
    return float(re.search(r"final loss (\S+) after", output).group(1))


def train(ranks, mode, *arguments):
    return loss_of(train_output(ranks, mode, *arguments))


class Training(unittest.TestCase):
    def test_modes(self):
        alone = {parts: train(1, "single", "--parts", parts, "--steps", STEPS) for parts in (1, 2, 3)}
        self.assertLess(alone[1], 4)  # of 61 characters: it has learned something
        self.assertAlmostEqual(alone[1], alone[3], delta=0.01)
        for mode in ("naive", "bucketed", "ps", "ps-sharded", "zero1", "zero2", "zero3"):
            with self.subTest(mode=mode):
                self.assertEqual(train(3, mode, "--steps", STEPS), alone[3])
        self.assertEqual(train(3, "ps-cpu", "--steps", STEPS), alone[2])
        self.assertEqual(train(3, "all-gather", "--steps", STEPS), alone[3])
        self.assertEqual(train(4, "ps", "--servers", 2, "--dedicated", "--steps", STEPS), alone[2])
        self.assertEqual(train(3, "push-pull", "--steps", STEPS), alone[3])
        self.assertEqual(train(4, "push-pull", "--servers", 2, "--dedicated", "--steps", STEPS), alone[2])
        self.assertEqual(train(1, "dataparallel", "--parts", 3, "--steps", STEPS), alone[3])
        self.assertEqual(train(3, "async", "--staleness", 0, "--steps", STEPS), alone[3])
        self.assertAlmostEqual(train(3, "async", "--steps", STEPS), alone[3], delta=0.5)

    def test_hsdp(self):
        alone = train(1, "single", "--parts", 4, "--steps", STEPS)
        for mode, groups in (("zero1", "2x2"), ("zero2", "4x1"), ("zero3", "2x2"), ("zero3", "1x4")):
            with self.subTest(mode=mode, groups=groups):
                self.assertEqual(train(4, mode, "--hsdp", groups, "--steps", STEPS), alone)
        self.assertEqual(train(4, None, "--hsdp", "2x2", "--steps", STEPS), alone)  # zero3

    def test_hsdp_by_hosts(self):
        if own_address() is None:
            self.skipTest("no network interface beside the loopback")
        alone = train(1, "single", "--parts", 4, "--steps", STEPS)
        for mode in ("zero1", "zero2", "zero3"):
            for hosts in ("AABB", "ABBA"):  # ranks of a host need not be neighbours
                with self.subTest(mode=mode, hosts=hosts):
                    output = train_output(4, mode, "--hsdp", "host", "--steps", STEPS, hosts=hosts)
                    self.assertEqual(loss_of(output), alone)

    def test_options(self):
        with self.assertRaisesRegex(AssertionError, "--save-every needs --save"):
            train(1, "zero3", "--save-every", 2)
        with self.assertRaisesRegex(AssertionError, "--rendezvous and --join are for"):
            train(1, "zero3", "--rendezvous", "/tmp/d")
        for groups, words in (("2x3", "--hsdp is 2x3, and there are 4 ranks"), ("2", "GROUPSxRANKS was expected")):
            with self.assertRaisesRegex(AssertionError, words):
                train(4, "zero3", "--hsdp", groups)
        with self.assertRaisesRegex(AssertionError, "--hsdp is for"):
            train(4, "bucketed", "--hsdp", "2x2")

    def test_uneven(self):
        """The last of three ranks has 8 batches of 12, and the one before it 10."""
        alone = train(1, "single", "--parts", 3, "--steps", STEPS, "--uneven")
        self.assertNotEqual(alone, train(1, "single", "--parts", 3, "--steps", STEPS))
        for mode in ("naive", "bucketed", "ps", "ps-sharded", "zero1", "zero2", "zero3"):
            with self.subTest(mode=mode):
                self.assertEqual(train(3, mode, "--steps", STEPS, "--uneven"), alone)
        self.assertEqual(train(4, "ps", "--dedicated", "--steps", STEPS, "--uneven"), alone)
        with self.assertRaisesRegex(AssertionError, "--uneven is for synchronous modes"):
            train(3, "async", "--uneven")

    def test_whole_parameters(self):
        """Optimizers that need all of a parameter at once."""
        for optimizer in ("lamb", "muon"):
            arguments = ("--optimizer", optimizer, "--rate", 0.02, "--steps", STEPS)
            alone = train(1, "single", "--parts", 3, *arguments)
            self.assertLess(alone, 4)  # it has learned something
            for mode in ("bucketed", "ps", "ps-sharded", "zero1", "zero3"):
                with self.subTest(optimizer=optimizer, mode=mode):
                    self.assertEqual(train(3, mode, *arguments), alone)

    def test_on_arrival(self):
        for ranks, arguments in ((3, ()), (4, ("--servers", 2, "--dedicated", "--staleness", 1)),
                                 (3, ("--staleness", "unbounded", "--slow-rank", 1))):
            with self.subTest(arguments=arguments):
                output = train_output(ranks, "async-arrival", "--steps", 4 * STEPS, *arguments)
                self.assertLess(loss_of(output), 3.5)  # it has learned something
                stale, bound = re.search(r"staleness at most (\d+) of (\w+);", output).groups()
                self.assertTrue(bound == "unbounded" or int(stale) <= int(bound), output)
                applied = int(re.search(r"(\d+) gradients applied on arrival", output).group(1))
                workers = ranks - (2 if "--dedicated" in arguments else 0)
                self.assertEqual(applied % (4 * STEPS * workers), 0)  # every parameter's gradient, once
                self.assertGreater(applied, 0)
        with self.assertRaisesRegex(AssertionError, "a number was expected"):
            train(3, "async", "--staleness", "unbounded")

    def test_on_arrival_without_a_worker(self):
        command = [TUTTI_RUN, "--keep-going", "-n", "4", TRAIN, "--mode", "async-arrival", "--servers", "1",
                   "--staleness", "3", "--elastic", "--steps", "600"]
        code, output, errors = train_without_rank_2(command)
        self.assertEqual(code, 0, errors)
        self.assertIn("rank 2 is gone", errors)
        self.assertRegex(output, r"final loss \S+ after 600 steps")

    def test_fp16(self):
        alone = train(1, "single", "--parts", 3, "--steps", STEPS)
        halves = train(1, "single", "--parts", 3, "--steps", STEPS, "--fp16")
        self.assertNotEqual(halves, alone)
        self.assertAlmostEqual(halves, alone, delta=0.05)
        for mode in ("bucketed", "ps-cpu", "zero1", "zero2", "zero3"):
            with self.subTest(mode=mode):
                self.assertAlmostEqual(train(3, mode, "--steps", STEPS, "--fp16"), halves, delta=0.05)

    def test_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "checkpoint"
            self.assertEqual(train(3, "zero2", "--steps", 4, "--save", path), train(2, "bucketed", "--steps", 0,
                                                                                   "--load", path))
            self.assertEqual(train(3, "bucketed", "--steps", 4, "--load", path), train(3, "zero2", "--steps", 8))

    def test_other_readers(self):
        """4 ranks of ZeRO-3 save, 3 of ZeRO-1 load; and a reader that has only the format's description."""
        with tempfile.TemporaryDirectory() as folder:
            four, three = pathlib.Path(folder) / "four", pathlib.Path(folder) / "three"
            loss = train(4, "zero3", "--steps", 4, "--save", four)
            self.assertEqual(train(3, "zero1", "--steps", 0, "--load", four, "--save", three), loss)
            for kind in ("model", "optimizer"):
                had, has = safetensors.load(four, kind), safetensors.load(three, kind)
                self.assertGreater(len(had), 4)
                self.assertEqual(had, has)
                name = {"model": "weights2", "optimizer": "exp_avg.weights2"}[kind]
                self.assertEqual(had[name][1], [128, 128])
            self.assertTrue(all(dtype == "F32" for dtype, _, _ in had.values()))
            self.assertEqual({name.split(".")[0] for name in had}, {"exp_avg", "exp_avg_sq"})
            self.assertEqual(len(list(four.glob("model-*-of-00004.safetensors"))), 4)

    def test_curve_and_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            curve, trace = pathlib.Path(folder) / "curve", pathlib.Path(folder) / "trace"
            train(2, "bucketed", "--steps", 3, "--curve", curve, "--trace", trace)
            self.assertEqual(curve.read_text().count(","), 3)
            self.assertIn("bucket 0", trace.read_text())

    def test_bad_batch(self):
        with self.assertRaisesRegex(AssertionError, "can't be dealt"):
            train(3, "naive", "--batch", 100)


unittest.main()
