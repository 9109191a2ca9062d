"""trouble.py CASE: what goes wrong ends in a Python exception that says what to do. Run by python_test.py, on the ranks
of a launcher; the name of a case says how many."""
import array
import asyncio
import contextlib
import ctypes
import os
import re
import signal
import sys
import threading
import time
import traceback

import numpy as np
import tutti


@contextlib.contextmanager
def raises(kind, text):
    """What is in the block raises an exception of this kind, whose text has a match of `text`."""
    try:
        yield
    except kind as error:
        assert re.search(text, str(error)), f"expected {text!r}, got: {error}"
    else:
        raise AssertionError(f"nothing was raised; expected {kind.__name__}: {text}")


def wrong_arguments_1(comm):
    x = np.ones((4, 4), "float32")
    with raises(ValueError, "x: the array is not contiguous"):
        comm.all_reduce(x[:, 1])
    with raises(ValueError, "x: the array is not contiguous"):
        comm.all_reduce(np.asfortranarray(x))
    fixed = np.ones((4, 4), "float32")
    fixed.flags.writeable = False
    with raises(ValueError, r"out: the array is read-only.*: pass one .* numpy.array\("):
        comm.all_reduce(x, fixed)
    with raises(ValueError, "out: the array is read-only"):
        comm.recv(b"12345678", 0)
    with raises(ValueError, "out has 8 elements; expected 16"):
        comm.all_reduce(x, np.ones(8, "float32"))
    with raises(TypeError, "float32.*float64"):
        comm.all_reduce(x, np.ones((4, 4)))
    for dtype in ("bool", "int16", "complex64", ">f4"):
        with raises(TypeError, "none that Tutti adds up.*; convert them, as x.astype"):
            comm.all_reduce(np.ones(3, dtype))
    with raises(TypeError, "Python objects"):
        comm.all_gather(np.array([None, {}]))
    with raises(TypeError, r"x: pass a dense array of numbers \(for dates x\.view\(.*the memory of this one can't be"):
        comm.all_gather(np.array(["2020-01-01"], "M8[D]"))
    with raises(TypeError, r"x: list is no array.* numpy.asarray\("):
        comm.all_reduce([1, 2])
    with raises(TypeError, "(?s)all_gather.*NoneType"):
        comm.all_gather(None)
    with raises(TypeError, 'out: str is no array .*op="max"'):
        comm.all_reduce(x, "max")
    with raises(ValueError, 'op is one of "sum"'):
        comm.all_reduce(x, op="mean")
    with comm.split(0) as other:
        own = comm.pre_mul_sum(np.float32(1))
        with raises(ValueError, "of another communicator"):
            comm.all_reduce(x, op=other.pre_mul_sum(np.float32(2)))
        assert comm.all_reduce(x, op=own)[0, 0] == 1
    with raises(ValueError, "root is 1; expected a rank from 0 to 0"):
        comm.broadcast(x, 1)
    with raises(ValueError, "peer is -1"):
        comm.send(x, -1)
    with raises(ValueError, "its first axis is not the 1 ranks"):
        comm.reduce_scatter(x)
    with comm.window(np.zeros(2)) as window:
        with raises(tutti.InvalidArgument, "3 elements of 8 bytes from byte 0 on go beyond rank 0's 16 bytes"):
            window.get(np.zeros(3), 0)
        with raises(ValueError, "out: the array is read-only"):
            window.get(fixed, 0)
    with raises(tutti.InvalidUsage, "the window was closed"):
        window.get(np.zeros(1), 0)
    with raises(ValueError, "counts has 2 numbers"):
        comm.all_gatherv(x, [1, 1])
    with raises(ValueError, r"x has 16 elements; expected 3 \(counts"):
        comm.all_gatherv(x, [3])
    with raises(ValueError, "out has 16 elements, and its rows reach to element 20"):
        comm.all_gatherv(x, [16], np.empty(16, "float32"), displs=[4])
    for displs in ([-1], ["a"], 3):
        with raises(TypeError, "displacements: this (list|int) is not a list of whole numbers, each 0 or more"):
            comm.all_gatherv(x, [16], np.empty(16, "float32"), displs=displs)
    for call in (comm.all_gatherv, comm.gatherv, comm.scatterv, comm.reduce_scatterv):
        with raises(TypeError, "counts: this list is not a list of whole numbers"):
            call(x, [-16])
    with raises(ValueError, "counts: rank 0's row would end beyond all memory"):
        comm.all_gatherv(x, [16], np.empty(16, "float32"), displs=[2**64 - 16])
    with raises(ValueError, "stream= is for ranks on a GPU"):
        comm.all_reduce(x, stream=3)
    with raises(TypeError, "unknown option 'time_out'"):
        tutti.init(time_out=3)
    with raises(ValueError, "id has 3 bytes"):
        tutti.Communicator(1, b"abc", 0)
    with raises(TypeError, "unsafe=True"):
        comm.all_gather_object(1, unsafe=False)
    with raises(tutti.InvalidArgument, "color"):
        comm.split(-7)
    for options, kind, text in ((dict(timeout="3"), TypeError, "timeout: this str is not a number of seconds"),
                                (dict(init_timeout=-1), ValueError, "init_timeout is -1 seconds; expected more than 0"),
                                (dict(timeout=float("inf")), ValueError, "timeout is inf seconds; .* at most 2147483"),
                                (dict(reproducible=1), TypeError, "reproducible: this int is not True or False"),
                                (dict(channels=2.5), TypeError, "channels: this float is not a whole number"),
                                (dict(threads=1 << 40), TypeError, "threads: this int is not a whole number of 32"),
                                (dict(algorithm=3), TypeError, "algorithm= is a text")):
        for call in (tutti.init, lambda **options: comm.split(0, **options)):
            with raises(kind, text):
                call(**options)
    with raises(TypeError, "color: this str is not a whole number"):
        comm.split("red")
    with raises(TypeError, "devices: this int is not a list of devices' numbers"):
        tutti.init_all(1, 0)
    work = comm.all_reduce(x, async_=True)
    with raises(TypeError, "timeout: this str is not a number of seconds"):
        work.wait("3")
    for seconds in (-1, float("nan")):
        with raises(ValueError, "timeout is -?(1|nan); expected 0 or more"):
            work.wait(seconds)
    assert (work.wait(1e300) == x).all()
    with raises(ValueError, r"shape is \(2, -1\); expected"):
        tutti.zeros((2, -1))
    with raises(ValueError, "bytes, more than a process can have"):
        tutti.zeros((1 << 40, 1 << 40), "float64")
    with raises(TypeError, "dtype is object"):
        tutti.zeros(2, object)
    same = comm.all_reduce(x)  # none of it has done any harm
    assert (same == x).all()


