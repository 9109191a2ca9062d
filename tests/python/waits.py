"""waits.py CASE: waits that Ctrl-C ends, and asyncio. Run by python_test.py, as trouble.py."""
import asyncio
import collections
import ctypes
import functools
import gc
import os
import signal
import threading
import weakref

import numpy as np
import tutti
from trouble import in_a_child, main, raises


def interrupt_soon(seconds=0.1):
    threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGINT]).start()


def interrupted_2(comm):
    """Ctrl-C ends the main thread's wait, and the other ranks learn whose it was."""
    comm.barrier()
    if comm.rank == 1:
        with raises(tutti.RemoteError, "rank 0"):
            comm.recv(np.empty(3), 0)
        with comm.shrink([0], abort=True) as alone:
            assert alone.size == 1
        comm.abort()
        return
    interrupt_soon()
    with raises(KeyboardInterrupt, ""):
        comm.recv(np.empty(3), 1)
    assert comm.revoked and "revoked" in repr(comm) and not comm.closed
    with raises(tutti.InvalidUsage, "revoked"):
        comm.barrier()
    comm.abort()


def interrupted_in_a_child_1(comm):
    """A forked child's waits end, too; also where its main thread was another one of the parent's, which waited."""
    def body():
        one, _ = tutti.init_all(2)
        interrupt_soon()
        with raises(KeyboardInterrupt, ""):
            one.recv(np.empty(1), 1)
        assert one.revoked
    in_a_child(body)
    in_a_child(lambda: in_a_child(body))
    one, other = tutti.init_all(2)

    def fork():
        in_a_child(body)
        other.send(np.ones(1), 0)
    thread = threading.Timer(0.1, fork)
    thread.start()
    one.recv(np.empty(1), 1)
    thread.join()
    assert not one.revoked
    comm.barrier()


def interrupted_otherwise_2(comm):
    """A group, a handle, the making of a communicator, and a handler of the program's own."""
    comm.barrier()
    if comm.rank == 1:
        with raises(tutti.RemoteError, "rank 0"):
            comm.recv(np.empty(3), 0)
        return
    others = tutti.init_all(2)
    work = others[0].all_reduce(np.ones(1), async_=True)

    def in_group():
        with tutti.group():
            comm.recv(np.empty(3), 1)
    for wait in (work.wait, lambda: tutti.Communicator(2, tutti.unique_id(), 0), in_group):
        interrupt_soon()
        with raises(KeyboardInterrupt, ""):
            wait()
    assert comm.revoked and not others[0].revoked
    others[1].all_reduce(np.ones(1))
    assert work.wait()[0] == 2
    seen = []
    signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    pending = others[0].all_reduce(np.ones(1), async_=True)
    threading.Timer(0.1, lambda: (os.kill(os.getpid(), signal.SIGINT), others[1].all_reduce(np.ones(1)))).start()
    assert pending.wait()[0] == 2 and seen == [1]
    comm.abort()


def interrupted_before_a_group_ends_1(comm):
    """The signal is there when the end of the group begins: nothing is issued, and later calls are in no group."""
    group = tutti.group()
    group.__enter__()
    comm.all_reduce(np.ones(3))
    calls = [functools.partial(ctypes.CDLL(None).kill, os.getpid(), signal.SIGINT),
             functools.partial(group.__exit__, None, None, None)]
    with raises(KeyboardInterrupt, ""):
        collections.deque(map(functools.partial.__call__, calls), 0)  # no code of Python's in between
    out = np.zeros(3)
    assert comm.all_reduce(np.ones(3), out).tolist() == [1, 1, 1]
    with tutti.group():
        comm.all_reduce(np.full(3, 2.0), out)
    assert out.tolist() == [2, 2, 2]


def asyncio_errors_2(comm):
    async def wait():
        await comm.all_reduce(np.ones(3 + comm.rank), async_=True)
    with raises(tutti.InvalidUsage, "rank"):
        asyncio.run(wait())
    comm.abort()


