#!/usr/bin/env python3
"""safetensors_test.py TUTTI_RUN TRAIN_CHARS BUILD: the package safetensors, which pip fetches into
BUILD/safetensors-pypi, reads checkpoints. Skips (77) where it can't."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import safetensors_reader

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import environment  # pylint: disable=wrong-import-position

TUTTI_RUN, TRAIN, BUILD = sys.argv.pop(1), sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)).resolve()
READER = """
import json, pathlib, sys
from safetensors.numpy import load_file
index = json.loads(pathlib.Path(sys.argv[1], "model.safetensors.index.json").read_text())
maps = index["weight_map"] | index["metadata"]["tutti"]["optimizer_map"]
tensors = {name: load_file(pathlib.Path(sys.argv[1], file))[name] for name, file in maps.items()}
print(json.dumps({name: [list(t.shape), str(t.dtype), t.tobytes().hex()] for name, t in tensors.items()}))
"""


class Reader(unittest.TestCase):
    def test_float32_and_float16(self):
        for more, dtype in ([], "float32"), (["--fp16"], "float16"):
            with self.subTest(dtype=dtype), tempfile.TemporaryDirectory() as folder:
                subprocess.run([TUTTI_RUN, "-n", "4", TRAIN, "--mode", "zero3", "--steps", "2", "--quiet", "--save",
                                folder, *more], check=True, timeout=100, stdout=subprocess.DEVNULL)
                done = subprocess.run([sys.executable, "-c", READER, folder], capture_output=True, text=True,
                                      timeout=100, check=False, env={"PYTHONPATH": PACKAGES})
                self.assertEqual(done.returncode, 0, done.stderr)
                theirs = json.loads(done.stdout)
                own = safetensors_reader.load(folder) | safetensors_reader.load(folder, "optimizer")
                self.assertEqual({name: (shape, data) for name, (shape, _, data) in theirs.items()},
                                 {name: (shape, data.hex()) for name, (_, shape, data) in own.items()})
                self.assertEqual(theirs["weights2"][:2], [[128, 128], dtype])
                self.assertEqual(theirs["exp_avg.weights2"][1], "float32")
                self.assertEqual("master.weights2" in theirs, dtype == "float16")


if __name__ == "__main__":
    PACKAGES, why = environment.fetched(BUILD / "safetensors-pypi", "safetensors", "numpy")
    if PACKAGES is None:
        print(f"safetensors: {why}")
        sys.exit(77)
    unittest.main()
