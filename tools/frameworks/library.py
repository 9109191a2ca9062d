"""Which libnccl.so.2 a process really has: a framework may bring its own. And how PyTorch's scripts join."""
import os
import sys


def report_library(rank):
    """Ends the process unless it has loaded the one of TUTTI_EXPECTED_NCCL, and no other."""
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "libnccl.so" in line}
    wanted = os.path.realpath(os.environ.get("TUTTI_EXPECTED_NCCL", "/"))
    if {os.path.realpath(path) for path in loaded} != {wanted}:
        sys.exit(f"rank {rank} runs on {', '.join(sorted(loaded)) or 'no libnccl at all'}, not on {wanted}")


def join_torch(rank):
    """torch.distributed over the backend of TUTTI_TORCH_BACKEND: nccl, which has to be our libnccl.so.2, or tutti."""
    import torch.distributed as dist
    backend = os.environ.get("TUTTI_TORCH_BACKEND", "nccl")
    if backend == "tutti":
        import tutti_torch  # noqa: F401  registers it
    dist.init_process_group(backend)
    if backend == "nccl":
        report_library(rank)
