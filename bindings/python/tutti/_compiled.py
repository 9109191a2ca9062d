"""Libraries that are compiled for the packages of this environment when they are first used, and kept in the user's
cache directory. Ranks that come meanwhile wait for the one that compiles."""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

LIMIT = 900  # seconds that a compiler may take


class Library:
    """What is compiled: the .cpp files of a folder as one, for one version of a package.

    package: its name, of which `version` is installed. what: the thing that is made, for messages. compiling, linking:
    flags. name: the file's. depends: what else the result depends on, beside flags and files."""

    def __init__(self, package: str, version: str, what: str, sources: pathlib.Path, compiling: list[str],
                 linking: list[str], name: str, depends: str = "") -> None:
        self.of = f"{package} {version}"
        self.what, self.sources, self.compiling, self.linking = what, sources, compiling, linking
        parts = [version, depends, *compiling, *linking]
        parts += [path.name + path.read_text() for path in sorted(sources.glob("*.[ch]pp"))]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        above = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        self.made = pathlib.Path(above, "tutti", f"{package}-{version}-{digest}", name)

    def path(self) -> pathlib.Path:
        """Where it is, compiled by now. Throws an ImportError that says what is missing."""
        folder = self.made.parent
        if self.made.exists():
            return self.made
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with alone(folder):
                if not self.made.exists():
                    print(f"tutti: compiling {self.what} for {self.of}, once, into {folder}", file=sys.stderr,
                          flush=True)
                    self.compile()
        except OSError as error:
            raise ImportError(f"tutti: {folder}: {error}. XDG_CACHE_HOME can name another cache directory") from error
        return self.made

    def compile(self) -> None:
        """Makes the file, or leaves nothing."""
        compiling = [*shlex.split(os.environ.get("CXX") or "c++"), *self.compiling]
        with tempfile.TemporaryDirectory(dir=self.made.parent) as folder:
            # As one: the package's headers take longer than all the rest.
            one = pathlib.Path(folder, "all.cpp")
            one.write_text("".join(f'#include "{path.name}"\n' for path in sorted(self.sources.glob("*.cpp"))))
            new = pathlib.Path(folder, "new.so")
            try:
                done = subprocess.run([*compiling, str(one), "-o", str(new), *self.linking], check=False, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT)
            except OSError as error:
                raise ImportError(f"tutti: there is no C++ compiler ({error}): {self.what} is compiled for the "
                                  f"{self.of} that is installed, when it is first used. Install g++ (Debian: apt-get "
                                  "install g++), or name another compiler in CXX") from error
            except subprocess.TimeoutExpired as error:
                raise ImportError(f"tutti: {compiling[0]} has not ended after {LIMIT} s") from error
            if done.returncode != 0:
                log = self.made.with_suffix(".log")
                log.write_text(shlex.join([*compiling, "all.cpp", *self.linking]) + "\n" + done.stdout)
                first = next((line for line in done.stdout.splitlines() if "error" in line),
                             f"status {done.returncode}")
                raise ImportError(f"tutti: {self.what} does not compile for {self.of}: {first}\n"
                                  f"(all of it: {log}; Python.h is in Debian's python3-dev)")
            os.replace(new, self.made)


@contextlib.contextmanager
def alone(folder: pathlib.Path) -> Iterator[None]:
    """One process at a time: the kernel gives the lock back when a process ends, however it does."""
    with open(folder / "lock", "w", encoding="ascii") as lock:
        until = time.monotonic() + LIMIT + 60
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ImportError(f"tutti: another process has held {lock.name} for {LIMIT + 60} s") from None
                time.sleep(0.1)
        yield
