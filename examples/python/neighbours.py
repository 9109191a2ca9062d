"""Heat in a ring of cells that the ranks share: each step exchanges the outermost cells with both neighbours, by a
group of sends and receives. The heat of all cells stays what it was.

    tutti-run -n 4 python neighbours.py
"""
import numpy as np
import tutti

CELLS, STEPS = 1000, 200  # of each rank

with tutti.init() as comm:
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    cells = np.zeros(CELLS + 2)  # with one cell of each neighbour
    if comm.rank == 0:
        cells[1] = 1000.0
    for _ in range(STEPS):
        with tutti.group():  # all four wait for each other
            comm.send(cells[1:2], left)
            comm.send(cells[-2:-1], right)
            comm.recv(cells[-1:], right)
            comm.recv(cells[:1], left)
        cells[1:-1] += 0.25 * (cells[:-2] - 2 * cells[1:-1] + cells[2:])
    heat = comm.all_reduce(np.array([cells[1:-1].sum()]))
    print(f"rank {comm.rank} of {comm.size}: {np.count_nonzero(cells[1:-1])} warm cells, "
          f"the heat of all is {heat[0]:.3f}")
