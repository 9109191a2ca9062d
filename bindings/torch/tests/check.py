#!/usr/bin/env python3
"""check.py BUILD: builds tutti_torch against the Tutti in a build directory and tests it, with this Python's torch or
with the system's; and a kind of device for torch that is made of emulated GPUs. Skips (77) where neither has one."""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
build = pathlib.Path(sys.argv[1]).resolve()

for python in (sys.executable, "/usr/bin/python3"):
    if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        break
else:
    print("skipped: no torch (apt-get install --no-install-recommends python3-torch libtorch-dev pybind11-dev)")
    sys.exit(77)
made = subprocess.run([str(HERE.parent / "build"), str(build)], env={**os.environ, "PYTHON": python}, check=False,
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
if made.returncode != 0:
    sys.exit(f"bindings/torch/build failed:\n{made.stdout}")
environment = {**os.environ, "PYTHONPATH": str(build / "torch"), "PYTHONDONTWRITEBYTECODE": "1"}
if (build / "tests" / "libtutti.so.0").exists():
    environment |= {"EMULATED": str(build / "tests"), "EMULATED_DEVICE": str(build / "torch-device")}
    made = subprocess.run([python, str(HERE / "emulated" / "setup.py"), "--quiet", "build", "--build-base",
                           str(build / "torch-device" / "obj"), "--build-lib", str(build / "torch-device")],
                          env=environment, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if made.returncode != 0:
        sys.exit(f"{HERE / 'emulated' / 'setup.py'} failed:\n{made.stdout}")
sys.exit(subprocess.run([python, str(HERE / "torch_test.py")], env=environment, check=False).returncode)
