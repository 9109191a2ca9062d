"""torchrun's elastic launcher starts all ranks again when one is lost, and they go on from the last checkpoint:

    torchrun --nproc-per-node 3 --max-restarts 1 restarted.py CHECKPOINT

In their first life the last rank ends itself in the middle of step 20."""
import os
import sys

import torch
import tutti.torch

import digits

comm = tutti.init()  # torchrun's variables say who is where; after a restart they are others
model = tutti.torch.DataParallelBucket(digits.network(), comm)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
first = 0
if os.path.exists(sys.argv[1]):
    saved = torch.load(sys.argv[1])
    first = saved["step"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
for step, (pictures, labels) in list(enumerate(digits.batches()))[first:]:
    if step % 8 == 0 and comm.rank == 0:
        saved = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(saved, sys.argv[1] + ".new")
        os.replace(sys.argv[1] + ".new", sys.argv[1])
    pictures, labels = pictures[comm.rank::comm.size], labels[comm.rank::comm.size]
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(pictures), labels)
    if step == 20 and comm.rank == comm.size - 1 and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
        os._exit(1)
    loss.backward()
    optimizer.step()
print(f"rank {comm.rank} of {comm.size}: from step {first}, loss {digits.loss_of_all(model):.4f}")
comm.close()
