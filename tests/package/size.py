"""size.py LIBRARY MEGABYTES: what is loaded of it, the kernels for all GPUs included, stays below that."""
import pathlib
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory() as folder:
    stripped = pathlib.Path(folder) / "library"
    subprocess.run(["strip", "--strip-unneeded", "-o", stripped, sys.argv[1]], check=True)
    size = stripped.stat().st_size
print(f"{size / 1e6:.2f} MB, at most {sys.argv[2]}")
sys.exit(size > float(sys.argv[2]) * 1e6)
