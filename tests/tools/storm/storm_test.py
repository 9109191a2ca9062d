#!/usr/bin/env python3
"""tools/storm: that it finds what is wrong, shown by ranks that only act as such; and a few kills and stops of real
ones."""
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

STORM, BUILD = sys.argv[1:3]
del sys.argv[1:3]

# A rank that says what is expected of it, except for what FLAW says.
ACTOR = '''#!/usr/bin/env python3
import json, os, sys, time
flaw, options = os.environ["FLAW"], dict(zip(sys.argv[1::2], sys.argv[2::2]))
rank, ranks = int(options["--rank"]), int(options["--ranks"])
def say(line):
    print(line, flush=True)
say("up")
for line in sys.stdin:
    if line.startswith("make"):
        say("id 00")
    if line.startswith("join"):
        break
say("ready")
time.sleep(0.2)
victim = int(os.environ["VICTIM"])
if flaw == "ends":
    sys.exit(3)
now = time.monotonic_ns()
say(json.dumps({"rank": rank, "outcome": "wrong" if flaw == "wrong" else "failed", "doing": "pairs", "call": "x",
    "text": "", "trouble": "wrong: 1" if flaw == "trouble" else "", "named_there": victim, "members": [], "failed":
    [(victim + 1) % ranks] if flaw == "names another" else [victim, rank] if flaw == "names more" else [victim],
    "error_ns": now, "recovered_ns": now + (2 * 10**9 if flaw == "late" else 0), "steps": 1,
    "descriptors": [3, 4 if flaw == "left" else 3], "open": ""}))
if flaw == "left a process" and os.fork() == 0:
    os.close(1), os.close(2), time.sleep(3)
'''


def storm(*arguments, **environment):
    done = subprocess.run([sys.executable, STORM, *arguments], capture_output=True, text=True, timeout=110,
                          env=dict(os.environ, **environment))
    done.both = done.stdout + done.stderr
    return done


class Judgement(unittest.TestCase):
    def act(self, flaw, *arguments):
        """What storm says of three ranks of which rank 0 is killed (seed 4), and its exit code."""
        with tempfile.TemporaryDirectory() as build:
            program = pathlib.Path(build, "tests/tools/storm/storm-rank")
            program.parent.mkdir(parents=True)
            program.write_text(ACTOR, encoding="utf-8")
            program.chmod(0o755)
            return storm("--kill", "--trials", "1", "--seed", "4", "--ranks", "3", "--kind", "pairs", "--transport",
                         "shm", "--build", build, *arguments, FLAW=flaw, VICTIM="0")

    def test_what_is_right(self):
        done = self.act("")
        self.assertEqual(done.returncode, 0, done.both)
        self.assertIn("1 of 1 right", done.stdout)

    def test_what_is_wrong(self):
        for flaw, kind, *arguments in (
                ("ends", "wrong"), ("wrong", "wrong"), ("trouble", "wrong"), ("names another", "unnamed"),
                ("names more", "unnamed"), ("left", "left"), ("left a process", "left"), ("late", "late", "--strict")):
            with self.subTest(flaw=flaw):
                done = self.act(flaw, *arguments)
                self.assertEqual(done.returncode, 1, done.both)
                self.assertRegex(done.stdout, f"(?m)^{kind}: rank 0 of 3, pairs: ")
                self.assertIn("again: tools/storm --kill --trials 1 --seed 4 --transport shm --ranks 3 --kind pairs",
                              done.stdout)
                self.assertIn("0 of 1 right", done.stdout)

    def test_who_may_be_named_in_a_part(self):
        """Ranks 0 and 3 are killed; the part is of those that are listed."""
        sys.path.insert(0, os.path.dirname(STORM))
        loader = importlib.machinery.SourceFileLoader("storm", STORM)
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader("storm", loader))
        loader.exec_module(module)

        def may_name(there, members, victims=(0, 3)):
            trial = {"victims": list(victims), "rejoins": True}
            return module.names_rightly(trial, {"failed": [victims[0]], "members": members, "named_there": there})
        for there, members in (0, []), (3, []), (0, [0, 1, 3]), (3, [1, 2, 3]), (1, [1, 2]), (-2, [1, 2]):
            self.assertTrue(may_name(there, members), (there, members))
        self.assertTrue(may_name(1, [1, 2, 3]))  # which gave up because of rank 0
        self.assertFalse(may_name(1, [0, 1, 3]))
        self.assertFalse(may_name(1, []))
        self.assertFalse(may_name(1, [0, 1], victims=[0]))
        self.assertFalse(may_name(4, [1, 2, 3]))

    def test_lateness_counts_only_where_it_is_asked_for(self):
        self.assertEqual(self.act("late").returncode, 0)

    def test_options_that_make_no_sense(self):
        for arguments in ([], ["--kill", "--stop"], ["--kill", "--ranks", "1"], ["--kill", "--build", "/nowhere"],
                          ["--stop", "--hosts", "2"], ["--kill", "--hosts", "1"], ["--kill", "--flavor", "a host"],
                          ["--kill", "--hosts", "3", "--ranks", "2"]):
            self.assertEqual(storm(*arguments).returncode, 2)


