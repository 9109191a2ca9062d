"""A rank whose tensors are on emulated GPUs: collectives over tutti, on streams. What it proves of CUDA's: the order of
streams, who keeps what alive, and all that the library does; not that CUDA's streams reach the library as they should.
Ends with "rank r ok"."""
import datetime
import os
import time
import types

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti_torch
import tutti_torch_device as gpus
from expecting import refused

KIND = "privateuseone"
tutti_torch._C.streams_of(KIND, gpus.handle_of_current)
BACKEND = "tutti"
if int(torch.__version__.split(".")[0]) >= 2:
    module = types.ModuleType(KIND)  # what torch asks of a kind of device
    module.is_available, module.device_count, module._is_in_bad_fork = lambda: True, gpus.devices, lambda: False
    module.current_device, module._lazy_init, module.manual_seed_all = lambda: 0, lambda: None, lambda seed: None
    torch._register_device_module(KIND, module)
    BACKEND = "tutti_on_devices"
    dist.Backend.register_backend(BACKEND, tutti_torch._C.create, devices=["cpu", KIND])
dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=60))
RANK, SIZE = dist.get_rank(), dist.get_world_size()
GLOO = dist.new_group(backend="gloo")
HERE = RANK % gpus.devices()
TOTAL = SIZE * (SIZE + 1) // 2


def there(tensor, index=HERE):
    return tensor.to(f"{KIND}:{index}")


def empty(*shape, dtype=torch.float32, index=HERE):
    return torch.empty(*shape, dtype=dtype, device=f"{KIND}:{index}")


def same(got, wanted, what):
    got = got.cpu()
    assert got.dtype == wanted.dtype and torch.equal(got, wanted), (what, got, wanted)


def test_after_what_was_enqueued():
    for _ in range(3):
        tensor, gate = empty(1000), gpus.hold(HERE)
        gpus.fill(tensor, RANK + 1)
        work = dist.all_reduce(tensor, async_op=True)
        time.sleep(0.05)  # it could have been done by now
        assert not work.is_completed()
        gpus.open(gate)
        work.wait()
        twice = empty(1000)
        twice.copy_(tensor)  # after wait(): after the operation
        same(twice, torch.full((1000,), float(TOTAL)), "all_reduce")
        assert work.is_completed()


def test_beside_what_comes_later():
    """An operation that waits for another rank does not stop the stream of the one that has begun it."""
    tensor, other = there(torch.full((5,), RANK + 1.0)), empty(7)
    work = None
    if RANK == 0:
        work = dist.all_reduce(tensor, async_op=True)
        gpus.fill(other, 3)
        same(other, torch.full((7,), 3.0), "while an operation is under way")
        assert SIZE == 1 or not work.is_completed()
    dist.barrier(group=GLOO)
    work = work or dist.all_reduce(tensor, async_op=True)
    work.wait()
    same(tensor, torch.full((5,), float(TOTAL)), "all_reduce")


def test_other_streams():
    tensor = there(torch.full((9,), 1.0))
    before = gpus.set_stream(HERE, gpus.new_stream(HERE))
    try:
        gate, mine = gpus.hold(HERE), empty(9)
        gpus.fill(mine, RANK + 1)
        work = dist.all_reduce(mine, async_op=True)  # after the current stream, which is held
        assert not work.is_completed()
        same_stream = gpus.set_stream(HERE, before)
        same(tensor, torch.ones(9), "the default stream goes on")
        gpus.open(gate)
        work.wait()  # here: on the default stream
        tensor.copy_(mine)
        same(tensor, torch.full((9,), float(TOTAL)), "another stream waits")
        gpus.set_stream(HERE, same_stream)
    finally:
        gpus.synchronize(HERE)
        gpus.set_stream(HERE, before)


def test_freed_too_early():
    """Tensors that nobody has any more are kept until their operation has ended."""
    for count in (100, 300000):
        if RANK == 0:
            tensor = there(torch.full((count,), 7.0))
            dist.broadcast(tensor, 0, async_op=True)
            strided = there(torch.full((count, 2), 8.0))[:, 1]
            dist.broadcast(strided, 0, async_op=True)
            del tensor, strided
            gpus.synchronize(HERE)  # what is freed would be overwritten by now
            dist.barrier(group=GLOO)
        else:
            dist.barrier(group=GLOO)
            for value in (7.0, 8.0):
                got = empty(count)
                dist.broadcast(got, 0)
                same(got, torch.full((count,), value), "broadcast of what was freed")


