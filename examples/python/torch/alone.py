"""One process:    python alone.py

The scripts beside this one are the same for many ranks: compare them."""
import torch

import digits

model = digits.network()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
for pictures, labels in digits.batches():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(pictures), labels).backward()
    optimizer.step()
print(f"alone: loss {digits.loss_of_all(model):.4f}")