def interrupted_in_asyncio_1(_):
    """A wait for a handle by await and by wait(), and one for a call. The operation of a handle goes on."""
    one, other = tutti.init_all(2)

    async def awaits():
        await one.recv(np.empty(1), 1, async_=True)

    async def waits():
        one.recv(np.empty(1), 1, async_=True).wait()

    async def calls():
        one.recv(np.empty(1), 1)
    for wait in (awaits, waits, calls):
        interrupt_soon(1)  # asyncio.run() takes the signal: it is ours again within a quarter of a second
        with raises(KeyboardInterrupt, ""):
            asyncio.run(wait())
        assert one.revoked == (wait is calls)
        if wait is not calls:
            other.send(np.ones(1), 0)
    other.abort()


def interrupted_after_asyncio_1(_):
    one, other = tutti.init_all(2)
    asyncio.run(asyncio.sleep(0))
    interrupt_soon(1)
    with raises(KeyboardInterrupt, ""):
        one.recv(np.empty(1), 1)
    other.abort()


def interrupted_close_2(comm):
    """It waits until the other rank has read a message. What was sent arrives all the same."""
    with comm.split(0) as other:
        if comm.rank == 0:
            comm.send(np.ones(1), 1)
            interrupt_soon()
            with raises(KeyboardInterrupt, ""):
                comm.close()
            assert comm.closed
        other.barrier()
        if comm.rank == 1:
            assert comm.recv(np.empty(1), 0)[0] == 1
        other.barrier()


def awaits_of_many_1(_):
    """More at once than asyncio has threads."""
    one, other = tutti.init_all(2)

    async def all_of_them():
        behind = [one.recv(np.empty(1), 1, async_=True)] + [one.barrier(async_=True) for _ in range(100)]

        async def wait(work):
            await work
        tasks = [asyncio.create_task(wait(work)) for work in behind]
        await asyncio.sleep(0.1)
        pair = tutti.init_all(2)
        await asyncio.gather(*(wait(comm.barrier(async_=True)) for comm in pair))
        assert not any(task.done() for task in tasks)
        works = [other.send(np.ones(1), 0, async_=True)] + [other.barrier(async_=True) for _ in range(100)]
        await asyncio.gather(*tasks, *map(wait, works))
    asyncio.run(asyncio.wait_for(all_of_them(), 50))


def hidden_waits_1(_):
    """The end of a window, and a question, wait for what was begun, with another rank of this process that needs the
    GIL."""
    one, other = tutti.init_all(2)
    memory = [tutti.zeros(1), tutti.zeros(1)]
    made = [None]
    thread = threading.Thread(target=lambda: made.append(other.window(memory[1])))
    thread.start()
    made[0] = one.window(memory[0])
    thread.join()
    work = one.recv(np.empty(1), 1, async_=True)
    threading.Timer(0.2, lambda: other.send(np.ones(1), 0)).start()
    made[0] = None
    work.wait()
    one.recv(np.empty(1), 1, async_=True)
    threading.Timer(0.2, lambda: other.send(np.ones(1), 0)).start()
    assert one.memory > 0
    made.clear()


class Kept(np.ndarray):
    """An array that can be watched."""


def awaits_keep_nothing_1(comm):
    """Neither those of operations that go on, nor of those that have ended before."""
    seen = []

    async def wait(ends_before):
        x = np.ones(3).view(Kept)
        seen.append(weakref.ref(x))
        work = comm.all_reduce(x, out=x, async_=True)
        while ends_before and not work.done():
            pass
        await work
    for ends_before in (True, False):
        asyncio.run(wait(ends_before))
    comm.barrier(async_=True).wait()
    comm.barrier(async_=True).wait()  # a job that has ended goes when another one begins
    gc.collect()
    assert [kept() is None for kept in seen] == [True, True]


def await_that_is_cancelled_1(_):
    one, other = tutti.init_all(2)

    async def gives_up():
        work = one.recv(np.empty(1), 1, async_=True)
        with raises(asyncio.TimeoutError, ""):
            await asyncio.wait_for(work, 0.1)
        other.send(np.full(1, 7.0), 0)
        assert (await work)[0] == 7 and (await work)[0] == 7  # one that has ended, too
    asyncio.run(gives_up())


if __name__ == "__main__":
    main(globals())
