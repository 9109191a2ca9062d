"""A counter that goes around: each rank adds its number and puts the sum into the memory of the next one, which waits
for the signal.

    tutti-run -n 4 python one_sided.py
"""
import tutti

with tutti.init() as comm:
    received = tutti.zeros(1, "int64")
    with comm.window(received) as window:
        if comm.rank > 0:
            comm.wait_signal(comm.rank - 1)
        total = received + comm.rank
        if comm.rank + 1 < comm.size:
            window.put(total, comm.rank + 1)
        comm.barrier()
    print(f"rank {comm.rank} of {comm.size}: the sum so far is {total[0]}")
