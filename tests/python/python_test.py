#!/usr/bin/env python3
"""python_test.py BUILD: the wheel, installed into a fresh virtual environment and used from there alone."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

import wheel

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]


def setUpModule():
    global FOLDER, PACKAGE, PYTHON, WHEEL  # pylint: disable=global-variable-undefined
    FOLDER = tempfile.TemporaryDirectory(prefix="tutti-python-")
    unittest.addModuleCleanup(FOLDER.cleanup)
    PYTHON, WHEEL = wheel.installed(BUILD, pathlib.Path(FOLDER.name))
    PACKAGE = next(PYTHON.parents[1].glob("lib/python*/site-packages/tutti"))


def environment():
    own = ("TUTTI_", "SLURM_", "PMI", "OMPI_", "PYTHON", "LD_LIBRARY", "MPLCONFIG")
    return {k: v for k, v in os.environ.items() if not k.startswith(own)} | {"TUTTI_TUNING": "none"}


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=FOLDER.name,
                          env=environment() | more)


def run_ranks(ranks, *command, **more):
    return run(PYTHON.parent / "tutti-run", "-n", str(ranks), PYTHON, *command, **more)


class Operations(unittest.TestCase):
    def test_all_of_them_against_numpy(self):
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                done = run_ranks(ranks, HERE / "collectives.py")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(len(done.stdout.splitlines()), ranks)


class Examples(unittest.TestCase):
    def of(self, name, says, ranks):
        for n in ranks:
            with self.subTest(ranks=n):
                done = run_ranks(n, SOURCE / f"examples/python/{name}.py")
                self.assertEqual(done.returncode, 0, done.stderr)
                lines = done.stdout.splitlines()
                for line in lines:
                    self.assertRegex(line, f"^{says.format(ranks=n)}$")
                self.assertEqual(len(lines), 1 if says.startswith("{ranks} ranks") else n)

    def test_hello(self):
        self.of("hello", r"rank \d of {ranks}: the sum is \d+", (1, 3))

    def test_neighbours(self):
        self.of("neighbours", r"rank \d of {ranks}: \d+ warm cells, the heat of all is 1000\.000", (1, 3))

    def test_one_sided(self):
        self.of("one_sided", r"rank \d of {ranks}: the sum so far is \d", (1, 3))

    def test_least_squares(self):
        self.of("least_squares", r"{ranks} ranks: loss \d\.\d+e-2\d, constant 9\.000, "
                r"weights \[1. 2. 3. 4. 5. 6. 7. 8.\]", (1, 2))

    def test_those_of_the_manuals(self):
        for page, says in {"README.md": r"\[3\]",
                           "docs/python.md": r"rank \d of 2: 0\.\d+, and the mean is 0\.\d+"}.items():
            done = run_ranks(2, "-c", re.findall(r"```python\n(.*?)```", (SOURCE / page).read_text(), re.S)[0])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(done.stdout.splitlines()), 2, done.stdout)
            for line in done.stdout.splitlines():
                self.assertRegex(line, f"^{says}$")

    def test_each_has_a_test(self):
        tested = {name[len("test_"):] for name in dir(self) if name.startswith("test_")}
        tested -= {"each_has_a_test", "those_of_the_manuals"}
        self.assertEqual(tested, {path.stem for path in (SOURCE / "examples/python").glob("*.py")})


class Wheel(unittest.TestCase):
    def test_what_is_in_it(self):
        with zipfile.ZipFile(WHEEL) as wheel_file:
            names = set(wheel_file.namelist())
        for name in ("lib/libtutti.so.0", "lib/libnccl.so.2", "lib/pkgconfig/tutti.pc", "include/tutti/tutti.h",
                     "include/nccl.h", "bin/tutti-run", "py.typed", "_tutti.pyi",
                     *(f"include/tutti/{header.name}" for header in (SOURCE / "include/tutti").glob("*.h"))):
            self.assertIn(f"tutti/{name}", names)
        gpus = b".nv_fatbin" in (PACKAGE / "lib/libtutti.so.0").read_bytes()
        self.assertLessEqual(WHEEL.stat().st_size, (8 if gpus else 4) * 1e6)

    def test_what_its_library_exports(self):
        exported = run("nm", "-D", "--defined-only", PACKAGE / "lib/libtutti.so.0").stdout
        names = {line.split()[-1].split("@")[0] for line in exported.splitlines()}
        declared = set()
        for header in (PACKAGE / "include/tutti").glob("*.h"):
            text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
            declared |= set(re.findall(r"TUTTI_API[^;]*?(tutti\w+)\(", text))
        self.assertEqual(names, declared | {"tutti_program"})  # tools/named.cpp

    def test_no_wait_that_follows_the_wall_clock(self):
        binaries = [path for path in PACKAGE.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
        self.assertGreater(len(binaries), 3)
        for binary in binaries:  # those of the C++ library do with glibc before 2.30, for which the wheel is built
            called = run("nm", "-D", "--undefined-only", binary).stdout
            self.assertIn("U ", called)
            self.assertNotRegex(called, r"pthread_(cond|mutex|rwlock)_\w*clock", binary)

    def test_programs(self):
        for name, arguments in {"tutti-run": ["--help"], "tutti-plan": ["list"], "tutti-tune": ["--help"],
                                "tutti-topo": ["--help"], "all_reduce_perf": ["-b", "8", "-e", "1K", "-n", "3"],
                                "alltoallv_perf": ["-b", "8", "-e", "1K", "-n", "3"]}.items():
            with self.subTest(name=name):
                done = run(PYTHON.parent / name, *arguments)
                self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        done = run(PYTHON.parent / "tutti-run", "-n", "2", PYTHON.parent / "all_reduce_perf", "-b", "8", "-e", "8")
        self.assertRegex(done.stdout, "Out of bounds values *: 0 OK", done.stderr)

    def test_what_works_here(self):
        done = run(PYTHON, "-m", "tutti")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, rf"^tutti \d+\.\d+\.\d+, Python .*, in {PACKAGE}\n")
        rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[1:])
        self.assertEqual(list(rows), ["local", "shm", "tcp", "verbs", "plugin", "GPUs", "numpy", "torch",
                                      "backend", "jax", "cupy"])
        for name in ("local", "shm", "numpy"):
            self.assertRegex(rows[name], "^yes: ")
        self.assertRegex(rows["GPUs"], r"^yes: \d|^no: this (build of Tutti has no CUDA|machine has no GPU)")
        self.assertRegex(rows["torch"], "^no: it is not installed")
        self.assertEqual(rows["backend"], "no: there is no torch")

    def test_programs_link_with_it(self):
        (pathlib.Path(FOLDER.name) / "prog.c").write_text(
            re.findall(r"```c\n(.*?)```", (SOURCE / "README.md").read_text(), re.S)[0])
        flags = run("pkg-config", "--cflags", "--libs", "tutti", PKG_CONFIG_PATH=str(PACKAGE / "lib/pkgconfig")).stdout
        done = run("cc", "prog.c", "-o", "prog", *flags.split())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(run(pathlib.Path(FOLDER.name) / "prog").stdout, "rank 0: the sum is 1\n")

    def test_types(self):
        done = run(PYTHON, HERE / "stubs.py", PACKAGE / "_tutti.pyi")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_without_numpy(self):
        done = run(PYTHON, "-c", """