def everybodys(tensor):
    rows = [torch.empty_like(tensor) for _ in range(SIZE)]
    dist.all_gather(rows, tensor)  # on CPUs
    return rows


def test_collectives():
    for dtype in (torch.float32, torch.int32, torch.bfloat16):
        mine = ((torch.arange(1003) * 7 + RANK * 3) % 5).to(dtype)
        rows = everybodys(mine)
        got = there(mine)
        dist.all_reduce(got)
        same(got, sum(rows[1:], rows[0]), ("all_reduce", dtype))
        got = there(mine)
        dist.broadcast(got, SIZE - 1)
        same(got, rows[SIZE - 1], ("broadcast", dtype))
        got = there(mine)
        dist.reduce(got, 0)
        same(got, sum(rows[1:], rows[0]) if RANK == 0 else mine, ("reduce", dtype))
        lists = [empty(1003, dtype=dtype) for _ in range(SIZE)]
        dist.all_gather(lists, there(mine))
        for row, wanted in zip(lists, rows):
            same(row, wanted, ("all_gather", dtype))
        lists = [empty(1003, dtype=dtype) for _ in range(SIZE)] if RANK == 0 else None
        dist.gather(there(mine), lists, 0)
        for row, wanted in zip(lists or [], rows):
            same(row, wanted, ("gather", dtype))
        got = empty(1003, dtype=dtype)
        dist.scatter(got, [there(mine + q) for q in range(SIZE)] if RANK == 0 else None, 0)
        same(got, rows[0] + RANK, ("scatter", dtype))
        dist.reduce_scatter(got, [there(mine + q) for q in range(SIZE)])
        same(got, sum((row + RANK for row in rows[1:]), rows[0] + RANK), ("reduce_scatter", dtype))


def test_what_has_to_be_packed():
    mine = torch.arange(24.0).reshape(6, 4) + RANK
    rows = everybodys(mine)
    got = there(mine).t()
    dist.all_reduce(got)
    same(got.contiguous(), sum(rows[1:], rows[0]).t().contiguous(), "strided all_reduce")
    lists = [empty(q + 1) for q in range(SIZE)]
    dist.all_gather(lists, there(torch.full((RANK + 1,), float(RANK))))
    for q, row in enumerate(lists):
        same(row, torch.full((q + 1,), float(q)), "uneven all_gather")
    sent = [there(torch.full((q + RANK,), float(RANK))) for q in range(SIZE)]
    lists = [empty(q + RANK) for q in range(SIZE)]
    dist.all_to_all(lists, sent)
    for q, row in enumerate(lists):
        same(row, torch.full((q + RANK,), float(q)), "all_to_all")
    bits = torch.tensor([1, 2, 4 << RANK], dtype=torch.int16)  # which Tutti can't add up: gathered, folded by torch
    rows = everybodys(bits)
    got = there(bits)
    dist.all_reduce(got, dist.ReduceOp.BOR)
    wanted = rows[0]
    for row in rows[1:]:
        wanted = wanted | row
    same(got, wanted, "bits")
    nothing = empty(0)
    dist.all_reduce(nothing)


def test_messages():
    if SIZE == 1:
        return
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    mine, got = there(torch.full((1000,), float(RANK))), empty(1000)
    for sends in (RANK % 2 == 0, RANK % 2 != 0):
        dist.send(mine, right) if sends else dist.recv(got, left)
    same(got, torch.full((1000,), float(left)), "send and recv")
    strided = empty(1000, 2)[:, 1]
    for sends in (RANK % 2 == 0, RANK % 2 != 0):
        dist.send(strided.copy_(mine), left) if sends else dist.recv(got, right)
    same(got, torch.full((1000,), float(right)), "send of a strided one")
    refused(lambda: dist.recv(got), "named")
    if int(torch.__version__.split(".")[0]) < 2:
        return
    large = there(torch.full((300000,), float(RANK))), empty(300000)  # all send first
    ops = [dist.P2POp(dist.isend, large[0], right), dist.P2POp(dist.irecv, large[1], left)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(large[1], torch.full((300000,), float(left)), "batch_isend_irecv")


def test_coalescing():
    """The work of what was coalesced waits for all of it, also for collectives on devices."""
    group = dist.distributed_c10d._get_default_group()
    device = torch.device(f"{KIND}:{HERE}")
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 1):
        return
    for _ in range(3):
        tensor, other, gate = empty(1000), empty(9), gpus.hold(HERE)
        gpus.fill(tensor, RANK + 1)
        gpus.fill(other, RANK)
        group._start_coalescing(device)
        dist.all_reduce(tensor, async_op=True)
        dist.broadcast(other, SIZE - 1, async_op=True)
        work = group._end_coalescing(device)
        assert not work.is_completed()
        gpus.open(gate)
        before = gpus.set_stream(HERE, gpus.new_stream(HERE))  # which waits for nothing but the work
        work.wait()
        got, last = torch.empty_like(tensor).copy_(tensor), torch.empty_like(other).copy_(other)
        same(got, torch.full((1000,), float(TOTAL)), "all_reduce of a group")
        same(last, torch.full((9,), float(SIZE - 1)), "broadcast of a group")
        gpus.synchronize(HERE)
        gpus.set_stream(HERE, before)
        assert work.is_completed()


