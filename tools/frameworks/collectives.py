"""collectives.py: all collectives of torch.distributed over the nccl or the tutti backend, with their results checked,
and a group of some ranks. Prints "collectives ok" on rank 0. Started by tools/gpu-check."""
import os

import torch
import torch.distributed as dist
from library import join_torch

COUNT = 10_007


def main():
    rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    join_torch()
    total = n * (n - 1) // 2

    def mine(rows=1, dtype=torch.float32):
        return (torch.arange(rows * COUNT, device="cuda") % 50 + rank).to(dtype)

    def expect(what, got, wanted):
        if not torch.equal(got, wanted):
            raise SystemExit(f"rank {rank}: {what}: wrong from element {(got != wanted).nonzero()[0].item()} on")

    base = torch.arange(COUNT, device="cuda") % 50
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8):
        x = mine(dtype=dtype)
        dist.all_reduce(x)
        expect(f"all_reduce {dtype}", x, (base * n + total).to(dtype))
    for op, wanted in ((dist.ReduceOp.MAX, base + n - 1), (dist.ReduceOp.MIN, base)):
        x = mine()
        dist.all_reduce(x, op=op)
        expect(f"all_reduce {op}", x, wanted.float())
    x = mine()
    dist.broadcast(x, src=n - 1)
    expect("broadcast", x, (base + n - 1).float())
    x = mine()
    dist.reduce(x, dst=0)
    if rank == 0:
        expect("reduce", x, (base * n + total).float())
    everything = torch.arange(n * COUNT, device="cuda") % 50
    out = torch.empty(n * COUNT, device="cuda")
    dist.all_gather_into_tensor(out, mine())
    expect("all_gather_into_tensor", out, torch.cat([base + q for q in range(n)]).float())
    out = torch.empty(COUNT, device="cuda")
    dist.reduce_scatter_tensor(out, mine(n))
    expect("reduce_scatter_tensor", out, (everything.view(n, COUNT)[rank] * n + total).float())
    out = torch.empty(n * COUNT, device="cuda")
    dist.all_to_all_single(out, mine(n))
    expect("all_to_all_single", out, torch.cat([everything.view(n, COUNT)[rank] + q for q in range(n)]).float())
    parts = [torch.empty(COUNT, device="cuda") for _ in range(n)] if rank == 0 else None
    dist.gather(mine(), parts, dst=0)
    for q, part in enumerate(parts or []):
        expect("gather", part, (base + q).float())
    out = torch.empty(COUNT, device="cuda")
    dist.scatter(out, [(base + 10 * q).float() for q in range(n)] if rank == 0 else None, src=0)
    expect("scatter", out, (base + 10 * rank).float())
    out = torch.empty(COUNT, device="cuda")
    pairs = [dist.P2POp(dist.isend, mine(), (rank + 1) % n), dist.P2POp(dist.irecv, out, (rank - 1) % n)]
    for work in dist.batch_isend_irecv(pairs):
        work.wait()
    expect("isend, irecv", out, (base + (rank - 1) % n).float())
    even = dist.new_group(list(range(0, n, 2)))
    if rank % 2 == 0:
        x = torch.ones(5, device="cuda")
        dist.all_reduce(x, group=even)
        expect("a group of some ranks", x, torch.full((5,), float((n + 1) // 2), device="cuda"))
    dist.barrier()
    torch.cuda.synchronize()
    if rank == 0:
        print("collectives ok", flush=True)
    dist.destroy_process_group()


main()