class Seeds(unittest.TestCase):
    def act(self, wrong, *arguments):
        """What storm says of a simulation in which seeds from `wrong` on fail, and which ones it ran."""
        with tempfile.TemporaryDirectory() as build:
            program, log = pathlib.Path(build, "tests/sim/sim"), pathlib.Path(build, "log")
            program.parent.mkdir(parents=True)
            program.write_text(f'#!/bin/sh\necho "$2 $4" >> {log}\n[ "$1 $3" = "--first --seeds" ] &&'
                               f' [ $(($2 + $4)) -le {wrong} ]\n', encoding="utf-8")
            program.chmod(0o755)
            done = storm("--build", build, *arguments)
            return done, [tuple(map(int, line.split())) for line in log.read_text(encoding="utf-8").splitlines()]

    def test_all_are_run_a_thousand_at_a_time(self):
        done, ran = self.act(10_000, "--seeds", "2500", "--seed", "7")
        self.assertEqual(done.returncode, 0, done.both)
        self.assertEqual(ran, [(7, 1000), (1007, 1000), (2007, 500)])
        self.assertIn("seeds 7 to 2506: all right", done.stdout)

    def test_one_that_fails_is_told_and_the_others_go_on(self):
        done, ran = self.act(1500, "--seeds", "3000", "--seed", "1")
        self.assertEqual(done.returncode, 1, done.both)
        self.assertEqual(len(ran), 3)
        self.assertIn("seeds 1 to 3000: not all right", done.stdout)

    @unittest.skipUnless(pathlib.Path(BUILD, "tests/sim/sim").exists(), "no simulation with sanitizers")
    def test_worlds(self):
        done = storm("--seeds", "4", "--seed", "1", "--build", BUILD)
        self.assertEqual(done.returncode, 0, done.both)
        self.assertRegex(done.stdout, r"4 seeds, 0 failed, .* switches\nseeds 1 to 4: all right")


class Ranks(unittest.TestCase):
    def right(self, *arguments):
        done = storm(*arguments, "--build", BUILD)
        self.assertEqual(done.returncode, 0, done.both)
        self.assertRegex(done.stdout, r"(?m)^(\d+) of \1 right$")

    def test_kills(self):
        self.right("--kill", "--trials", "10", "--transport", "shm")
        self.right("--kill", "--trials", "10", "--transport", "tcp")

    def test_kills_of_ranks_and_hosts(self):
        if storm("--kill", "--hosts", "2", "--trials", "1", "--minutes", "0", "--build", BUILD).returncode == 77:
            self.skipTest("this machine has no network namespaces for us")
        self.right("--kill", "--hosts", "3", "--trials", "5")
        for flavor in ("a host's cable", "a cable for a while", "resets", "one rank amid resets"):
            self.right("--kill", "--hosts", "3", "--trials", "1", "--flavor", flavor)

    def test_a_rank_that_stops_for_a_while(self):
        self.right("--stop", "--trials", "1", "--transport", "shm", "--ranks", "3")


if __name__ == "__main__":
    unittest.main(verbosity=2)
