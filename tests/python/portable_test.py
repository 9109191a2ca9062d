#!/usr/bin/env python3
"""portable_test.py BUILD: the wheel that tools/wheel makes for glibc 2.28: all cases of python_test.py with it, and
what another compiler could have changed; then wheels for other Pythons that this machine has (on PATH, or pyenv's).
Skips (77) where pip can't fetch Zig's compiler."""
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


def portable(python, folder):
    """The wheel that this Python builds."""
    done = subprocess.run([python_test.SOURCE / "tools/wheel"], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHON": str(python)})
    if done.returncode != 0:
        raise RuntimeError(f"tools/wheel failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return pathlib.Path(shutil.copy(next((python_test.SOURCE / "build-wheel/dist").glob("*.whl")), folder))


def made(_build, folder):
    """Takes the place of wheel.made."""
    return portable(sys.executable, folder)


@functools.cache
def found(version):
    """A Python of this version, with its headers, or None."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    for path in (shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python")):
        if path is not None:
            done = subprocess.run([path, "-c", "import os, sys, sysconfig, venv; print('%d.%d' % sys.version_info[:2], "
                                   "os.path.exists(sysconfig.get_path('include') + '/Python.h'))"],
                                  capture_output=True, text=True, check=False)
            if done.stdout.split() == [version, "True"]:
                return path
    return None


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


class OtherPythons(unittest.TestCase):
    def folder(self):
        folder = tempfile.TemporaryDirectory(prefix="tutti-python-")
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def works(self, wheel_file, python):
        environment = self.folder() / "environment"
        subprocess.run([python, "-m", "venv", environment], check=True)
        ours = environment / "bin/python"
        subprocess.run([ours, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        f"tutti[numpy] @ {wheel_file.as_uri()}", "ml_dtypes"], check=True)
        package = next(environment.glob("lib/python*/site-packages/tutti"))
        done = python_test.run(ours, "-m", "compileall", "-q", "-f", package, package.parent / "tutti_torch")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        start = (environment / "bin/tutti-run", "-n", "3", ours)
        done = python_test.run(*start, python_test.HERE / "collectives.py")
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 3), done.stdout + done.stderr)
        for script, case in (("trouble.py", "wrong_arguments_1"), ("trouble.py", "another_device_1"),
                             ("trouble.py", "closed_1"), ("trouble.py", "forked_1"), ("waits.py", "interrupted_2"),
                             ("waits.py", "interrupted_in_a_child_1")):
            done = python_test.run(start[0], "-n", case[-1], ours, python_test.HERE / script, case)
            self.assertEqual((done.returncode, len(re.findall(f"^{case}: rank", done.stdout, re.M))),
                             (0, int(case[-1])), done.stdout + done.stderr)

    def test_the_oldest(self):
        python = found("3.9")
        if python is None:
            self.skipTest("there is no Python 3.9 with its headers")
        wheel_file = portable(python, self.folder())
        self.assertIn("-cp39-cp39-manylinux_2", wheel_file.name)
        self.works(wheel_file, python)

    def test_one_for_all_later_ones(self):
        later = [python for python in map(found, ("3.12", "3.13", "3.14")) if python is not None]
        if not later:
            self.skipTest("there is no Python 3.12 or later with its headers")
        wheel_file = portable(later[0], self.folder())
        self.assertRegex(wheel_file.name, r"-cp31\d-abi3-manylinux_2")
        for python in later:
            with self.subTest(python=python):
                self.works(wheel_file, python)


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
