"""Gradients in buckets, reduced beside the backward pass:    tutti-run -n 2 python bucket.py"""
import torch
import tutti.torch

import digits

comm = tutti.init()
model = tutti.torch.DataParallelBucket(digits.network(), comm)  # or DataParallelNaive
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
for pictures, labels in digits.batches():
    pictures, labels = pictures[comm.rank::comm.size], labels[comm.rank::comm.size]
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(pictures), labels).backward()
    optimizer.step()
print(f"rank {comm.rank} of {comm.size}: loss {digits.loss_of_all(model):.4f}")
comm.close()
