"""Each rank has an array on a GPU of its own, and gets the sum of all. The call is enqueued on CuPy's current stream,
behind what made the array and before what reads the sum.

    tutti-run -n 2 python cupy_sum.py      # CuPy, and a GPU for each rank
"""
import os

import cupy
import tutti

gpu = int(os.environ.get("LOCAL_RANK", "0"))
cupy.cuda.Device(gpu).use()
with tutti.init(device=gpu) as comm:
    mine = cupy.full(1 << 20, comm.rank + 1, "float32")
    total = comm.all_reduce(mine, stream=cupy.cuda.get_current_stream())
    least, most = float(total.min()), float(total.max())
    print(f"rank {comm.rank} of {comm.size}: the sum is {least:g} to {most:g} in {total.size} places")
