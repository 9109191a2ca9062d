#!/usr/bin/env python3
"""installed.py SOURCE BUILD: what `meson install` installs is enough to build README.md's C program and those of
examples/, and they run.

With pkg-config as README.md says, statically, and with CMake where there is one. Alone, and as three ranks where
tutti-run is built.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

source, build = map(pathlib.Path, sys.argv[1:])

CMAKE = """cmake_minimum_required(VERSION 3.18)
project(prog C CXX)
find_package(tutti 0.1 REQUIRED)
foreach(kind tutti static)
  add_executable(prog-${kind} prog.c)
  target_link_libraries(prog-${kind} tutti::${kind})
endforeach()
"""


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect_sums(program, environment):
    """Every rank contributes its rank + 1, and prints the sum."""
    output = run(program, env=environment)
    if output.count("the sum is 1\n") != 1:
        sys.exit(f"alone: expected one sum of 1, got\n{output}")
    launcher = build / "tools/tutti-run"
    if launcher.exists():
        output = run(launcher, "-n", "3", program, env=environment)
        if output.count("the sum is 6\n") != 3:
            sys.exit(f"three ranks: expected three sums of 6, got\n{output}")


def main():
    with tempfile.TemporaryDirectory(prefix="tutti-installed-") as folder:
        folder = pathlib.Path(folder)
        run("meson", "install", "-C", build, "--no-rebuild", "--destdir", folder / "root")
        found = (folder / "root").rglob("tutti.pc")
        pc = min(found, key=lambda path: len(path.parts))  # not that of the Python package
        prefix = re.search(r"^prefix=(.*)$", pc.read_text(), re.M).group(1)
        root = folder / "root" / prefix.lstrip("/")
        libraries = pc.parent.parent
        environment = {**os.environ, "PKG_CONFIG_PATH": str(pc.parent), "LD_LIBRARY_PATH": str(libraries)}

        blocks = re.findall(r"```c\n(.*?)```", (source / "README.md").read_text(), re.S)
        (folder / "prog.c").write_text(blocks[0])
        strict = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]

        def flags(*arguments):
            return run("pkg-config", f"--define-variable=prefix={root}", *arguments, "tutti", env=environment).split()

        run("cc", "prog.c", "-o", "prog", *strict, *flags("--cflags", "--libs"), cwd=folder)
        expect_sums(folder / "prog", environment)

        for example in sorted((source / "examples").glob("*.c")):
            run("cc", example, "-o", example.stem, *strict, *flags("--cflags", "--libs"), cwd=folder)
            run(folder / example.stem, env=environment)

        # The archive instead of the shared library.
        static = [str(libraries / "libtutti.a") if flag == "-ltutti" else flag
                  for flag in flags("--static", "--cflags", "--libs")]
        run("cc", "prog.c", "-o", "prog-static", *strict, *static, cwd=folder)
        if "libtutti" in run("ldd", folder / "prog-static"):
            sys.exit("the static program needs the shared library")
        expect_sums(folder / "prog-static", {k: v for k, v in environment.items() if k != "LD_LIBRARY_PATH"})

        # In a library that programs load and give back.
        archive = str(libraries / "libtutti.a")
        run("cc", "-shared", "-o", "libowner.so", "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive",
            *[flag for flag in static if flag != archive], cwd=folder)
        run(build / "tests/package/unloaded", folder / "libowner.so", "tutti",
            env={**environment, "TUTTI_TUNING": "none"})

        if shutil.which("cmake"):
            (folder / "CMakeLists.txt").write_text(CMAKE)
            run("cmake", "-G", "Ninja", "-S", folder, "-B", folder / "cmake", f"-DCMAKE_PREFIX_PATH={root}")
            run("cmake", "--build", folder / "cmake")
            expect_sums(folder / "cmake/prog-tutti", environment)
            expect_sums(folder / "cmake/prog-static", environment)
        else:
            print("skipped: cmake is not installed, so the CMake files were not tried")


main()
