"""A rank that is lost is left out, and the others go on:    tutti-run --keep-going -n 3 python elastic.py

The last rank ends itself in the middle of step 20."""
import os

import torch
import tutti.torch

import digits

comm = tutti.init()
model = tutti.torch.DataParallelBucket(digits.network(), comm)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
batches, step = list(digits.batches()), 0
while step < len(batches):
    pictures, labels = (whole[comm.rank::comm.size] for whole in batches[step])
    try:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        if step == 20 and comm.rank == 2:
            os._exit(1)
        loss.backward()
    except tutti.RemoteError as error:
        print(f"rank {comm.rank}: rank {error.failed_rank} is lost in step {step}")
        comm = comm.shrink(abort=True)
        # A rank may have made the step that the others have not: all go on from who is furthest.
        steps = comm.all_gather_object(step, unsafe=True)
        root, step = steps.index(max(steps)), max(steps)
        model.move(comm, root)
        optimizer.load_state_dict(comm.broadcast_object(optimizer.state_dict(), root, unsafe=True))
    else:
        optimizer.step()
        step += 1
print(f"rank {comm.rank} of {comm.size}: loss {digits.loss_of_all(model):.4f}")
comm.close()
