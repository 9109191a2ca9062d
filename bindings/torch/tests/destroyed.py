"""A rank whose group is destroyed by a destructor of Python's while its thread still frees tensors and calls back."""
import torch
import torch.distributed as dist

import tutti_torch  # noqa: F401  registers the backend

dist.init_process_group("tutti")
for _ in range(50):
    group = dist.new_group(backend="tutti")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4), process_group=group)
    model(torch.ones(2, 4)).sum().backward()
    works = [dist.all_reduce(torch.ones(1000), group=group, async_op=True) for _ in range(3)]
    works[-1].get_future().then(lambda done: done.value()[0] + 1)
    del works
    dist.destroy_process_group(group)
    del group, model  # the reducer is the last that has it
print(f"rank {dist.get_rank()} ok", flush=True)