import sys
sys.modules["numpy"] = None
import array, tutti
with tutti.init() as comm:
    got = comm.all_gather(array.array("f", [1, 2]))
    assert got.shape == (1, 2) and got.format == "f" and got.tolist() == [[1, 2]], got
    assert comm.all_reduce_object(3, max, unsafe=True) == 3
try:
    tutti.zeros(3)
except ImportError as error:
    assert "pip install numpy" in str(error), error
else:
    raise AssertionError("an array of NumPy's without NumPy")
""")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_without_its_library(self):
        library = PACKAGE / "lib/libtutti.so.0"
        library.rename(library.with_suffix(".away"))
        try:
            done = run(PYTHON, "-c", "import tutti")
        finally:
            library.with_suffix(".away").rename(library)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "ImportError: .*libtutti.so.0.*\n.*install the wheel again")


class Tool(unittest.TestCase):
    def test_builds_it(self):
        """tools/wheel with what is compiled already. The venv of its Python has a pip that may be years old."""
        pip = (BUILD / "python/bin/python", "-m", "pip", "--disable-pip-version-check", "--retries", "1")
        done = run(*pip, "download", "--quiet", "--no-deps", "--dest", "fetched", "auditwheel")
        if done.returncode != 0:
            self.skipTest(f"pip can't fetch auditwheel: {done.stderr[-200:]}")
        folder = pathlib.Path(FOLDER.name) / "tool"
        folder.mkdir()
        (folder / "build").symlink_to(BUILD)
        kind = "import sysconfig; print(sysconfig.get_config_var('SOABI'))"
        of_system = pathlib.Path("/usr/bin/python3")  # its pip is older than that of another one that is on PATH
        same = of_system.exists() and run(of_system, "-c", kind).stdout == run(sys.executable, "-c", kind).stdout
        done = run(SOURCE / "tools/wheel", "--here", "--folder", folder, **wheel.settled(folder),
                   PYTHON=str(of_system if same else sys.executable))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        made = next((folder / "dist").glob("*.whl"))
        self.assertIn("manylinux", made.name)
        done = run(*pip, "install", "--quiet", "--no-deps", "--target", folder / "there", made)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run(sys.executable, "-c", "import tutti; print(tutti.__file__)", PYTHONPATH=str(folder / "there"))
        self.assertEqual((done.returncode, done.stdout), (0, f"{folder}/there/tutti/__init__.py\n"), done.stderr)

    def test_with_the_newest_meson(self):
        """Meson 1.12 links what has the objects of static libraries alone, as libtutti has with the options that
        tools/wheel sets, as C, where 1.0 saw that they are C++: link_language says so."""
        meson = BUILD / "python/bin/meson"
        if not meson.exists():
            self.skipTest("there is no Meson of PyPI's: nanobind is a part of this Python")
        folder = pathlib.Path(FOLDER.name) / "newest"
        done = run(meson, "setup", folder, SOURCE, "-Dpython=enabled", "-Droom_units=true", "-Dcuda=disabled",
                   PATH=f"{meson.parent}:{os.environ['PATH']}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rules = (folder / "build.ninja").read_text()
        self.assertIn(": cpp_LINKER ", rules)
        self.assertEqual(re.findall(r"^build (\S+): c_LINKER .*\.cpp\.o", rules, re.M), [])


LEFT = """
import os, signal, threading, time
import numpy, tutti
pair = tutti.init_all(2)
pair[0].recv(numpy.empty(1), 1, async_=True)
"""
INTERRUPTED = """
def interrupt():
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
"""
# Ctrl-C comes when the first communicator is there, and before the program has it.
MADE = """
import signal, threading
import numpy, tutti
unique_id = tutti.unique_id()
def other():
    comm = None
    try:  # rank 0 may be gone before this rank has its communicator
        comm = tutti.Communicator(2, unique_id, 1)
        comm.recv(numpy.empty(1), 0)
    except tutti.RemoteError as error:
        print(error)
    if comm is not None:
        comm.abort()
