"""Every rank has all of the model; gradients become those of all ranks."""
from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import torch

import tutti
from tutti.torch._backward import Layer, Parameters, Pass, cut, shared, views

LARGE = 1 << 20  # bytes of a parameter from which on its copy into the bucket takes longer than what it saves


def runs(flat: torch.Tensor, bucket: Parameters) -> Iterator[tuple[Parameters, torch.Tensor]]:
    """What is reduced at once, with its part of the bucket: a large parameter alone, so that the sum reads its gradient
    where it lies; smaller ones that are neighbours together."""
    at = 0
    for _, run in groupby(enumerate(bucket), lambda numbered: numbered[0] if numbered[1].nbytes >= LARGE else -1):
        parameters = [p for _, p in run]
        end = at + sum(p.numel() for p in parameters)
        yield parameters, flat[at:end]
        at = end


class Replica(Layer):
    def move(self, comm: tutti.Communicator, root: int = 0) -> None:
        """Goes on over another communicator: of those who are left when a rank is lost (comm.shrink(abort=True)), or of
        more (comm.grow). All of its ranks call it, or make the layer with it, and get the parameters and buffers of
        `root`. Reductions that were under way are dropped."""
        self.comm, self._works = comm, []
        self._take_values_of(root)


class DataParallelNaive(Replica):
    """The mean of all ranks' gradients, one after another when the backward pass has ended: the reference."""

    def __init__(self, module: torch.nn.Module, comm: tutti.Communicator | None = None) -> None:
        """comm: None is tutti.init(). All ranks get the parameters and buffers of rank 0."""
        super().__init__(module, comm)
        self._pass = Pass([self._trained], lambda _: None, self._reduce, self._drop)

    def _reduce(self) -> None:
        if not self._syncs:
            return
        for p in self._trained:
            p.grad = (torch.zeros_like(p, requires_grad=False) if p.grad is None else p.grad).contiguous()
            self.comm.all_reduce(p.grad, out=p.grad, op="avg")


class DataParallelBucket(Replica):
    """The mean of all ranks' gradients, in buckets, each reduced beside the rest of the backward pass as soon as it is
    complete. Gradients are views of the buckets."""

    def __init__(self, module: torch.nn.Module, comm: tutti.Communicator | None = None, *,
                 bucket_mb: float | None = None) -> None:
        """comm: None is tutti.init(). All ranks get the parameters and buffers of rank 0.

        bucket_mb: None is a sixteenth of all gradients, at least 1 and at most 25.
        """
        super().__init__(module, comm)
        self._buckets = cut(self._trained, bucket_mb)
        self._flats = shared((sum(p.numel() for p in bucket), bucket[0].dtype) for bucket in self._buckets)
        self._views = [views(flat, bucket) for flat, bucket in zip(self._flats, self._buckets)]
        self._runs = [list(runs(flat, bucket)) for flat, bucket in zip(self._flats, self._buckets)]
        self._pass = Pass(self._buckets, self._start, self._wait, self._drop)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the model's. After a backward pass that has ended in an exception, the sums that it has begun end first:
        they would come to gradients that have been set to zero, as they do after the optimizer's
        zero_grad(set_to_none=False)."""
        self._pass.forget()
        super().zero_grad(set_to_none)

    def _start(self, i: int) -> None:
        if not self._syncs:
            return
        for parameters, out in self._runs[i]:
            self._works.append(self.comm.all_reduce(self._packed(parameters, out), out=out, op="avg", async_=True))
        for p, view in zip(self._buckets[i], self._views[i]):
            p.grad = view

    @staticmethod
    def _packed(parameters: Parameters, out: torch.Tensor) -> torch.Tensor:
        """Their gradients, one after another: one alone where it is, others in `out`, their part of the bucket."""
        for p, view in zip(parameters, views(out, parameters)):
            if p.grad is None:
                view.zero_()
            elif p.grad.data_ptr() != view.data_ptr():
                if len(parameters) == 1 and p.grad.is_contiguous():
                    return p.grad.detach().view(-1)
                view.copy_(p.grad)
        return out
