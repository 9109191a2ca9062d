"""What the scripts beside this one train: a small network, on pictures of 8 x 8 points that are made here: one of ten
patterns each, moved and with noise."""
from collections.abc import Iterator

import torch

SAMPLES, BATCH, STEPS = 960, 48, 40


def data() -> tuple[torch.Tensor, torch.Tensor]:
    make = torch.Generator().manual_seed(0)
    patterns = torch.rand(10, 8, 8, generator=make).round()
    labels = torch.randint(10, (SAMPLES,), generator=make)
    moved = torch.stack([torch.roll(patterns[label], int(shift), 1)
                         for label, shift in zip(labels, torch.randint(2, (SAMPLES,), generator=make))])
    return (moved + 0.3 * torch.randn(SAMPLES, 8, 8, generator=make)).reshape(SAMPLES, 64), labels


def network() -> torch.nn.Sequential:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 96), torch.nn.ReLU(),
                               torch.nn.Linear(96, 10))


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The same in every process."""
    pictures, labels = data()
    order = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        chosen = torch.randperm(SAMPLES, generator=order)[:BATCH]
        yield pictures[chosen], labels[chosen]


def loss_of_all(model: torch.nn.Module) -> float:
    pictures, labels = data()
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(model(pictures), labels).item()
