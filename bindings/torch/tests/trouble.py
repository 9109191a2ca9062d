"""trouble.py KIND: a rank of a job in which something goes wrong. What the others see is printed, and checked by
torch_test.py."""
import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import tutti_torch  # noqa: F401  registers the backend

KIND = sys.argv[1]
dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=6 if KIND in ("late", "stopped") else 60))
RANK, SIZE = dist.get_rank(), dist.get_world_size()


def says(call, in_child=False):
    if in_child:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        says(call)
        sys.exit()
    started = time.monotonic()
    try:
        call()
    except RuntimeError as error:
        print(f"{type(error).__name__} after {time.monotonic() - started:.1f} s: {error}", flush=True)
    else:
        print("no error", flush=True)


dist.all_reduce(torch.ones(4))
if KIND == "death":
    if RANK == SIZE - 1:
        time.sleep(0.3)
        os._exit(9)
    works = [dist.all_reduce(torch.ones(100000), async_op=True) for _ in range(2)]
    says(works[0].wait)
    assert works[0].is_completed() and not works[0].is_success()
    says(works[1].get_future().wait)
    says(lambda: dist.all_reduce(torch.ones(1)))
elif KIND == "pair":  # the peer of a receive dies
    if RANK == SIZE - 1:
        dist.send(torch.ones(1), 0)
        time.sleep(0.3)
        os._exit(9)
    if RANK == 0:
        tensor = torch.empty(1)
        dist.recv(tensor, SIZE - 1)
        says(lambda: dist.recv(tensor, SIZE - 1))
elif KIND == "stopped":  # the peer of a receive stops in the middle of its message
    message = torch.ones(16 << 20)
    if RANK:
        dist.send(torch.tensor([os.getpid()]), 0)
        says(lambda: dist.send(message, 0))
    else:
        sender = torch.empty(1, dtype=torch.int64)
        dist.recv(sender, 1)
        time.sleep(1)  # the message has begun, and the rest of it waits for the receive
        os.kill(int(sender), signal.SIGSTOP)
        says(lambda: dist.recv(message, 1))
        says(lambda: dist.recv(message, 1))
        os.kill(int(sender), signal.SIGCONT)
elif KIND == "late":  # a rank that does not come
    if RANK == SIZE - 1:
        time.sleep(9)
    else:
        says(lambda: dist.all_reduce(torch.ones(4)))
elif KIND == "differ":
    if hasattr(dist.AllreduceOptions(), "asyncOp"):  # torch 2.8: it has ended when it is returned, in whatever way
        options = dist.AllreduceOptions()
        options.asyncOp = False
        work = dist.group.WORLD.allreduce([torch.ones(4 + RANK)], options)
        assert work.is_completed() and not work.is_success()
        says(work.wait)
        says(work.get_future().wait)
    says(lambda: dist.all_reduce(torch.ones(4 + RANK)))
elif KIND == "fork":  # a child has no part in its parent's groups, and harms none
    dist.all_reduce(torch.ones(4), async_op=True).wait()
    if RANK == 0:
        dist.send(torch.ones(1), 1)
    else:
        dist.recv(torch.ones(1), 0)
    peer = 1 - RANK
    for call in (lambda: dist.all_reduce(torch.ones(4)), lambda: dist.all_reduce(torch.ones(4), async_op=True).wait(),
                 dist.barrier, lambda: dist.send(torch.ones(1), peer), lambda: dist.recv(torch.ones(1), peer)):
        says(call, in_child=True)
    for call in (dist.destroy_process_group, lambda: None):  # and one that ends without it
        says(call, in_child=True)
    dist.all_reduce(torch.ones(4))
    print("the parent goes on", flush=True)
elif KIND == "quiet":  # no destroy_process_group, rank 0 ends first
    if RANK:
        time.sleep(0.3)
    print("ends", flush=True)