def ask(_):
    raise KeyboardInterrupt
thread = threading.Thread(target=other)
thread.start()
signal.getsignal = ask
try:
    tutti.Communicator(2, unique_id, 0)
except KeyboardInterrupt:
    print("interrupted")
thread.join()
"""


class Trouble(unittest.TestCase):
    """trouble.py and waits.py have the cases."""

    def test_ctrl_c_when_a_communicator_was_made(self):
        done = run(PYTHON, "-c", MADE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\Ainterrupted\n.*rank 0.*\n\Z|\A.*rank 0.*\ninterrupted\n\Z")

    def test_the_end_of_a_program_that_waits(self):
        began = time.monotonic()
        done = run(PYTHON, "-c", LEFT + "raise ValueError(3)")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"ValueError: 3\n\Z")
        done = run(PYTHON, "-c", LEFT + INTERRUPTED)
        self.assertIn("KeyboardInterrupt", done.stderr)
        self.assertLess(time.monotonic() - began, 300)  # an operation waits for 600 s


def add_cases(script):
    for name in re.findall(r"^def (\w+_([123]))\((?:comm|_)\)", (HERE / script).read_text(), re.M):
        def test(self, name=name):
            done = run_ranks(int(name[1]), HERE / script, name[0])
            self.assertEqual(len(re.findall(rf"^{name[0]}: rank", done.stdout, re.M)),
                             2 if name[0] == "dead_3" else int(name[1]), done.stdout + done.stderr)
            self.assertEqual(done.returncode, 0 if name[0] != "dead_3" else done.returncode, done.stderr)
        setattr(Trouble, f"test_{name[0][:-2]}", test)


add_cases("trouble.py")
add_cases("waits.py")

if __name__ == "__main__":
    unittest.main()
