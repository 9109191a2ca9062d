"""recovery.py KIND: a rank of a job that goes on without a rank that is lost, or with others, and what torch is told of
its operations. Ends with "rank r ok". torch 2.15."""
import datetime
import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

import tutti_torch  # noqa: F401  registers the backend

KIND = sys.argv[1]
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TIMEOUT = datetime.timedelta(seconds=60)


def begin(**more):
    dist.init_process_group("cpu:tutti", timeout=TIMEOUT, **more)


def sum_of(value, group=None):
    x = torch.tensor([float(value)])
    dist.all_reduce(x, group=group)
    return x.item()


def works(ranks):
    """Collectives and messages among so many ranks, of which each has the number that torch tells."""
    rank = dist.get_rank()
    assert dist.get_world_size() == ranks, dist.get_world_size()
    assert sum_of(rank) == sum(range(ranks))
    mine, other = torch.full((3,), float(rank)), torch.empty(3)
    if ranks > 1:
        sent = dist.isend(mine, (rank + 1) % ranks)
        dist.recv(other, (rank - 1) % ranks)
        sent.wait()
        assert other.tolist() == [float((rank - 1) % ranks)] * 3, other


def raises(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("no error")


def shrink():
    begin()
    works(SIZE)
    if RANK == 1:  # leaves by itself; nothing is asked of it
        dist.destroy_process_group()
        return
    dist.shrink_group([1])
    works(SIZE - 1)


def shrink_after_a_death():
    begin()
    works(SIZE)
    if RANK == SIZE - 1:  # once the others are through, too: a death ends what they are in
        sum_of(1)
        os._exit(9)
    said = raises(lambda: [sum_of(1) for _ in range(1000)])
    assert f"rank {SIZE - 1}" in said, said
    dist.shrink_group([SIZE - 1], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    works(SIZE - 1)
    dist.all_reduce(torch.ones(1 << 20))


def handles(store, turn, ranks):
    """Everybody's handle, in the order of `ranks`."""
    store.set(f"handle/{turn}/{RANK}", dist.distributed_c10d._get_reconfigure_handle())
    return [store.get(f"handle/{turn}/{rank}").decode() for rank in ranks]


def reconfigure():
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), SIZE, RANK == 0, timeout=TIMEOUT)
    dist.init_process_group("cpu:tutti", timeout=TIMEOUT, store=dist.PrefixStore("group", store), rank=RANK,
                            world_size=SIZE, enable_reconfigure=True)
    c10d = dist.distributed_c10d
    assert c10d._supports_reconfigure()
    assert "no members" in raises(lambda: sum_of(1))
    everybody = list(range(SIZE))
    c10d._reconfigure(uuid=1, handles=handles(store, 1, everybody)).wait()
    assert sum_of(RANK) == sum(everybody)
    # Without the last one, in the other order.
    names = handles(store, 2, everybody)
    if RANK < SIZE - 1:
        c10d._reconfigure(uuid=2, handles=list(reversed(names[:-1]))).wait()
        group = dist.group.WORLD._get_backend(torch.device("cpu"))
        assert (group.rank(), group.size()) == (SIZE - 2 - RANK, SIZE - 1), (group.rank(), group.size())
        x = torch.tensor([RANK])
        group.broadcast(x, 0).wait()
        assert x.item() == SIZE - 2, x
        assert "not among the handles" in raises(lambda: c10d._reconfigure(uuid=3, handles=names))
    # And with all of them again: a set has no order, the backend numbers them.
    c10d._reconfigure(uuid=4, handles=set(handles(store, 4, everybody))).wait()
    assert sum_of(1) == SIZE
    if RANK == SIZE - 1:
        sum_of(1)
        os._exit(0)
    raises(lambda: [sum_of(1) for _ in range(1000)])
    c10d._reconfigure(uuid=5, handles=handles(store, 5, everybody[:-1])).wait()
    assert sum_of(1) == SIZE - 1
    store.add("done", 1)
    while RANK == 0 and store.add("done", 0) < SIZE - 1:  # the store is this process'
        time.sleep(0.01)


def recorder():
    begin()
    sum_of(1)
    dist.isend(torch.ones(2), (RANK + 1) % SIZE)
    dist.recv(torch.empty(2), (RANK - 1) % SIZE)
    waits = dist.all_reduce(torch.ones(4), async_op=True) if RANK == 0 else None
    trace = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(backend="tutti"))["entries"]
    states = [(entry["profiling_name"], entry["state"]) for entry in trace]
    assert len(states) >= 3 and all(state == "completed" for _, state in states[:3]), states
    if RANK == 0:  # nobody else has come yet
        assert states[-1][1] != "completed", states
    dist.monitored_barrier()
    if RANK != 0:
        dist.all_reduce(torch.ones(4))
    else:
        waits.wait()
    called, raised = [], threading.Event()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend.register_abort_hook(7, lambda: called.append(raised.wait(60)))
    raises(lambda: dist.all_reduce(torch.ones(1 + RANK)))
    raised.set()
    backend.unregister_abort_hook(7)  # waits for it
    assert called == [True], f"the abort hook ran {len(called)} times, and was in the way of the error: {called}"


def hooks_of_python():
    """A thread registers them and takes them back while operations fail, after which the group goes on."""
    begin()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend.register_abort_hook(1, lambda: None)
    ended = threading.Event()

    def register():
        while not ended.wait(0.001):
            backend.register_abort_hook(2, lambda: None)
            backend.unregister_abort_hook(2)
    thread = threading.Thread(target=register, daemon=True)
    thread.start()
    for _ in range(1000):
        raises(lambda: dist.all_reduce(torch.ones(4).to(torch.float8_e4m3fnuz), op=dist.ReduceOp.MAX))
    ended.set()
    thread.join()
    backend.unregister_abort_hook(1)


def profiler():
    begin()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        sum_of(1)
        dist.barrier()
    path = f"trace.{RANK}.json"
    profile.export_chrome_trace(path)
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)["traceEvents"]
    os.remove(path)
    events = [event for event in trace if event["name"] == "record_param_comms"]
    named = {event["args"].get("Collective name") for event in events}
    assert "allreduce" in named, (named, events[:2])
    ended = {event["name"] for event in trace if "dur" in event}
    assert {"tutti:all_reduce", "tutti:barrier"} <= ended, ended


def memory():
    begin()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    x = backend.allocate_tensor(1000, dtype=torch.float32, device=torch.device("cpu"))
    assert x.shape == (1000,) and x.dtype == torch.float32
    x.fill_(RANK + 1)
    dist.all_reduce(x)
    assert x.tolist() == [SIZE * (SIZE + 1) / 2] * 1000
    assert backend.allocate_tensor(0, dtype=torch.int64, device=torch.device("cpu")).numel() == 0
    y = x[10:20]
    del x
    assert y.sum().item() == 10 * SIZE * (SIZE + 1) / 2  # a view keeps the memory
    from torch.distributed.fsdp import fully_shard
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 8)
    fully_shard(model)
    model.set_allocate_memory_from_process_group_for_comm(True)
    model(torch.ones(2, 8)).sum().backward()


globals()[KIND]()
print(f"rank {RANK} ok", flush=True)
if dist.is_initialized():
    dist.destroy_process_group()
