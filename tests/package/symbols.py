#!/usr/bin/env python3
"""symbols.py NM LIBRARY HEADER...: the library exports what the headers declare, and nothing else; a program that
already runs can load it, as interpreters do; and it has no timed waits of the C++ library, which follow the wall clock
where glibc is older than 2.30 (src/base/condition.hpp has others)."""
import ctypes
import re
import subprocess
import sys

nm, library, *headers = sys.argv[1:]
table = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
exported = {line.split()[-1].split("@")[0] for line in table.splitlines()}
text = "".join(re.sub(r"/\*.*?\*/", "", open(h, encoding="utf-8").read(), flags=re.DOTALL) for h in headers)
declared = set(re.findall(r"TUTTI_API[^;]*?(tutti\w+)\(", text))

if not declared:
    sys.exit(f"no TUTTI_API declaration found in {headers}")
for name in sorted(exported - declared):
    print(f"exported, but not declared: {name}")
for name in sorted(declared - exported):
    print(f"declared, but not exported: {name}")
needed = subprocess.run([nm, "-D", "--undefined-only", library], check=True, capture_output=True, text=True).stdout
waits = sorted(set(re.findall(r"\bpthread_(?:cond|mutex|rwlock)_\w*clock\w*", needed)))
for name in waits:
    print(f"called, and follows the wall clock with an older glibc: {name}")
ctypes.CDLL(library)  # fails where its thread-local memory is too much for what the loader has left
sys.exit(0 if exported == declared and not waits else 1)
