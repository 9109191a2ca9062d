"""One rank makes the updates, as gradients come:    tutti-run -n 3 python server.py [--asynchronous]"""
import sys

import torch
import tutti.torch

import digits

comm = tutti.init()
network = digits.network()
optimizer = torch.optim.AdamW(network.parameters(), lr=0.003)
with tutti.torch.ParameterServer(network, optimizer, comm, asynchronous="--asynchronous" in sys.argv) as model:
    for pictures, labels in digits.batches():
        pictures, labels = pictures[comm.rank::comm.size], labels[comm.rank::comm.size]
        network.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        model.step()
print(f"rank {comm.rank} of {comm.size}: loss {digits.loss_of_all(model):.4f}")
comm.close()
