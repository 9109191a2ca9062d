#!/usr/bin/env python3
"""Litmus tests: what the C++ memory model, so every machine and compiler, allows of the orders that protocols rely on.

usage: litmus.py [-v] [TEST...], with herd7 (of herdtools7) on the path

Each test in litmus/ must not reach its last line's state, and be free of data races. Each is repeated with one of its
barriers weakened, for all of them in turn: then it must reach it, or race. So no barrier is there for nothing.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent / "litmus"
BARRIER = re.compile(r"atomic_thread_fence\(memory_order_seq_cst\);|memory_order_(?:release|acquire|seq_cst)")


def reaches(text):
    """Whether the state is reached, or two threads race for what is not atomic."""
    with tempfile.NamedTemporaryFile("w", suffix=".litmus") as file:
        file.write(text)
        file.flush()
        done = subprocess.run(["herd7", "-model", "rc11.cat", file.name], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=600, check=False)
    verdict = re.search(r"^Observation \S+ (Never|Sometimes|Always) (\d+) (\d+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or verdict is None or int(verdict[2]) + int(verdict[3]) == 0:
        raise AssertionError(f"herd7 does not take it:\n{text}\n{done.stdout}")
    return verdict[1] != "Never" or "Flag *undef*" in done.stdout  # of a data race


def weakened(text):
    """The text again and again, with one barrier less."""
    start = text.index("{", text.index("*)"))
    for found in BARRIER.finditer(text, start):
        line = text[text.rfind("\n", 0, found.start()) + 1:text.find("\n", found.end())].strip()
        instead = "" if found[0].endswith(";") else "memory_order_relaxed"
        yield line, text[:found.start()] + instead + text[found.end():]


def holds(text):
    return lambda self: self.assertFalse(reaches(text), text)


def refuted(text):
    return lambda self: self.assertTrue(reaches(text), "no worse without a barrier:\n" + text)


class Litmus(unittest.TestCase):
    pass


for path in sorted(HERE.glob("*.litmus")):
    whole = path.read_text(encoding="utf-8")
    label = path.stem.replace("-", "_")
    setattr(Litmus, f"test_{label}_holds", holds(whole))
    for number, (barrier, less) in enumerate(weakened(whole), 1):
        test = refuted(less)
        test.__doc__ = f"{path.stem} without {barrier}"
        setattr(Litmus, f"test_{label}_needs_{number}", test)

if __name__ == "__main__":
    unittest.main(argv=sys.argv)
