"""States, gradients and parameters in parts:    tutti-run -n 2 python zero.py [STAGE]

Rank 0 saves what a script without Tutti loads."""
import os
import sys
import tempfile

import torch
import tutti.torch

import digits

comm = tutti.init()
network = digits.network()
optimizer = torch.optim.AdamW(network.parameters(), lr=0.003)
model = tutti.torch.ZeRO(network, optimizer, stage=int(sys.argv[1]) if len(sys.argv) > 1 else 3, comm=comm)
for pictures, labels in digits.batches():
    pictures, labels = pictures[comm.rank::comm.size], labels[comm.rank::comm.size]
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(pictures), labels).backward()
    optimizer.step()
loss = digits.loss_of_all(model)  # all ranks: in stage 3 the parameters come for it
checkpoint = {"model": model.state_dict(), "optimizer": model.optimizer_state_dict()}
if comm.rank == 0:
    with tempfile.TemporaryDirectory() as folder:
        torch.save(checkpoint, os.path.join(folder, "checkpoint.pt"))
        plain = digits.network()
        plain.load_state_dict(torch.load(os.path.join(folder, "checkpoint.pt"))["model"])
    assert digits.loss_of_all(plain) == loss
print(f"rank {comm.rank} of {comm.size}: loss {loss:.4f}")
comm.close()
