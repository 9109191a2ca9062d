"""How PyTorch's scripts join."""
import os


def join_torch():
    """torch.distributed over the backend of TUTTI_TORCH_BACKEND: nccl or tutti."""
    import torch.distributed as dist
    backend = os.environ.get("TUTTI_TORCH_BACKEND", "nccl")
    if backend == "tutti":
        import tutti_torch  # noqa: F401  registers it
    dist.init_process_group(backend)
