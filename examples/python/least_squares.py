"""Data-parallel training: each rank has its own part of the data, and all of them the same weights. A step averages the
ranks' gradients, layer by layer in the background, while the next layer's gradient is computed.

    tutti-run -n 4 python least_squares.py
"""
import numpy as np
import tutti

FEATURES, ROWS, STEPS = 8, 4096, 300

with tutti.init() as comm:
    truth = np.arange(1.0, FEATURES + 2)  # the weights and, last, the constant that made the data
    data = np.random.default_rng(1).normal(size=(ROWS, FEATURES))
    goal = data @ truth[:-1] + truth[-1]
    data, goal = data[comm.rank::comm.size], goal[comm.rank::comm.size]  # this rank's rows

    weights, constant = np.zeros(FEATURES), np.zeros(1)
    rows = comm.all_reduce(np.array([float(len(goal))]))[0]
    for step in range(STEPS):
        error = data @ weights + constant - goal
        first = comm.all_reduce(np.array([error.sum()]) / rows, async_=True)
        slope = comm.all_reduce(data.T @ error / rows, async_=True)
        constant -= 0.1 * first.wait()
        weights -= 0.1 * slope.wait()

    loss = comm.all_reduce(np.array([np.square(data @ weights + constant - goal).sum()]))[0] / rows
    if comm.rank == 0:
        print(f"{comm.size} ranks: loss {loss:.2e}, constant {constant[0]:.3f}, "
              f"weights {np.array2string(weights, precision=3)}")