def masked_1(comm):
    values = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])
    for call in (comm.all_reduce, comm.all_gather, lambda x: comm.all_reduce(np.ones(3), x), comm.window):
        with raises(TypeError, r"(x|out|memory|array): the array has a mask, which would be lost: pass .*\.filled\("):
            call(values)
    assert (comm.all_reduce(values.filled(0)) == [1, 0, 3]).all()
    fields = np.rec.array([(1, 2.0)], dtype=[("mask", "i4"), ("b", "f8")])
    assert (comm.all_gather(fields)[0] == fields).all()


def refused_ones_are_free_1(comm):
    """What is refused is held no longer."""
    memory = bytearray(8)
    with raises(ValueError, "not contiguous"):
        comm.all_reduce(memoryview(memory)[::2])
    words = array.array("h", [1, 2])
    with raises(TypeError, "none that Tutti adds up"):
        comm.all_reduce(words)
    memory.append(1)
    words.append(1)
    released = memoryview(memory)
    released.release()
    with raises(TypeError, "x: its memory can't be used: .*released"):
        comm.all_reduce(released)


def another_device_1(comm):
    class OnGpu:
        __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}

    class Strided:
        __cuda_array_interface__ = {**OnGpu.__cuda_array_interface__, "strides": (8,)}
    with raises(ValueError, "x: the array is on CUDA device 0, and this rank on the CPU"):
        comm.all_reduce(OnGpu())
    with raises(ValueError, "not contiguous"):
        comm.all_reduce(Strided())


