#!/usr/bin/env python3
"""elastic_test.py TUTTI_RUN NETNS_RUN TRAIN_CHARS: ranks of the example die and come, and its loss hardly differs."""
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from casualty import environment_of, process_of, train_without_rank_2

TUTTI_RUN, NETNS_RUN, TRAIN = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
HERE = [TUTTI_RUN, "--keep-going", "-n", "4"]


def loss_of(output):
    return float(re.search(r"final loss (\S+) after", output).group(1))


@functools.cache
def undisturbed(steps):
    done = subprocess.run([TUTTI_RUN, "-n", "4", TRAIN, "--mode", "zero3", "--quiet", "--steps", str(steps)],
                          capture_output=True, text=True, timeout=100, check=True)
    return loss_of(done.stdout)


class Elastic(unittest.TestCase):
    def test_bucketed(self):
        code, output, errors = train_without_rank_2([*HERE, TRAIN, "--mode", "bucketed", "--elastic", "--steps", "400"])
        self.assertEqual(code, 0, errors)
        self.assertIn("rank 2 is gone", errors)
        self.assertRegex(output, r"3 ranks: final loss \S+ after 400 steps")
        self.assertAlmostEqual(loss_of(output), undisturbed(400), delta=0.01)

    def test_groups(self):
        """A part of a rank that dies is taken from its copy in the other group."""
        code, output, errors = train_without_rank_2([*HERE, TRAIN, "--mode", "zero3", "--hsdp", "2x2", "--elastic",
                                                     "--steps", "400"])
        self.assertEqual(code, 0, errors)
        self.assertRegex(errors, r"\b3 ranks go on after step (?:[5-9]\d|[1-3]\d\d)\b")
        self.assertIn("bound 0.01", output)
        self.assertAlmostEqual(loss_of(output), undisturbed(400), delta=0.01)

    def dies_and_comes(self, launcher, entrance, steps):
        """A rank dies with its part, the others go back to the last checkpoint, and later a new rank comes."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            arguments = [TRAIN, "--mode", "zero3", "--elastic", "--steps", str(steps), "--save", path / "checkpoint",
                         "--save-every", "20"]

            def replace(job):
                before, surroundings = entrance(job)
                return subprocess.Popen([*before, *arguments, "--join", path / "rendezvous"], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, env=surroundings)

            command = [*launcher, *arguments, "--rendezvous", path / "rendezvous"]
            code, output, errors, new = train_without_rank_2(command, replace)
            self.assertEqual(new.returncode, 0, new.said)
            gone = int(re.search(r"\b3 ranks go on after step (\d+)", errors).group(1))
            self.assertEqual(gone % 20, 0)
            came = int(re.search(r"a rank has come; 4 ranks go on after step (\d+)", errors).group(1))
            self.assertGreaterEqual(came, gone)
            self.assertRegex(output, rf"4 ranks: final loss \S+ after {steps} steps")
            self.assertIn("bound 0.01", output)
            self.assertAlmostEqual(loss_of(output), undisturbed(steps), delta=0.01)
            return code

    def test_checkpoint_and_newcomer(self):
        self.assertEqual(self.dies_and_comes(HERE, lambda job: ([], None), 400), 0)

    def test_checkpoint_and_newcomer_on_two_hosts(self):
        probe = subprocess.run([sys.executable, NETNS_RUN, "--probe"], capture_output=True, text=True, check=False)
        if probe.returncode == 77:
            self.skipTest(probe.stderr.strip())

        def entrance(job):  # the host of rank 3
            neighbour = process_of(job, 3)
            words = [word.decode() for word in environment_of(neighbour) if word.startswith(b"TUTTI_")]
            theirs = dict(word.split("=", 1) for word in words)
            return ["nsenter", "-t", str(neighbour), "-n", "-u", "-p"], {**os.environ, **theirs}

        launcher = [sys.executable, NETNS_RUN, "--hosts", "2", "--ranks", "2", "--grace", "90", "--"]
        self.assertNotEqual(self.dies_and_comes(launcher, entrance, 400), 0)  # it says that a rank was killed

    def test_newcomer_that_does_not_come(self):
        """Its request is all that it has left."""
        with tempfile.TemporaryDirectory() as folder:
            rendezvous = pathlib.Path(folder) / "rendezvous"
            (pathlib.Path(folder) / "rendezvous.request").write_bytes(bytes(8))
            done = subprocess.run([TUTTI_RUN, "-n", "2", TRAIN, "--mode", "bucketed", "--elastic", "--steps", "20",
                                   "--rendezvous", rendezvous], capture_output=True, text=True, timeout=100,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, "the newcomer did not come: .*rank 2")
            self.assertRegex(done.stdout, r"2 ranks: final loss \S+ after 20 steps, .*the bits of --mode single")
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_asynchronous(self):
        """Rank 2 is a server, and ranks are at different steps when it dies."""
        for mode in ("async", "async-arrival"):
            with self.subTest(mode=mode):
                code, output, errors = train_without_rank_2([*HERE, TRAIN, "--mode", mode, "--staleness", "3",
                                                             "--elastic", "--steps", "400"])
                self.assertEqual(code, 0, errors)
                self.assertRegex(errors, r"\b3 ranks go on after step (?:[4-9]\d|[1-3]\d\d)\b")
                self.assertRegex(output, r"3 ranks: final loss \S+ after 400 steps")
                self.assertLess(loss_of(output), 3)  # it has not begun anew

    def test_where_it_is_refused(self):
        for mode in (("ps", "--dedicated"), ("ps-cpu",), ("push-pull",)):
            done = subprocess.run([TRAIN, "--elastic", "--mode", *mode], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("--elastic is for", done.stderr)

    def test_nothing_to_go_back_to(self):
        command = [TUTTI_RUN, "--keep-going", "-n", "3", TRAIN, "--mode", "zero1", "--elastic", "--steps", "4000"]
        code, _, errors = train_without_rank_2(command)
        self.assertNotEqual(code, 0)
        self.assertIn("no remaining rank has all of", errors)


unittest.main()
