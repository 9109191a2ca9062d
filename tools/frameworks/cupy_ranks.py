"""cupy_ranks.py FILE: CuPy's nccl module, one process per rank; rank 0 leaves the id in FILE. Prints "cupy ok" on rank
0. Started by tools/gpu-check."""
import os
import pickle
import sys
import time

import cupy
from cupy.cuda import nccl


def shared_id(rank, path):
    if rank == 0:
        with open(path + ".new", "wb") as file:
            pickle.dump(nccl.get_unique_id(), file)
        os.rename(path + ".new", path)
    for _ in range(600):
        if os.path.exists(path):
            with open(path, "rb") as file:
                return pickle.load(file)
        time.sleep(0.1)
    raise SystemExit(f"rank {rank}: no id came")


def main():
    rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cupy.cuda.Device(int(os.environ.get("LOCAL_RANK", 0)) % cupy.cuda.runtime.getDeviceCount()).use()
    comm = nccl.NcclCommunicator(n, shared_id(rank, sys.argv[1]), rank)
    if (comm.size(), comm.rank_id()) != (n, rank):
        raise SystemExit(f"rank {rank}: it says {comm.rank_id()} of {comm.size()}")
    x = cupy.arange(1000, dtype=cupy.float32) + rank
    y = cupy.empty(n * 1000, dtype=cupy.float32)
    stream = cupy.cuda.get_current_stream().ptr
    comm.allReduce(x.data.ptr, y.data.ptr, 1000, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream)
    if not (y[:1000] == cupy.arange(1000) * n + n * (n - 1) // 2).all():
        raise SystemExit(f"rank {rank}: allReduce is wrong")
    comm.allGather(x.data.ptr, y.data.ptr, 1000, nccl.NCCL_FLOAT32, stream)
    if not all((y[q * 1000:(q + 1) * 1000] == cupy.arange(1000) + q).all() for q in range(n)):
        raise SystemExit(f"rank {rank}: allGather is wrong")
    comm.bcast(x.data.ptr, 1000, nccl.NCCL_FLOAT32, 0, stream)
    if not (x == cupy.arange(1000)).all():
        raise SystemExit(f"rank {rank}: bcast is wrong")
    nccl.groupStart()
    comm.send(x.data.ptr, 1000, nccl.NCCL_FLOAT32, (rank + 1) % n, stream)
    comm.recv(y.data.ptr, 1000, nccl.NCCL_FLOAT32, (rank - 1) % n, stream)
    nccl.groupEnd()
    cupy.cuda.get_current_stream().synchronize()
    comm.destroy()
    if rank == 0:
        print("cupy ok", flush=True)


main()
