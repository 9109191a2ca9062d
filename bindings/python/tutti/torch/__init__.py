"""Data-parallel training of PyTorch models on CPUs, without a process group of torch's.

    import tutti.torch
    model = tutti.torch.DataParallelBucket(model)     # then train as in one process, each rank with its part of a batch

docs/python.md says which of them to take when. For GPUs there is torch.distributed.init_process_group("tutti").
"""
from tutti.torch._replicas import DataParallelBucket, DataParallelNaive
from tutti.torch._server import ParameterServer
from tutti.torch._zero import ZeRO

__all__ = ["DataParallelBucket", "DataParallelNaive", "ParameterServer", "ZeRO"]
