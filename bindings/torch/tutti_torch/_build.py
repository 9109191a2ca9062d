"""The extension module, compiled for the torch of this environment when it is first used, and kept in the user's cache
directory: once for each torch, Python, libtutti and state of the sources. Ranks that come meanwhile wait for the one
that compiles."""
import contextlib
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time

import torch

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 900  # seconds that a compiler may take


def sources():
    """The folder of the C++ files: in a wheel beside this one, in the repository above it."""
    return next(folder for folder in (HERE / "csrc", HERE.parent / "csrc") if folder.is_dir())


def library():
    """(flags to compile, flags to link) with libtutti: the one of the package tutti beside this one, or what pkg-config
    knows."""
    package = HERE.parent / "tutti"
    if (package / "lib" / "libtutti.so.0").exists():
        return [f"-I{package}/include"], [f"{package}/lib/libtutti.so.0", f"-Wl,-rpath,{package}/lib"]
    def ask(*arguments):
        return shlex.split(subprocess.run(["pkg-config", *arguments, "tutti"], check=True, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    try:
        return ask("--cflags"), ask("--libs") + [f"-Wl,-rpath,{flag[2:]}" for flag in ask("--libs-only-L")]
    except (OSError, subprocess.CalledProcessError) as error:
        raise ImportError("tutti: the package tutti is not installed beside tutti_torch, and pkg-config does not know "
                          "'tutti': install Tutti's wheel, or let PKG_CONFIG_PATH lead to the folder of its "
                          f"tutti.pc ({error})") from error


def flags():
    """The compiler's flags, and the linker's."""
    # Headers of newer versions of torch are C++20, those of older ones not yet.
    standard = "c++20" if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8) else "c++17"
    compile_flags, link_flags = library()
    home = pathlib.Path(torch.__file__).parent
    includes = [home / "include", home / "include/torch/csrc/api/include", sysconfig.get_paths()["include"]]
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)  # pylint: disable=protected-access # cpp_extension takes it, too
    compiling = [f"-std={standard}", "-O2", "-g0", "-fPIC", "-shared", "-w", "-fvisibility=hidden",
                 "-DTORCH_EXTENSION_NAME=_C", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *compile_flags,
                 *(f"-isystem{folder}" for folder in includes), f"-I{sources()}"]
    return compiling, [f"-L{home}/lib", "-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10",
                       f"-Wl,-rpath,{home}/lib", *link_flags]


def cache():
    """The folder of this module's kind. Whatever the module depends on is in its name."""
    compiling, linking = flags()
    parts = [torch.__version__, sysconfig.get_config_var("EXT_SUFFIX"), *compiling, *linking]
    parts += [path.name + path.read_text() for path in sorted(sources().glob("*.[ch]pp"))]
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    above = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(above, "tutti", f"torch-{torch.__version__}-{name}")


def compile_into(made):
    """Makes the module `made`, or leaves nothing."""
    compiling, linking = flags()
    compiling = [*shlex.split(os.environ.get("CXX") or "c++"), *compiling]
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        # As one: torch's headers take longer than all the rest.
        one = pathlib.Path(folder, "all.cpp")
        one.write_text("".join(f'#include "{path.name}"\n' for path in sorted(sources().glob("*.cpp"))))
        new = pathlib.Path(folder, "new.so")
        try:
            done = subprocess.run([*compiling, str(one), "-o", str(new), *linking], check=False, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT)
        except OSError as error:
            raise ImportError(f"tutti: there is no C++ compiler ({error}): its backend is compiled for the torch that "
                              "is installed, when it is first used. Install g++ (Debian: apt-get install g++), or "
                              "name another compiler in CXX") from error
        except subprocess.TimeoutExpired as error:
            raise ImportError(f"tutti: {compiling[0]} has not ended after {LIMIT} s") from error
        if done.returncode != 0:
            log = made.with_suffix(".log")
            log.write_text(shlex.join([*compiling, "all.cpp", *linking]) + "\n" + done.stdout)
            first = next((line for line in done.stdout.splitlines() if "error" in line), f"status {done.returncode}")
            raise ImportError(f"tutti: its backend does not compile for torch {torch.__version__}: {first}\n"
                              f"(all of it: {log}; Python.h is in Debian's python3-dev)")
        os.replace(new, made)


@contextlib.contextmanager
def alone(folder):
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


def built():
    """The module's path."""
    folder = cache()
    made = folder / "_C.so"
    if made.exists():
        return made
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder):
            if not made.exists():
                print(f"tutti: compiling the backend for torch {torch.__version__}, once, into {folder}",
                      file=sys.stderr, flush=True)
                compile_into(made)
    except OSError as error:
        raise ImportError(f"tutti: {folder}: {error}. XDG_CACHE_HOME can name another cache directory") from error
    return made


def load():
    """The module."""
    path = str(built())
    loader = importlib.machinery.ExtensionFileLoader("tutti_torch._C", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(loader.name, path, loader=loader))
    loader.exec_module(module)
    sys.modules[loader.name] = module
    return module
