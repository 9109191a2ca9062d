"""Every rank contributes its number plus one, and prints the sum.

    tutti-run -n 4 python hello.py
"""
import numpy as np
import tutti

with tutti.init() as comm:
    mine = np.array([comm.rank + 1], "float32")
    total = comm.all_reduce(mine)
    print(f"rank {comm.rank} of {comm.size}: the sum is {total[0]:g}")
