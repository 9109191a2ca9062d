#!/usr/bin/env python3
"""Protocols as models: SPIN looks at every state that the models beside this file can reach.

usage: run.py [--full] [-v] [TEST...]

Each model must hold: no assertion fails, nobody waits for ever, and the search was complete. --full: larger sizes,
which take minutes; and each broken variant, made by a macro, must be refuted. A line for each says how many states
there are.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
COMPILER = os.environ.get("CC", "cc").split()[-1]  # a cache of objects has no use here
MEMORY = 3000  # MiB
SLOW_TO_COMPILE = ("join", "shrink")

# model: (what it needs of the verifier, {size: macros} that hold, --full: {size: macros}, {broken: macros beside it})
MODELS = {
    "fifo": ([], {"weak": ["WEAK"]},
             {"tso": [], "two slots": ["WEAK", "SLOTS=2", "TILE=1"]},
             {"CREDIT_EARLY": [], "CREDIT_KEPT": [], "SLOT_UNCHECKED": [], "TURN_EARLY": [], "TURN_ANY": [],
              "SETTLED_UNASKED": [], "LENGTH_UNCHECKED": [], "LANDING_ANY": [], "LANDING_KEPT": [],
              "RELAXED": ["WEAK"]}),
    "wake_up": ([], {"weak": ["WEAK"]},
             {"tso": [], "three wakers": ["WEAK", "WAKERS=3", "MESSAGES=1"]},
             {"NO_FENCE": [], "FENCE_EARLY": [], "NO_LOOK": [], "WORD_LATE": [], "NOT_SENT": [], "NO_WORD": [],
              "CLEAR_LATE": []}),
    "touch": (["NOREDUCE"], {"weak": ["WEAK"]},
              {"tso": []},
              {"NO_FENCE_TOUCH": [], "NO_FENCE_CLOSE": [], "NO_CHECK": [], "CHECK_FIRST": [], "NO_WAIT": [],
               "FAIL_INSIDE": [], "DEAD_AWAITED": [], "KEY_IGNORED": [], "RELAXED": ["WEAK"]}),
    "join": ([], {"chain": []},
             {"star": ["WIDTH=2"], "two die": ["DEATHS=2"]},
             {"NEWS_KEPT": [], "LEFT_UNSAID": [], "END_IGNORED": [], "RECORD_LOST": [], "ROOT_LEAVES": [],
              "PARENT_LOST": []}),
    "shrink": ([], {"one dies": [], "two die": ["DEATHS=2"]}, {},
               {"COMMIT_EARLY": [], "NO_HOLD": [], "HOLD_UNTOLD": [], "LOST_IGNORED": [], "COMMIT_LOST": [],
                "ALONE": []}),
}


class Verdict:
    """What the verifier says."""

    def __init__(self, said):
        self.said = said
        found = re.search(r"errors: (\d+)", said)
        self.errors = int(found[1]) if found else None
        states = re.search(r"^\s*(\S+) states, stored", said, re.MULTILINE)
        self.states = int(float(states[1])) if states else 0
        why = re.search(r"^pan:\d+: (.*?)(?: \(at depth \d+\))?$", said, re.MULTILINE)
        self.why = why[1] if why else ""
        # Of the model itself, not of what it models: a channel that is too short, an index beyond an array.
        self.is_model_wrong = "nfull" in self.why or not re.match("assertion violated|invalid end state", self.why)
        self.is_complete = not re.search("too small|not completed|out of memory|memory limit|truncated|error:", said)


def verify(model, options, macros, optimization):
    with tempfile.TemporaryDirectory(prefix="tutti-models-") as folder:
        def call(*command, limit=3600):
            done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  stdin=subprocess.DEVNULL, timeout=limit, check=False)
            return done.returncode, done.stdout

        defines = ["-D" + macro for macro in macros]
        status, said = call("spin", *defines, "-a", str(HERE / (model + ".pml")))
        if status != 0 or "rror" in said or not pathlib.Path(folder, "pan.c").exists():
            raise AssertionError(f"spin does not take {model}.pml:\n{said}")
        status, said = call(COMPILER, optimization, "-w", "-DSAFETY", "-DCOLLAPSE",
                            "-DVECTORSZ=4096", f"-DMEMLIM={MEMORY}", *["-D" + o for o in options], "-o", "pan", "pan.c")
        if status != 0:
            raise AssertionError(f"the verifier of {model}.pml does not compile:\n{said}")
        # Whom a model kills need not come to its end: there the model itself says who must (Watch).
        return Verdict(call("./pan", "-m3000000", *["-E"] * ("NOREDUCE" in options))[1])


def holds(model, options, size, macros):
    def test(self):
        verdict = verify(model, options, macros, "-O0" if model in SLOW_TO_COMPILE else "-O1")
        self.assertEqual(verdict.errors, 0, verdict.said)
        self.assertTrue(verdict.is_complete, verdict.said)
        print(f"{model} ({size}): {verdict.states:,} states", file=sys.stderr)
    test.__doc__ = f"{model} holds: {size}"
    return test


def refuted(model, options, broken, macros):
    def test(self):
        verdict = verify(model, options, macros + [broken], "-O0")  # what is wrong is found soon
        self.assertEqual(verdict.errors, 1, f"{broken} was not found\n" + verdict.said)
        self.assertFalse(verdict.is_model_wrong, verdict.said)
        print(f"{model} refuted ({broken}): {verdict.why}", file=sys.stderr)
    test.__doc__ = f"{model} is refuted: {broken}"
    return test


class Models(unittest.TestCase):
    pass


def main(arguments):
    full = "--full" in arguments
    for model, (options, sizes, larger, broken) in MODELS.items():
        for size, macros in (larger if full else sizes).items():
            name = re.sub(r"\W+", "_", f"test_{model}_holds_{size}")
            setattr(Models, name, holds(model, options, size, macros))
        for name, macros in (broken if full else {}).items():
            setattr(Models, f"test_{model}_refuted_{name}", refuted(model, options, name, macros))
    unittest.main(argv=[sys.argv[0]] + [a for a in arguments if a != "--full"])


if __name__ == "__main__":
    main(sys.argv[1:])
