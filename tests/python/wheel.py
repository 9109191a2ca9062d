"""wheel.py BUILD FOLDER: makes a wheel of what a build directory has built, and installs it with NumPy into a fresh
virtual environment in FOLDER. Prints the environment's Python, and the wheel.

meson-python makes the wheel, as for tools/wheel. Only, what it would have configured and compiled is there: the Meson
and the Ninja that it calls answer what their versions are, and do nothing.
"""
import os
import pathlib
import subprocess
import sys
import venv

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILDS = """#!/bin/sh
if [ "$1" = --version ]; then exec {name} --version; fi
"""


def settled(folder):
    """The environment in which mesonpy takes a build directory as it is."""
    programs = {}
    for name in ("meson", "ninja"):
        programs[name.upper()] = str(folder / name)
        (folder / name).write_text(BUILDS.format(name=name))
        (folder / name).chmod(0o755)
    return {**os.environ, **programs}


def made(build, folder):
    """The wheel."""
    subprocess.run([build / "python/bin/python", "-c",
                    f"import mesonpy; mesonpy.build_wheel({str(folder)!r}, {{'build-dir': {str(build)!r}}})"],
                   cwd=SOURCE, env=settled(folder), check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


def installed(build, folder):
    """The fresh environment's Python, and the wheel."""
    wheel = made(build, folder)
    venv.create(folder / "environment", symlinks=True)
    python = folder / "environment/bin/python"
    pip = [build / "python/bin/python", "-m", "pip", "--python", python, "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-index", "--find-links", build / "python/wheels",
                    f"tutti[numpy] @ {wheel.as_uri()}", "ml_dtypes"], check=True)
    return python, wheel


if __name__ == "__main__":
    print(*installed(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
