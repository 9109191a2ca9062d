"""frameworks_test.py GPU_CHECK: what `gpu-check --frameworks` makes of frameworks that are there, wrong, or missing,
with stubs in the place of Python and of tutti-run. The frameworks themselves need a GPU."""
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # no caches beside the sources
GPU_CHECK = os.path.abspath(sys.argv[1])
loader = importlib.machinery.SourceFileLoader("gpu_check", GPU_CHECK)
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(gpu_check)

# Called as `python -c probe`, or by the stub of tutti-run as `python script how`.
STUB = """#!/bin/sh
LOG="host:1:1 TUTTI INFO rank 1: all_reduce of 4 bytes: flat"
case "$*" in
*"import torch"*) [ -z "$NO_TORCH" ] || { echo "ModuleNotFoundError: No module named 'torch'" >&2; exit 1; } ;;
*"import jax"* | *"import cupy"*) echo "ModuleNotFoundError" >&2; exit 1 ;;
*setup.py*) [ -z "$NO_COMPILER" ] || { echo "no compiler" >&2; exit 1; } ;;
*collectives.py*)
    case "$TUTTI_TORCH_BACKEND:$LD_PRELOAD" in
    tutti: | :*libnccl.so.2 | :/dev/null) [ -z "$TUTTI_GPUS" ] || echo "collectives ok" ;;
    esac
    [ -n "$OTHER_NCCL" ] || echo "$LOG" ;;
*train.py*alone*) echo "losses [1.0, 0.5, 0.25]" ;;
*train.py*ddp*) echo "losses [1.00001, 0.50001, 0.25]"; echo "$LOG" ;;
*train.py*fsdp*) echo "losses [1.0, 0.5, 0.26]"; echo "$LOG" ;;
esac
"""
RUN = """#!/bin/sh
shift 2
exec "$@"
"""


class Frameworks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("bin", "lib", "frameworks", "out"):
            (self.folder / name).mkdir()
        (self.folder / "torch").mkdir()
        (self.folder / "torch" / "setup.py").touch()
        for name, text in (("python", STUB), ("tutti-run", RUN)):
            path = self.folder / "bin" / name
            path.write_text(text)
            path.chmod(0o755)

    def cells(self, **environment):
        check = gpu_check.Check(self.folder, self.folder / "out")
        check.environment |= {"PYTHON": str(self.folder / "bin" / "python"), **environment}
        gpu_check.frameworks(check, self.folder, self.folder / "nowhere")
        return {what: (result, detail) for what, result, _, detail in check.cells}

    def library(self):
        # Preloaded into the stubs as well, so it must be one that can be.
        (self.folder / "lib" / "libnccl.so.2").symlink_to("/dev/null")

    def test_there_and_right_or_wrong(self):
        self.library()
        cells = self.cells()
        self.assertEqual(cells["PyTorch: every collective of torch.distributed, 2 ranks"][0], "OK")
        for n in (2, 4):
            self.assertEqual(cells[f"PyTorch: ddp of {n} ranks trains to the same loss"][0], "OK")
            self.assertEqual(cells[f"PyTorch: fsdp of {n} ranks trains to the same loss"][0], "FAILED")
            self.assertEqual(cells[f"PyTorch, backend tutti: ddp of {n} ranks trains to the same loss"][0], "OK")
        self.assertEqual(cells["PyTorch, backend tutti: every collective of torch.distributed, 2 ranks"][0], "OK")
        self.assertEqual(cells["JAX"], ("skipped", "ModuleNotFoundError"))
        self.assertEqual(cells["CuPy"][0], "skipped")
        self.assertIn("nowhere", cells["nccl-tests"][1])

    def test_another_nccl(self):
        self.library()
        cells = self.cells(OTHER_NCCL="1")
        self.assertEqual(cells["PyTorch: every collective of torch.distributed, 2 ranks"][0], "FAILED")

    def test_missing(self):
        self.library()
        cells = self.cells(NO_TORCH="1")
        self.assertEqual(cells["PyTorch"], ("skipped", "ModuleNotFoundError: No module named 'torch'"))
        self.assertFalse([what for what in cells if "ddp" in what])

    def test_backend_that_is_not_built(self):
        self.library()
        cells = self.cells(NO_COMPILER="1")
        self.assertEqual(cells["PyTorch, backend tutti"], ("skipped", "no compiler"))
        self.assertEqual(cells["PyTorch: ddp of 2 ranks trains to the same loss"][0], "OK")

    def test_without_the_library(self):
        self.assertEqual(self.cells(), {"frameworks": ("skipped", "there is no libnccl.so.2 in this build")})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