def test_futures_and_time_outs():
    tensor = there(torch.ones(7))
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2).wait()
    same(doubled, torch.full((7,), 2.0 * SIZE), "then")
    if SIZE == 1:
        return
    if RANK == 0:
        late = dist.all_reduce(there(torch.ones(2)), async_op=True)
        refused(lambda: late.wait(datetime.timedelta(milliseconds=20)), "20 ms")
        dist.barrier(group=GLOO)
        assert late.wait(datetime.timedelta(seconds=50)) and late.is_completed()
    else:
        dist.barrier(group=GLOO)
        dist.all_reduce(there(torch.ones(2)))


def test_another_device():
    index = (HERE + 1) % gpus.devices()
    tensor = there(torch.full((3,), float(RANK)), index)
    dist.all_reduce(tensor)
    same(tensor, torch.full((3,), float(TOTAL - SIZE)), "the other device")
    refused(lambda: dist.all_gather([empty(3) for _ in range(SIZE)], tensor), "another one on")


def test_groups():
    group = dist.new_group(backend=BACKEND)
    tensor = there(torch.full((5,), RANK + 1.0))
    dist.all_reduce(tensor, group=group)
    same(tensor, torch.full((5,), float(TOTAL)), "a group")
    work = dist.all_reduce(tensor, group=group, async_op=True)
    dist.destroy_process_group(group)
    del group  # the last of it: it waits for its operations
    assert work.is_completed()
    same(tensor, torch.full((5,), float(TOTAL * SIZE)), "a group that is no more")
    on_cpu = torch.ones(3)
    dist.all_reduce(on_cpu)
    assert on_cpu.eq(SIZE).all()


def losses_of(device):
    """Of a small network under unmodified DDP."""
    torch.manual_seed(7)
    layers = torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3)
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device), bucket_cap_mb=0.002)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    data, losses = torch.Generator().manual_seed(1), []
    for _ in range(8):
        x = torch.randn(24, 20, generator=data)
        mine = x[RANK::SIZE]
        loss = ((model(mine.to(device)) - mine[:, :3].to(device)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_ddp():
    if torch.backends.cuda.is_built():
        print("skipped: DDP: autograd of a torch with CUDA wants no other devices")
        return
    on_cpus, on_devices = losses_of("cpu"), losses_of(f"{KIND}:{HERE}")
    assert on_cpus[-1] < on_cpus[0] / 2, on_cpus
    if SIZE < 3:  # a sum of two has no order
        assert on_cpus == on_devices, (on_cpus, on_devices)
    for mine, other in zip(on_cpus, on_devices):
        assert abs(mine - other) < 1e-5, (on_cpus, on_devices)


def until_refused(call, *words):
    """What befalls an operation is told by a later call, or by wait()."""
    for _ in range(500):
        try:
            call()
        except RuntimeError as error:
            assert all(word in str(error) for word in words), (words, str(error))
            return
        time.sleep(0.02)
    raise AssertionError(f"not refused: {words}")


def test_zzz_errors():
    """The last one: the group is of no use afterwards."""
    if SIZE == 1:
        return
    if RANK == SIZE - 1:
        os._exit(0)
    until_refused(lambda: dist.all_reduce(there(torch.ones(4)), async_op=True).wait(datetime.timedelta(seconds=30)),
                  "tutti: all_reduce", f"rank {SIZE - 1}")


for name, test in sorted(globals().items()):
    if name.startswith("test_"):
        if name == "test_zzz_errors":
            dist.barrier(group=GLOO)
            print(f"rank {RANK} ok", flush=True)
        test()
os._exit(0)  # a group whose rank has died is not destroyed
