"""A fresh virtual environment with the wheel, and torch beside it."""
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


def folder_of_torch(build):
    """The folder that has a torch with entry points for backends: PYTHON's, this Python's, or one fetched by pip into
    BUILD/torch-pypi. None, and why, where there is none."""
    fetched = build / "torch-pypi"
    for python in (os.environ.get("PYTHON", sys.executable), fetched / "bin/python"):
        found = torch_of(python) if pathlib.Path(python).exists() else None
        if found and tuple(int(part) for part in found[0].split(".")[:2]) >= (2, 15):
            return found[1], ""
    if os.environ.get("PYTHON"):
        return None, f"{os.environ['PYTHON']} has no torch 2.15 or later"
    venv.create(fetched, with_pip=True, clear=True)
    done = subprocess.run([fetched / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                           "torch>=2.15", "numpy", "expecttest"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, "pip can't fetch torch: " + (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
    return torch_of(fetched / "bin/python")[1], ""


def installed(build, folder, torch_folder):
    """The Python of a fresh environment in `folder`."""
    python, _ = wheel.installed(build, folder)
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    (site / "torch.pth").write_text(torch_folder + "\n")
    return python
