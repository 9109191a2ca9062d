"""A rank: what PyTorch builds on process groups, over tutti: functional collectives, torch.compile over them, meshes of
devices, tensor and data parallelism on them, FSDP2 and checkpoints. Each beside what one process gives. Ends with
"rank r ok"."""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import tutti_torch  # noqa: F401  registers the backend

torch.set_num_threads(1)
dist.init_process_group("cpu:tutti")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
FOLDER = sys.argv[1]


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8))


def trained(model, batches, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        model(batches(step)).square().mean().backward()
        optimizer.step()
    return model


def batch(step):
    return torch.randn(4 * SIZE, 8, generator=torch.Generator().manual_seed(step))


def near(got, wanted):
    assert torch.allclose(got, wanted, atol=1e-6), (got - wanted).abs().max()


def test_functional():
    group = dist.group.WORLD
    x = torch.arange(4.0) + RANK
    near(functional.all_reduce(x, "sum", group), SIZE * torch.arange(4.0) + sum(range(SIZE)))
    near(functional.all_gather_tensor(x, 0, group), torch.cat([torch.arange(4.0) + r for r in range(SIZE)]))
    rows = torch.ones(SIZE * 2, 3) * (RANK + 1)
    near(functional.reduce_scatter_tensor(rows, "avg", 0, group), torch.full((2, 3), (SIZE + 1) / 2))
    near(functional.broadcast(x, 0, group), torch.arange(4.0))
    near(functional.all_to_all_single(torch.full((SIZE,), float(RANK)), None, None, group), torch.arange(SIZE).float())


def test_compiled():
    def step(x):
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    x = torch.ones(5) * (RANK + 1)
    near(torch.compile(step, fullgraph=True, backend="aot_eager")(x), step(x))


def test_fsdp2():
    alone = trained(network(), batch)
    model = network()
    mesh = init_device_mesh("cpu", (SIZE,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model[2], mesh=mesh)
    fully_shard(model, mesh=mesh)
    trained(model, lambda step: batch(step).chunk(SIZE)[RANK])
    for p, wanted in zip(model.parameters(), alone.parameters()):
        assert isinstance(p, DTensor)
        near(p.full_tensor(), wanted)


def test_mesh_and_tensors():
    """Tensor parallelism in rows of a mesh of 2 x n, data parallelism in its columns."""
    if SIZE % 2 != 0:
        return
    mesh = init_device_mesh("cpu", (SIZE // 2, 2), mesh_dim_names=("dp", "tp"))
    alone = trained(network(), batch)
    model = parallelize_module(network(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    if SIZE > 2:
        fully_shard(model, mesh=mesh["dp"])
    trained(model, lambda step: batch(step).chunk(SIZE // 2)[mesh["dp"].get_local_rank()])
    for p, wanted in zip(model.parameters(), alone.parameters()):
        near(p.full_tensor(), wanted)
    whole = torch.arange(12.0).reshape(4, 3)
    for placed in ([Shard(0), Replicate()], [Replicate(), Shard(1)], [Shard(0), Shard(0)]):
        spread = distribute_tensor(whole, mesh, placed)
        near(spread.redistribute(mesh, [Replicate(), Replicate()]).to_local(), whole)
        near((spread @ spread.T).full_tensor(), whole @ whole.T)


def test_checkpoints():
    """What FSDP2's ranks have saved is loaded by one model that is whole."""
    model = network()
    fully_shard(model, mesh=init_device_mesh("cpu", (SIZE,)))
    trained(model, lambda step: batch(step).chunk(SIZE)[RANK])
    wanted = {name: value.full_tensor() for name, value in model.state_dict().items()}
    checkpoint.save(model.state_dict(), checkpoint_id=os.path.join(FOLDER, "fsdp"))
    dist.barrier()
    plain = network().state_dict()
    checkpoint.load(plain, checkpoint_id=os.path.join(FOLDER, "fsdp"))
    for name, value in plain.items():
        near(value, wanted[name])


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
print(f"rank {RANK} ok", flush=True)
dist.destroy_process_group()
