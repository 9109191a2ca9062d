#!/usr/bin/env python3
"""portable_test.py BUILD: the wheel that tools/wheel makes for glibc 2.28: all cases of python_test.py with it, and
what another compiler could have changed. Skips (77) where pip can't fetch Zig's compiler."""
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import python_test
import wheel
from python_test import Examples, Operations, Trouble, Wheel  # noqa: F401  unittest finds their cases here

ZIG = re.search(r"ziglang==[\d.]+", (python_test.SOURCE / "tools/wheel").read_text()).group()
OF_GLIBC = r"lib(c|m|dl|rt|pthread)\.so\.\d|ld-linux-.*"
OWN = r"libtutti\.so\.0"


@functools.cache
def portable():
    done = subprocess.run([python_test.SOURCE / "tools/wheel"], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHON": sys.executable})
    if done.returncode != 0:
        raise RuntimeError(f"tools/wheel failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return next((python_test.SOURCE / "build-wheel/dist").glob("*.whl"))


def made(_build, folder):
    """Takes the place of wheel.made."""
    return pathlib.Path(shutil.copy(portable(), folder))


def setUpModule():
    python_test.setUpModule()


class Portable(unittest.TestCase):
    def test_glibc(self):
        tags = re.findall(r"manylinux_2_(\d+)", python_test.WHEEL.name)
        self.assertTrue(tags and int(tags[0]) <= 28, python_test.WHEEL.name)

    def test_it_needs_nothing_but_glibc(self):
        checked = 0
        for path in sorted(python_test.PACKAGE.rglob("*")):
            if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
                checked += 1
                needed = re.findall(r"\(NEEDED\).*\[(.*)\]", python_test.run("readelf", "-d", path).stdout)
                for name in needed:
                    self.assertRegex(name, f"^(?:{OF_GLIBC}|{OWN})$", path)
        self.assertGreaterEqual(checked, 6)  # module, libtutti, libnccl, tutti-run, tutti-tools, perf
        self.assertFalse((python_test.PACKAGE.parent / "tutti.libs").exists())

    def test_messages_are_copied_by_glibc(self):
        for path in ("lib/libtutti.so.0", "bin/perf"):
            imported = python_test.run("nm", "-D", "--undefined-only", python_test.PACKAGE / path).stdout
            self.assertRegex(imported, r"\bmemcpy@GLIBC", path)

    def test_beside_ranks_of_this_compiler(self):
        """Rank 1 is from BUILD, the others from the wheel: they share memory and messages."""
        for name in ("all_reduce", "alltoall", "sendrecv"):
            for more in ({"TUTTI_TRANSPORT": "shm"}, {"TUTTI_TRANSPORT": "tcp", "TUTTI_ENCRYPT": "1"}):
                with self.subTest(name=name, **more):
                    ours = python_test.PYTHON.parent / f"{name}_perf"
                    built = python_test.BUILD / f"bench/{name}_perf"
                    done = python_test.run(
                        python_test.PYTHON.parent / "tutti-run", "-n", "3", "sh", "-c",
                        f'[ "$RANK" = 1 ] && exec {built} "$@" || exec {ours} "$@"', "perf",
                        "-b", "8", "-e", "4M", "-f", "8", "-n", "3", **more)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    self.assertRegex(done.stdout, "Out of bounds values *: 0 OK", done.stderr)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tutti-zig-") as scratch:
        done = subprocess.run([python_test.BUILD / "python/bin/python", "-m", "pip", "download", "--quiet", "--no-deps",
                               "--disable-pip-version-check", "--dest", pathlib.Path(scratch), ZIG],
                              capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"skipped: pip can't fetch {ZIG}: " + (done.stderr.strip().splitlines() or ["it says nothing"])[-1])
        sys.exit(77)
    wheel.made = made
    unittest.main(verbosity=2)