class Managed(ctypes.Structure):
    """DLPack's DLManagedTensor."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


def device_of_no_kind_we_know_1(comm):
    class OnMetal:
        shape = (ctypes.c_int64 * 1)(4)
        tensor = Managed(4096, 8, 0, 1, 2, 32, 1, ctypes.addressof(shape))

        def __dlpack_device__(self):
            return 8, 0

        def __dlpack__(self, **_):
            new = ctypes.pythonapi.PyCapsule_New
            new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
            return new(ctypes.addressof(self.tensor), b"dltensor", None)
    for call in (comm.all_reduce, comm.all_gather, lambda x: comm.all_reduce(np.ones(4, "float32"), x)):
        with raises(ValueError, r"(x|out): the array is on a device of DLPack's type 8, .*: pass a copy .*\.cpu\(\)"):
            call(OnMetal())


def lazy_tensors_1(comm):
    """What torch's tensors say of themselves; python_test.py has no torch."""
    class Tensor:
        def __init__(self, **yes):
            self.values, self.yes = np.ones(3), yes
            self.requires_grad = "grad" in yes
            self.__dlpack_device__ = self.values.__dlpack_device__

        def is_conj(self):
            return "conj" in self.yes

        def is_neg(self):
            return "neg" in self.yes

        def __dlpack__(self, **how):
            return self.values.__dlpack__(**how)
    assert (np.asarray(comm.all_reduce(Tensor(), np.ones(3))) == 1).all()
    with raises(ValueError, r"x: the tensor requires a gradient: pass x.detach\(\)"):
        comm.all_reduce(Tensor(grad=True))
    for view in ("conj", "neg"):
        with raises(ValueError, rf"x: the tensor is a lazy view .*pass x.resolve_{view}\(\)"):
            comm.all_reduce(Tensor(**{view: True}))


def closed_1(comm):
    x = np.ones(3)
    work = comm.all_reduce(x, async_=True)
    comm.close()
    comm.close()
    comm.abort()
    assert comm.closed and work.done() and (work.wait() == x).all() and "closed" in repr(comm)
    for call in (lambda: comm.all_reduce(x), comm.barrier, comm.revoke, lambda: comm.split(0), lambda: comm.memory):
        with raises(tutti.InvalidUsage, "the communicator was closed"):
            call()
    with raises(ZeroDivisionError, ""), tutti.Communicator(1, tutti.unique_id(), 0) as other:
        raise ZeroDivisionError
    assert other.closed


def groups_1(comm):
    x = np.ones(3)
    with raises(ValueError, "async_=True inside of tutti.group"):
        with tutti.group():
            comm.all_reduce(x, async_=True)
    with raises(tutti.InvalidUsage, "outside of groups"):
        with tutti.group():
            comm.split(0)
    with raises(tutti.InvalidUsage, "has not begun"):
        tutti.group().__exit__(None, None, None)
    comm.barrier()


def in_a_child(body):
    """Calls body in a forked child, which has 30 s."""
    child = os.fork()
    if child == 0:
        try:
            body()
            os._exit(7)
        except BaseException:  # pylint: disable=broad-except
            traceback.print_exc()
        finally:
            os._exit(1)
    killed = threading.Timer(30, os.kill, [child, signal.SIGKILL])
    killed.start()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    killed.cancel()


def forked_1(comm):
    """A child has no part in what its parent has begun, and does it no harm."""
    ended = comm.all_reduce(np.ones(3), async_=True)
    ended.wait()
    one, other = tutti.init_all(2)
    pending = one.recv(np.empty(1), 1, async_=True)
    kept = {"window": comm.window(np.zeros(2)), "factor": comm.pre_mul_sum(np.full(1, 2.0))}

    def body():
        for call in (comm.barrier, lambda: comm.all_reduce(np.ones(3), async_=True), lambda: comm.split(0), comm.close,
                     lambda: kept["window"].put(np.ones(1), 0), lambda: comm.memory, comm.revoke,
                     lambda: comm.pre_mul_sum(np.ones(1))):
            with raises(tutti.InvalidUsage, "before this process was forked: make a new one"):
                call()
        for call in (pending.wait, pending.done, lambda: pending.wait(0), lambda: asyncio.run(awaits(pending))):
            with raises(tutti.InvalidUsage, "begun before this process was forked, and goes on in the parent"):
                call()
        assert ended.done() and (ended.wait() == 1).all() and comm.failed_rank is None
        kept.clear()
        comm.abort()
        assert not comm.closed
    in_a_child(body)
    comm.barrier()
    assert (comm.all_reduce(np.ones(2), op=kept["factor"]) == 2).all()
    with kept["window"] as window:
        window.put(np.full(1, 5.0), 0, offset=8)
        assert window.get(np.empty(2), 0).tolist() == [0, 5]
    other.send(np.full(1, 3.0), 0)
    assert pending.wait()[0] == 3


async def awaits(work):
    return await work


def different_calls_2(comm):
    with raises(tutti.InvalidUsage, "rank [01].*rank [01]") as _:
        comm.all_reduce(np.ones(3 + comm.rank))
    with raises(tutti.InvalidUsage, ""):
        comm.barrier()
    comm.abort()


