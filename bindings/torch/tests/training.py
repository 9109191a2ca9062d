"""training.py ddp|fsdp: a rank that trains a small network over tutti, the default group, and over Gloo, from the same
seed with the same data. Unmodified DDP or FSDP; the losses and parameters are the same. Ends with "rank r ok", or
"skipped: why"."""
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti_torch  # noqa: F401  registers the backend

STEPS = 20


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64), torch.nn.Tanh(),
                                          torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3))

    def forward(self, x):
        return self.layers(x)


def wrapped(kind, network, group):
    if kind == "ddp":
        return DistributedDataParallel(network, bucket_cap_mb=0.01, process_group=group)
    from torch.distributed.fsdp import FullyShardedDataParallel
    return FullyShardedDataParallel(network, process_group=group, device_id=torch.device("cpu"))


def train(kind, group):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7 if kind == "fsdp" else 7 + rank)  # DDP makes all parameters rank 0's
    model = wrapped(kind, Network(), group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # Adam makes large what is but rounding
    data = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(24, 20, generator=data)
        y = x[:, :3].argmax(1)
        loss = torch.nn.functional.cross_entropy(model(x[rank::ranks]), y[rank::ranks])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=group)
        losses.append(mean.item() / ranks)
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return losses, weights


def main():
    kind = sys.argv[1]
    torch.set_num_threads(1)
    if kind == "fsdp" and tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 1):
        print(f"skipped: FSDP of torch {torch.__version__} is for GPUs only")
        return
    dist.init_process_group("tutti")
    ours, weights = train(kind, None)
    theirs, their_weights = train(kind, dist.new_group(backend="gloo"))
    assert len(ours) == STEPS and ours[-1] < ours[0], ours
    for mine, other in zip(ours, theirs):
        assert abs(mine - other) < 1e-5, (ours, theirs)
    assert torch.allclose(weights, their_weights, atol=1e-4), (weights - their_weights).abs().max()
    print(f"losses {'have the same bits' if ours == theirs else 'are near'}: {ours}")
    print(f"rank {dist.get_rank()} ok", flush=True)
    dist.destroy_process_group()


main()
