"""What all layers share: which parameters are trained, how they are cut into buckets, and what happens when autograd
has a gradient ready."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

import tutti

Parameters = list[torch.nn.Parameter]
PAGE = 4096


def trained(module: torch.nn.Module) -> Parameters:
    """Those that gradients are made for, each once, in the order of the module."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    for p in parameters:
        if p.device.type != "cpu" or p.layout != torch.strided:
            raise ValueError(f"tutti.torch: a parameter is {p.layout} on {p.device}, and the layers train dense ones "
                             'on CPUs. On GPUs: torch.distributed.init_process_group("tutti") with DDP or FSDP')
    if not parameters:
        raise ValueError("tutti.torch: the model has no parameter that requires a gradient")
    return parameters


def cut(parameters: Parameters, bucket_mb: float | None) -> list[Parameters]:
    """Neighbours of one type in buckets of about that size, the last ones first, as a backward pass comes by.
    None: a sixteenth of all, at least 1 MiB and at most 25."""
    size = sum(p.nbytes for p in parameters) / 16
    limit = min(max(size, 1 << 20), 25 << 20) if bucket_mb is None else bucket_mb * (1 << 20)
    buckets: list[Parameters] = []
    filled = 0
    for p in reversed(parameters):
        if not buckets or p.dtype != buckets[-1][0].dtype or filled + p.nbytes > limit:
            buckets.append([])
            filled = 0
        buckets[-1].append(p)
        filled += p.nbytes
    return buckets


def views(flat: torch.Tensor, parameters: Iterable[torch.nn.Parameter]) -> list[torch.Tensor]:
    """The parts of a flat tensor, in their shapes."""
    made, at = [], 0
    for p in parameters:
        made.append(flat[at:at + p.numel()].view(p.shape))
        at += p.numel()
    return made


def shared(wanted: Iterable[tuple[int, torch.dtype]]) -> list[torch.Tensor]:
    """Flat tensors of zeros, of so many elements each. They lie in memory that the other ranks of the host can map, so
    that large messages are not copied; in this process's own if there is no such memory to be had."""
    sizes, ends = list(wanted), [0]
    for count, dtype in sizes:
        ends.append(-(-(ends[-1] + count * dtype.itemsize) // PAGE) * PAGE)
    try:
        memory = tutti.Memory(ends[-1])
    except tutti.SystemError:
        return [torch.zeros(count, dtype=dtype) for count, dtype in sizes]
    return [torch.frombuffer(memory, dtype=dtype, count=count, offset=at) if count > 0 else torch.zeros(0, dtype=dtype)
            for at, (count, dtype) in zip(ends, sizes)]


class Pass:
    """Watches backward passes. start(i) is called once in a pass for each bucket, in their order, which all ranks have:
    as soon as all gradients of bucket i and of those before it are there, or when the pass ends. Then finish() is
    called, before backward() returns: what it raises, backward() raises. Instead of it drop() is called, in the next
    pass or by forget(), if one has ended in an exception."""

    def __init__(self, buckets: list[Parameters], start: Callable[[int], None], finish: Callable[[], None],
                 drop: Callable[[], None]) -> None:
        self._sizes = [len(bucket) for bucket in buckets]
        self._start, self._finish, self._drop = start, finish, drop
        self._reset()
        for i, bucket in enumerate(buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(partial(self._ready, i))  # type: ignore[no-untyped-call]

    def _reset(self) -> None:
        self._missing = list(self._sizes)
        self._next = 0
        self._task = -1  # the pass that is on its way, as autograd counts them

    @property
    def is_under_way(self) -> bool:
        """Outside of backward(): the last pass has ended in an exception."""
        return self._task != -1

    def forget(self) -> None:
        """A pass that has ended in an exception."""
        if self.is_under_way:
            self._drop()
            self._reset()

    def _ready(self, bucket: int, _: torch.Tensor) -> None:
        task = torch._C._current_graph_task_id()
        if self._task != task:
            self.forget()
            self._task = task
            torch.autograd.Variable._execution_engine.queue_callback(self._end)
        self._missing[bucket] -= 1
        self._start_up_to(lambda: self._missing[self._next] <= 0)

    def _start_up_to(self, complete: Callable[[], bool]) -> None:
        while self._next < len(self._sizes) and complete():
            self._next += 1  # even if it fails: it has been tried
            self._start(self._next - 1)

    def _end(self) -> None:
        try:
            self._start_up_to(lambda: True)
            self._finish()
        finally:
            self._reset()


class Layer(torch.nn.Module):
    """A model in a layer: its state_dict is the model's own."""

    def __init__(self, module: torch.nn.Module, comm: tutti.Communicator | None) -> None:
        super().__init__()
        self._trained = trained(module)
        self.module = module
        self.comm = tutti.init() if comm is None else comm
        self._syncs = True
        self._works: list[tutti.Work[Any]] = []
        self._take_values_of(0)

    def _take_values_of(self, root: int) -> None:
        for tensor in [*self.module.parameters(), *self.module.buffers()]:
            tensor.data = tensor.data.contiguous()
            self.comm.broadcast(tensor.detach(), root)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _wait(self) -> None:
        """For all that has been started."""
        works, self._works = self._works, []
        for work in works:
            work.wait()

    def _drop(self) -> None:
        """What has been started was in vain."""
        self._wait()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in it add to the gradients of this rank; the next one outside makes them those of all."""
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """On every rank, with the same values."""
        if assign:
            raise ValueError("tutti.torch: assign=True would replace parameters that the layer knows")
        return self.module.load_state_dict(state_dict, strict)
