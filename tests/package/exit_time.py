#!/usr/bin/env python3
"""exit_time.py NM ARCHIVE: no static object of the library is destroyed as the process ends. Threads of the library and
of its user may still run then. A static object that has a destructor is a reference to a new one, which stays."""
import subprocess
import sys

nm, archive = sys.argv[1:]
table = subprocess.run([nm, "-A", "--undefined-only", archive], check=True, capture_output=True, text=True).stdout
lines = table.splitlines()
if not lines:
    sys.exit(f"nm finds nothing in {archive}")
guilty = sorted({line.rsplit(":", 1)[0] for line in lines if line.split()[-1] == "__cxa_atexit"})
for unit in guilty:
    print(f"{unit}: a static object here has a destructor: write `static auto& name = *new Type`")
sys.exit(1 if guilty else 0)
