"""train.py ddp|fsdp|alone: trains a small model with PyTorch and prints the losses as JSON. Every rank takes its part
of the same batch, so that n ranks must see what one rank sees that takes all of it. Started by tools/gpu-check."""
import json
import os
import sys

import torch
import torch.distributed as dist
from library import join_torch

BATCH, STEPS = 256, 30


def model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Linear(512, 512), torch.nn.GELU(),
                               torch.nn.Linear(512, 16)).cuda()


def batches():
    generator = torch.Generator().manual_seed(11)
    target = torch.randn(64, 16, generator=generator)
    for _ in range(STEPS):
        inputs = torch.randn(BATCH, 64, generator=generator)
        yield inputs.cuda(), torch.tanh(inputs @ target).cuda()


def main():
    how = sys.argv[1]
    rank, ranks = (0, 1) if how == "alone" else (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    net = model()
    if how != "alone":
        join_torch()
    if how == "ddp":
        net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[torch.cuda.current_device()])
    elif how == "fsdp":
        from torch.distributed.fsdp import fully_shard
        net = fully_shard(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for inputs, target in batches():
        part = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(inputs[part]), target[part])
        loss.backward()
        optimizer.step()
        whole = loss.detach().clone()
        if how != "alone":
            dist.all_reduce(whole, op=dist.ReduceOp.AVG)
        losses.append(whole.item())
    if rank == 0:
        print("losses " + json.dumps(losses), flush=True)
    if how != "alone":
        dist.destroy_process_group()


main()
