"""Optimizer states, gradients and parameters in parts, of which each rank has one."""
from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree

import tutti
from tutti.torch._backward import Layer, Parameters, Pass, cut, shared, views


def padded(parameters: Parameters, ranks: int) -> int:
    """The elements of these parameters, and as many more as make equal parts of whole cache lines."""
    return -(-sum(p.numel() for p in parameters) // (16 * ranks)) * 16 * ranks


class _Unit:
    """Parameters of one type one after another; rank r owns the r-th of equal parts."""

    def __init__(self, parameters: Parameters, comm: tutti.Communicator, stage: int,
                 gradients: torch.Tensor | None) -> None:
        """gradients: zeros, of padded() elements, where stage 1 has its gradients; None in other stages."""
        self.parameters, self.comm, self.stage, self.gradients = parameters, comm, stage, gradients
        self.values = torch.zeros(padded(parameters, comm.size), dtype=parameters[0].dtype)
        for p, view in zip(parameters, views(self.values, parameters)):
            view.copy_(p.detach())
            p.data = view
        self.rows = self.values.view(comm.size, self.values.numel() // comm.size)
        mine = self.rows[comm.rank]
        self.own = torch.nn.Parameter(mine.clone() if stage == 3 else mine)
        self.bytes = self.values.untyped_storage().nbytes()
        self.users = 0  # modules that run forward
        self.whole = True
        if self.gradients is not None:
            for p, view in zip(parameters, views(self.gradients, parameters)):
                p.grad = view

    def gather(self) -> None:
        """The values are there, of all ranks."""
        if not self.whole:
            self.values.untyped_storage().resize_(self.bytes)
            self.comm.all_gather(self.own.detach(), out=self.rows)
            self.whole = True

    def release(self) -> None:
        """Stage 3: only what this rank owns is there."""
        if self.stage == 3 and self.whole:
            self.values.untyped_storage().resize_(0)
            self.whole = False

    def packed(self) -> torch.Tensor:
        """This rank's gradients, in the order of the values."""
        flat = torch.zeros_like(self.values) if self.gradients is None else self.gradients
        for p, view in zip(self.parameters, views(flat, self.parameters)):
            if p.grad is None:
                view.zero_()
            elif p.grad.data_ptr() != view.data_ptr():
                view.copy_(p.grad)
            p.grad = view if self.gradients is not None else None
        return flat.view(self.rows.shape)

    def forget(self) -> None:
        """The gradients that have not been packed."""
        if self.gradients is None:
            for p in self.parameters:
                p.grad = None
        else:
            self.gradients.zero_()
            for p, view in zip(self.parameters, views(self.gradients, self.parameters)):
                p.grad = view

    def add(self, gradient: torch.Tensor) -> None:
        """The mean of all ranks' gradients, of the part that this rank owns."""
        self.own.grad = gradient if self.own.grad is None else self.own.grad.add_(gradient)
        if self.gradients is not None:
            self.gradients.zero_()


class ZeRO(Layer):
    """Each rank makes the updates of its part of the parameters, and has the states for it alone (stage 1), and the
    gradients (2), and the parameters: a module's others come when it runs (3).

    The optimizer then has the parts for parameters. It must update each element by itself, as SGD and Adam do. Its
    step() is a collective call. A backward pass hands the gradients over: afterwards p.grad has nothing of them.
    """

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer, stage: int = 1,
                 comm: tutti.Communicator | None = None, *, bucket_mb: float | None = None) -> None:
        """comm: None is tutti.init(). All ranks get the parameters and buffers of rank 0.

        optimizer: one of the module's parameters that has made no step. bucket_mb: as in DataParallelBucket; stage 3
        has a bucket for each module instead.
        """
        if stage not in (1, 2, 3):
            raise ValueError(f"tutti.torch: ZeRO has the stages 1, 2 and 3, not {stage}")
        if optimizer.state:
            raise ValueError("tutti.torch: the optimizer has made steps: make ZeRO first, then load its state")
        super().__init__(module, comm)
        self.stage, self.optimizer = stage, optimizer
        self._originals: list[Parameters] = [list(group["params"]) for group in optimizer.param_groups]
        self._groups = self._made(bucket_mb)  # the units of each of the optimizer's groups
        for group, units in zip(optimizer.param_groups, self._groups):
            group["params"] = [unit.own for unit in units]
        self._units = [unit for units in self._groups for unit in units]
        self._reduced: list[tuple[_Unit, torch.Tensor, tutti.Work[Any]]] = []
        self._pass = Pass([unit.parameters for unit in self._units], self._start, self._finish, self._drop)
        optimizer.register_step_post_hook(lambda *_: self._spread())
        self._keeps = False  # p.grad has what passes in no_sync() have made
        self._zero_parts = optimizer.zero_grad
        optimizer.zero_grad = self.zero_grad  # type: ignore[method-assign]
        if stage == 3:
            self._watch_modules()
            for unit in self._units:
                unit.release()

    def _made(self, bucket_mb: float | None) -> list[list[_Unit]]:
        cuts = []
        for originals in self._originals:
            # In the module's order, whatever the group's is.
            members = {id(p) for p in originals}
            cuts.append(self._cut([p for p in self._trained if id(p) in members], bucket_mb))
        sizes = [(padded(bucket, self.comm.size), bucket[0].dtype) for buckets in cuts for bucket in buckets]
        gradients = iter(shared(sizes) if self.stage == 1 else [None] * len(sizes))
        return [[_Unit(bucket, self.comm, self.stage, next(gradients)) for bucket in buckets] for buckets in cuts]

    def _cut(self, parameters: Parameters, bucket_mb: float | None) -> list[Parameters]:
        if self.stage < 3:
            return cut(parameters, bucket_mb)
        left = {id(p) for p in parameters}
        buckets: list[Parameters] = []
        for module in reversed(list(self.module.modules())):
            own = [p for p in module.parameters(recurse=False) if id(p) in left]
            left -= {id(p) for p in own}
            buckets += cut(own, float("inf")) if own else []
        return buckets

    def _watch_modules(self) -> None:
        unit_of = {id(p): unit for unit in self._units for p in unit.parameters}
        for module in self.module.modules():
            units = list({id(unit): unit for p in module.parameters(recurse=False)
                          if (unit := unit_of.get(id(p))) is not None}.values())
            if units:
                module.register_forward_pre_hook(partial(self._before, units))
                module.register_forward_hook(partial(self._after, units), always_call=True)

    @staticmethod
    def _before(units: list[_Unit], *_: Any) -> None:
        for unit in units:
            unit.gather()
            unit.users += 1

    @staticmethod
    def _after(units: list[_Unit], _module: Any, _inputs: Any, outputs: Any) -> None:
        for unit in units:
            unit.users -= 1
            if unit.users == 0:
                unit.release()

        def again(_: torch.Tensor) -> None:
            for unit in units:
                unit.gather()

        for output in _pytree.tree_leaves(outputs):
            if isinstance(output, torch.Tensor) and output.requires_grad:
                output.register_hook(again)  # type: ignore[no-untyped-call]

    def _start(self, i: int) -> None:
        unit = self._units[i]
        unit.release()
        if self._syncs:
            out = torch.empty_like(unit.own, requires_grad=False)
            self._reduced.append((unit, out, self.comm.reduce_scatter(unit.packed(), out=out, op="avg", async_=True)))

    def _finish(self) -> None:
        self._keeps = not self._syncs
        reduced, self._reduced = self._reduced, []
        for unit, gradient, work in reduced:
            work.wait()
            unit.add(gradient)
        for unit in self._units:
            unit.release()  # that a hook has gathered and no gradient has left

    def _drop(self) -> None:
        reduced, self._reduced = self._reduced, []
        for _, _, work in reduced:
            work.wait()

    def _spread(self) -> None:
        if self.stage < 3:
            self._works += [self.comm.all_gather(unit.own.detach(), out=unit.rows, async_=True) for unit in self._units]
            self._wait()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the optimizer's zero_grad(), which calls it: also forgets what no_sync(), or a pass that has ended in an
        exception, has left on this rank."""
        self._zero_parts(set_to_none)
        if self._keeps or self._pass.is_under_way:
            self._keeps = False
            for unit in self._units:
                unit.forget()

    def clip_grad_norm_(self, max_norm: float) -> float:
        """Between backward() and step(): the 2-norm of all gradients, which are scaled down to max_norm if it is more.
        A collective call."""
        gradients = [unit.own.grad for unit in self._units if unit.own.grad is not None]
        total = torch.stack([g.double().square().sum() for g in gradients] or [torch.zeros((), dtype=torch.double)])
        norm = float(self.comm.all_reduce(total.sum().reshape(1)).sqrt())
        for gradient in gradients:
            gradient.mul_(min(1.0, max_norm / (norm + 1e-6)))
        return norm

    @contextlib.contextmanager
    def _all_there(self) -> Iterator[None]:
        for unit in self._units:
            unit.gather()
        try:
            yield
        finally:
            for unit in self._units:
                unit.release()

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The whole model's, on every rank. A collective call."""
        with self._all_there():
            return {name: value.clone() if isinstance(value, torch.Tensor) else value
                    for name, value in self.module.state_dict(*args, **kwargs).items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """A plain model's, the same on every rank. A collective call."""
        with self._all_there(), torch.no_grad():
            said = super().load_state_dict(state_dict, strict, assign)
            for unit in self._units:
                unit.own.copy_(unit.rows[self.comm.rank])
            return said

    def optimizer_state_dict(self) -> dict[str, Any]:
        """As the optimizer's own would be in one process, on every rank. A collective call."""
        state: dict[int, dict[str, Any]] = {}
        packed = self.optimizer.state_dict()
        numbers = itertools.count()
        for units, originals, group in zip(self._groups, self._originals, packed["param_groups"]):
            number = {id(p): next(numbers) for p in originals}
            group["params"] = list(number.values())
            for unit in units:
                for name, value in self.optimizer.state[unit.own].items():
                    each: list[Any] = [value] * len(unit.parameters)
                    if isinstance(value, torch.Tensor) and value.shape == unit.own.shape:
                        whole = torch.empty(unit.rows.shape, dtype=value.dtype)
                        each = views(self.comm.all_gather(value, out=whole).view(-1), unit.parameters)
                    for p, one in zip(unit.parameters, each):
                        state.setdefault(number[id(p)], {})[name] = (one.clone() if isinstance(one, torch.Tensor)
                                                                     else one)
        return {"state": state, "param_groups": packed["param_groups"]}

    def load_optimizer_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """What a plain optimizer's state_dict() is, or optimizer_state_dict() of any number of ranks."""
        numbers = {id(p): i for i, p in enumerate(p for originals in self._originals for p in originals)}
        state: dict[int, dict[str, Any]] = {}
        groups = [dict(group) for group in state_dict["param_groups"]]
        at = 0
        for units, group in zip(self._groups, groups):
            group["params"] = list(range(at, at + len(units)))
            for i, unit in enumerate(units):
                # A parameter that has had no gradient has no state.
                saved = [state_dict["state"].get(numbers[id(p)], {}) for p in unit.parameters]
                if names := next(filter(None, saved), None):
                    state[at + i] = {name: self._part(unit, [one.get(name) for one in saved]) for name in names}
            at += len(units)
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def _part(self, unit: _Unit, values: list[Any]) -> Any:
        """What this rank owns of a state; zeros of parameters that have none."""
        there = [(i, v) for i, v in enumerate(values) if v is not None]
        if not there or any(not isinstance(v, torch.Tensor) or v.shape != unit.parameters[i].shape for i, v in there):
            return there[0][1] if there else None
        whole = torch.zeros(unit.rows.shape, dtype=there[0][1].dtype)
        parts = views(whole.view(-1), unit.parameters)
        for i, value in there:
            parts[i].copy_(value)
        return whole[self.comm.rank].clone()
