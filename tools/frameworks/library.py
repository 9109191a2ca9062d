"""Which libnccl.so.2 a process really has: a framework may bring its own."""
import os
import sys


def report_library(rank):
    """Ends the process unless it has loaded the one of TUTTI_EXPECTED_NCCL, and no other."""
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "libnccl.so" in line}
    wanted = os.path.realpath(os.environ.get("TUTTI_EXPECTED_NCCL", "/"))
    if {os.path.realpath(path) for path in loaded} != {wanted}:
        sys.exit(f"rank {rank} runs on {', '.join(sorted(loaded)) or 'no libnccl at all'}, not on {wanted}")
