"""A parameter server: one rank makes all updates."""
from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import torch

import tutti
from tutti.torch._backward import Layer, Parameters, views


class _Flats:
    """Parameters one after another, a tensor for each of their types."""

    def __init__(self, parameters: Parameters) -> None:
        self.of = [[p for p in parameters if p.dtype == dtype] for dtype in dict.fromkeys(p.dtype for p in parameters)]
        self.flats = [torch.zeros(sum(p.numel() for p in of), dtype=of[0].dtype) for of in self.of]

    def pack(self, gradients: bool) -> None:
        for flat, of in zip(self.flats, self.of):
            for p, view in zip(of, views(flat, of)):
                value = p.grad if gradients else p.detach()
                view.zero_() if value is None else view.copy_(value)

    def unpack(self, gradients: bool) -> None:
        with torch.no_grad():
            for flat, of in zip(self.flats, self.of):
                for p, view in zip(of, views(flat, of)):
                    if gradients:
                        p.grad = view
                    else:
                        p.copy_(view)


class ParameterServer(Layer):
    """Rank `server` has the optimizer, sums up gradients, makes the updates and gives the parameters out. All ranks
    work, the server too; each calls step() instead of optimizer.step() after its backward pass, and close() at the end.

    Synchronous: the mean of all ranks' gradients, as in one process. asynchronous=True: a rank's gradient is an update
    of its own, made when it comes; no rank waits for others, except that none is more than `staleness` steps ahead of
    the slowest one that has not closed.
    """

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer,
                 comm: tutti.Communicator | None = None, *, server: int = 0, asynchronous: bool = False,
                 staleness: int = 4) -> None:
        """comm: None is tutti.init(). All ranks get the parameters and buffers of rank 0.

        optimizer: one of the module's parameters that has made no step; only the server's is used.
        """
        super().__init__(module, comm)
        if not 0 <= server < self.comm.size:
            raise ValueError(f"tutti.torch: rank {server} can't serve {self.comm.size} ranks")
        if optimizer.state:
            raise ValueError("tutti.torch: the optimizer has made steps: make the server first, then load its state")
        self.optimizer, self.server, self.asynchronous, self.staleness = optimizer, server, asynchronous, staleness
        self._flats = _Flats(self._trained)
        self._changed = threading.Condition()
        self._steps = dict.fromkeys(range(self.comm.size), 0) if asynchronous else {}  # of those that have not closed
        self._failure: BaseException | None = None
        self._closed = False
        self._pairs: dict[int, tutti.Communicator] = {}
        self._threads: list[threading.Thread] = []
        if asynchronous:
            self._begin_serving()

    @property
    def serves(self) -> bool:
        """This rank is the server."""
        return self.comm.rank == self.server

    def _begin_serving(self) -> None:
        if self.serves:  # values apart from the model's, which is in use while they change
            copies = {id(p): torch.nn.Parameter(p.detach().clone()) for of in self._flats.of for p in of}
            for group in self.optimizer.param_groups:
                group["params"] = [copies[id(p)] for p in group["params"] if id(p) in copies]
            # Of the model, as in one process: the copies' gradients are in use by the threads below.
            self.optimizer.zero_grad = self.module.zero_grad  # type: ignore[method-assign]
            self._masters = _Flats([copies[id(p)] for of in self._flats.of for p in of])
        for worker in range(self.comm.size):
            if worker != self.server:
                pair = self.comm.split(0 if self.comm.rank in (worker, self.server) else None, 0 if self.serves else 1)
                if pair is not None:
                    self._pairs[worker] = pair
        if self.serves:
            for worker, pair in self._pairs.items():
                self._threads.append(threading.Thread(target=self._serve, args=(worker, pair), daemon=True))
                self._threads[-1].start()

    def _serve(self, worker: int, pair: tutti.Communicator) -> None:
        mine = [torch.empty_like(flat) for flat in self._flats.flats]
        goes_on = torch.zeros(1, dtype=torch.int32)
        try:
            while True:
                pair.recv(goes_on, 1)
                if not goes_on.item():
                    break
                for flat in mine:
                    pair.recv(flat, 1)
                self._update(worker, mine)
                for flat in mine:
                    pair.send(flat, 1)
        except BaseException as error:  # pylint: disable=broad-exception-caught # step() raises it
            self._failure = self._failure or error
            pair.abort()  # the worker need not wait for an answer
        self._leave(worker)

    def _leave(self, worker: int) -> None:
        with self._changed:
            self._steps.pop(worker, None)
            self._changed.notify_all()

    def _update(self, worker: int, gradients: list[torch.Tensor]) -> None:
        """Makes the update of a worker's gradients; then they are the new values."""
        with self._changed:
            for master, gradient in zip(self._masters.flats, gradients):
                master.copy_(gradient)
            self._masters.unpack(gradients=True)
            self.optimizer.step()
            self._steps[worker] += 1
            self._changed.notify_all()
            # Bounded: a rank that is gone fails its thread, which leaves.
            self._changed.wait_for(lambda: self._steps[worker] - min(self._steps.values()) <= self.staleness)
            self._masters.pack(gradients=False)
            for master, gradient in zip(self._masters.flats, gradients):
                gradient.copy_(master)

    def step(self) -> None:
        """An update of this rank's gradients, or synchronous of all ranks'; then the parameters are the server's."""
        self._flats.pack(gradients=True)
        if not self.asynchronous:
            self._step_together()
        elif self.serves:
            self._raise_failure()
            self._update(self.server, self._flats.flats)
            self._flats.unpack(gradients=False)
        else:
            pair = self._pairs[self.comm.rank]
            pair.send(torch.ones(1, dtype=torch.int32), 0)
            for flat in self._flats.flats:
                pair.send(flat, 0)
            for flat in self._flats.flats:
                pair.recv(flat, 0)
            self._flats.unpack(gradients=False)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """On every rank, with the same values, while no rank is in step()."""
        said = super().load_state_dict(state_dict, strict, assign)
        if self.asynchronous and self.serves:
            with self._changed, torch.no_grad():
                for masters, of in zip(self._masters.of, self._flats.of):
                    for master, p in zip(masters, of):
                        master.copy_(p)
        return said

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise RuntimeError("tutti.torch: the server has lost a worker") from self._failure

    def _step_together(self) -> None:
        for flat in self._flats.flats:
            self.comm.reduce(flat, self.server, out=flat if self.serves else None, op="avg")
        if self.serves:
            self._flats.unpack(gradients=True)
            self.optimizer.step()
            self._flats.pack(gradients=False)
        for flat in self._flats.flats:
            self.comm.broadcast(flat, self.server)
        self._flats.unpack(gradients=False)

    def close(self) -> None:
        """Asynchronous: this rank makes no more steps. All ranks call it; then all have the server's parameters."""
        if not self.asynchronous or self._closed:
            return
        self._closed = True
        if self.serves:
            self._leave(self.server)
            for thread in self._threads:
                thread.join()
            self._raise_failure()
            self._masters.pack(gradients=False)
            for flat, master in zip(self._flats.flats, self._masters.flats):
                flat.copy_(master)
        else:
            self._pairs[self.comm.rank].send(torch.zeros(1, dtype=torch.int32), 0)
        for flat in self._flats.flats:
            self.comm.broadcast(flat, self.server)
        self._flats.unpack(gradients=False)
        for pair in self._pairs.values():
            pair.close()
        self._pairs = {}

    def __enter__(self) -> ParameterServer:
        return self

    def __exit__(self, exception: Any, value: Any, traceback: Any) -> None:
        if exception is None:
            self.close()
        else:
            for pair in self._pairs.values():
                pair.abort()