def late_2(comm):
    with tutti.Communicator(2, comm.broadcast_object(tutti.unique_id(), unsafe=True), comm.rank, timeout=0.2) as short:
        if comm.rank == 0:
            with raises(tutti.Timeout, "rank 1"):
                short.barrier()
            with raises(TimeoutError, "rank 1"):
                short.barrier()
            assert short.failed_rank == 1
        comm.barrier()
        short.abort()


def dead_3(comm):
    """The others learn who it was, and go on without."""
    if comm.rank == 1:
        comm.barrier()  # the others have joined; whether their barriers end well, nobody knows
        os.kill(os.getpid(), signal.SIGKILL)
    for call in (comm.barrier, lambda: comm.all_reduce(np.ones(3)),
                 lambda: comm.all_reduce(np.ones(3), async_=True).wait(), lambda: comm.split(0), comm.shrink):
        try:
            while True:  # what the dead rank had sent may let some calls through
                call()
        except tutti.RemoteError as error:
            assert error.failed_rank == 1 and "rank 1" in str(error) and error.code == 6, error
    assert comm.failed_rank == 1 and comm.failed_ranks == (1,)
    with comm.shrink(abort=True) as fewer:
        assert fewer.all_reduce(np.ones(1))[0] == 2
    comm.abort()


def grown_2(comm):
    """A thread of rank 0 joins as rank 2."""
    got = comm.broadcast_object(comm.grow_id() if comm.rank == 0 else None, unsafe=True)

    def newcomer():
        with tutti.join(3, got, 2) as third:
            assert third.all_gather(np.array([third.rank])).reshape(-1).tolist() == [0, 1, 2]
    thread = threading.Thread(target=newcomer if comm.rank == 0 else lambda: None)
    thread.start()
    with comm.grow(3) as larger:
        assert larger.all_gather(np.array([larger.rank])).reshape(-1).tolist() == [0, 1, 2]
    thread.join()


def aborted_by_another_thread_2(comm):
    if comm.rank == 0:
        comm.recv(np.empty(1), 1)  # it has joined
        inside = threading.Event()

        def abort():
            inside.wait()
            comm.abort()
        thread = threading.Thread(target=abort)
        thread.start()
        with raises((tutti.RemoteError, tutti.InvalidUsage, tutti.InvalidArgument), ""):  # or before it is called
            inside.set()
            comm.barrier()
        thread.join()
        assert comm.closed
    else:
        with raises(tutti.RemoteError, "rank 0"):
            comm.send(np.empty(1), 0)
            comm.recv(np.empty(1), 0)


def aborted_behind_what_was_begun_1(_):
    """Another thread aborts it while a call waits for operations that were begun before."""
    for call, refused in ((tutti.Communicator.barrier, True), (lambda comm: comm.split(0), True),
                          (tutti.Communicator.close, False)):
        one, other = tutti.init_all(2)
        one.recv(np.empty(1), 1, async_=True)  # whose handle nobody has
        threading.Timer(0.1, one.abort).start()
        with raises(tutti.InvalidUsage, "closed or aborted") if refused else contextlib.nullcontext():
            call(one)
        assert one.closed
        other.abort()


@contextlib.contextmanager
def beside_a_call(comm):
    """On rank 0 another thread is in a call of `comm`, and has been met there; on rank 1, which the call waits for, the
    block is empty."""
    with comm.split(0) as other:
        if comm.rank == 0:
            thread = threading.Thread(target=lambda: comm.recv(np.empty(1), 1))
            thread.start()
            with raises(tutti.InvalidUsage, "one thread at a time"):
                while thread.is_alive():
                    assert comm.memory > 0
            yield
            other.send(np.ones(1), 1)
            thread.join()
        else:
            yield
            other.recv(np.empty(1), 0)
            comm.send(np.ones(1), 0)


def used_by_two_threads_2(comm):
    with beside_a_call(comm):
        pass
    comm.barrier()


def window_beside_a_call_2(comm):
    """A window that can't be closed, because another thread is in a call, is there until it is closed later."""
    window = comm.window(tutti.zeros(1, "float64"))
    with beside_a_call(comm):
        if comm.rank == 0:
            with raises(tutti.InvalidUsage, "one thread at a time"):
                window.close()
    if comm.rank == 0:
        window.put(np.ones(1), 1)
    comm.barrier()
    window.close()
    with raises(tutti.InvalidUsage, "the window was closed"):
        window.put(np.ones(1), 1)


def main(cases):
    name = sys.argv[1]
    comm = tutti.init(timeout=60)
    assert comm.size == int(name[-1])
    began = time.monotonic()
    cases[name](comm)
    if not comm.closed:
        comm.close()
    print(f"{name}: rank {comm.rank}: {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main(globals())
