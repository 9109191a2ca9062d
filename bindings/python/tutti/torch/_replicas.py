"""Every rank has all of the model; gradients become those of all ranks."""
from __future__ import annotations

import torch

import tutti
from tutti.torch._backward import Layer, Pass, cut, views


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
        self._flats = [torch.zeros(sum(p.numel() for p in bucket), dtype=bucket[0].dtype) for bucket in self._buckets]
        self._views = [views(flat, bucket) for flat, bucket in zip(self._flats, self._buckets)]
        self._pass = Pass(self._buckets, self._start, self._wait, self._drop)

    def _start(self, i: int) -> None:
        if not self._syncs:
            return
        for p, view in zip(self._buckets[i], self._views[i]):
            if p.grad is None:
                view.zero_()
            elif p.grad.data_ptr() != view.data_ptr():
                view.copy_(p.grad)
            p.grad = view
        self._works.append(self.comm.all_reduce(self._flats[i], out=self._flats[i], op="avg", async_=True))
