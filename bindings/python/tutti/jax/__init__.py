"""Collectives inside of what JAX compiles, on CPUs.

    import tutti.jax
    comm = tutti.init()

    @jax.jit
    def step(weights, x, y):
        return weights - 0.1 * tutti.jax.all_reduce(jax.grad(loss)(weights, x, y), comm, op="avg")

They run in the order in which the program has them, also in loops, under jit and one after another: so all ranks that
run the same functions make the same calls. Reverse-mode gradients are those of the sum of all ranks' results: ranks
that differentiate one function call the same collectives once more.

docs/python.md says what an error is, and how they go with calls on the communicator itself.
"""
from tutti.jax._collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter"]
