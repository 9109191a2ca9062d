"""A fresh virtual environment with the wheel, and packages from elsewhere beside it."""
import os
import pathlib
import subprocess
import sys
import venv

import wheel

PROBE = "import pathlib, torch; print(torch.__version__, pathlib.Path(torch.__file__).parents[1])"


def torch_of(python):
    """(version, folder) of this Python's torch, or None."""
    done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False)
    return tuple(done.stdout.split()) if done.returncode == 0 else None


def fetched(folder, *packages):
    """(the folder that has the packages, what pip says if it can't fetch them): a virtual environment's."""
    python = folder / "bin/python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return None, "pip can't fetch it: " + (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        (folder / "complete").touch()
    return str(next(folder.glob("lib/python*/site-packages"))), ""


def folder_of_torch(build):
    """(the folder that has a torch with entry points for backends, why there is none): PYTHON's, this Python's, or one
    fetched into BUILD/torch-pypi."""
    python = os.environ.get("PYTHON", sys.executable)
    found = torch_of(python)
    if found and tuple(int(part) for part in found[0].split(".")[:2]) >= (2, 15):
        return found[1], ""
    if os.environ.get("PYTHON"):
        return None, f"{python} has no torch 2.15 or later"
    return fetched(build / "torch-pypi", "torch>=2.15", "numpy", "expecttest", "accelerate", "transformers",
                   "torchft", "parameterized", "mypy")


def installed(build, folder, beside):
    """The Python of a fresh environment in `folder`, which sees the packages that lie in the folder `beside`."""
    python, _ = wheel.installed(build, folder)
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    (site / "beside.pth").write_text(beside + "\n")
    return python
