"""What a call from Python adds to the C call: rounds that take turns, in one process, with the same library.

    python bench/python_call.py                       # one rank
    tutti-run -n 2 python bench/python_call.py

Prints microseconds, of the quickest round and of the median one: tuttiAllReduce of 8 floats from a loop in C (compiled
here, by cc), the call from Python into an array that is there, and the one that makes an array; both also with tensors,
where there is torch. Rounds are short, so that some are undisturbed where other programs run.
"""
import ctypes
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
import tutti

try:
    import torch
except ImportError:
    torch = None

ROUNDS, CALLS = 301, 1000
LOOP = """
#include <tutti/tutti.h>
int loop(tuttiComm_t comm, const float* x, float* out, int calls) {
    for (int i = 0; i < calls; ++i)
        if (tuttiAllReduce(x, out, 8, tuttiFloat32, tuttiSum, comm, NULL) != tuttiSuccess) return 1;
    return 0;
}
"""


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def in_c(comm, x, out):
    """The loop in C, on a communicator of its own."""
    package = pathlib.Path(tutti.__file__).parent
    library = ctypes.CDLL(str(package / "lib/libtutti.so.0"))
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder) / "loop.so"
        (made.parent / "loop.c").write_text(LOOP)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", made.parent / "loop.c", "-o", made, f"-I{package}/include",
                        package / "lib/libtutti.so.0"], check=True)
        loop = ctypes.CDLL(str(made)).loop
    unique = comm.broadcast_object(tutti.unique_id() if comm.rank == 0 else None, unsafe=True)
    handle = ctypes.c_void_p()
    if library.tuttiCommInitRank(ctypes.byref(handle), comm.size, UniqueId.from_buffer_copy(unique), comm.rank) != 0:
        raise SystemExit("the communicator of the loop in C could not be made")
    places = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data)
    return lambda: loop(handle, *places, CALLS)


def main():
    with tutti.init() as comm:
        x, out = np.ones(8, "float32"), np.empty(8, "float32")

        def into(x, out):
            for _ in range(CALLS):
                comm.all_reduce(x, out)

        def making(x):
            for _ in range(CALLS):
                comm.all_reduce(x)
        ways = {"in C": in_c(comm, x, out), "all_reduce(x, out)": lambda: into(x, out),
                "all_reduce(x)": lambda: making(x)}
        if torch is not None:
            tensor = torch.ones(8)
            ways |= {"torch's, (x, out)": lambda: into(tensor, torch.empty(8)), "torch's, (x)": lambda: making(tensor)}
        times = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                comm.barrier()
                began = time.perf_counter()
                way()
                times[name].append((time.perf_counter() - began) / CALLS * 1e6)
            comm.barrier()
        if comm.rank == 0:
            for name, took in times.items():
                both = {"least": min, "median": statistics.median}
                print(f"{name:20}" + ", ".join(f"  {what} {of(took):6.3f} ({of(took) - of(times['in C']):+.3f} to C's)"
                                               for what, of in both.items()))


main()
