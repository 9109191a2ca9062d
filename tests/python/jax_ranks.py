"""jax_ranks.py CASE: collectives inside of what JAX compiles. Run by frameworks_test.py, on the ranks of a launcher."""
import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import tutti
import tutti.jax as tj

from trouble import raises

jax.config.update("jax_enable_x64", True)


def of_rank(comm, rank, shape, dtype="float64"):
    """The array that a rank has: each knows all ranks'."""
    return np.random.default_rng(rank).integers(1, 5, (comm.size, *shape) if shape else ()).astype(dtype)


def results(comm):
    """Each collective and type, eager and compiled, beside NumPy."""
    for dtype in ("int8", "uint32", "float16", "bfloat16", "float32", "float64", "bool", "int16", "complex64"):
        ranks = [of_rank(comm, r, (3,), jnp.dtype(dtype)) for r in range(comm.size)]
        x = jnp.asarray(ranks[comm.rank])
        expected = {tj.all_gather: np.stack(ranks), tj.broadcast: ranks[comm.size - 1],
                    tj.all_to_all: np.stack([other[comm.rank] for other in ranks])}
        if dtype not in ("bool", "int16", "complex64"):
            total = sum(ranks[1:], ranks[0])
            expected |= {tj.all_reduce: total, tj.reduce_scatter: total[comm.rank],
                         functools.partial(tj.all_reduce, op="max"): functools.reduce(np.maximum, ranks)}
        else:
            with raises(TypeError, "which Tutti does not add up"):
                tj.all_reduce(x, comm)
        for call, result in expected.items():
            call = functools.partial(call, comm=comm, **({"root": comm.size - 1} if call is tj.broadcast else {}))
            for way in (call, jax.jit(call)):
                got = way(x)
                assert got.dtype == x.dtype and (np.asarray(got) == result).all(), (call, dtype, got, result)
    assert tj.all_reduce(1.5, comm) == 1.5 * comm.size and tj.all_gather(jnp.ones((2, 0)), comm).size == 0
    mapped = jax.vmap(lambda x: tj.all_reduce(x, comm, "avg"), in_axes=1, out_axes=1)(jnp.ones((3, 4)) * comm.rank)
    assert (mapped == np.ones((3, 4)) * (comm.size - 1) / 2).all()
    transposed = jax.jit(lambda x: tj.all_gather(x.T, comm))(jnp.arange(6.0).reshape(2, 3))
    assert (transposed == np.arange(6.0).reshape(2, 3).T).all()


def gradients(comm):
    """Of the sum of all ranks' results, beside JAX's own of the same with all ranks' arrays in one process."""
    n, rank = comm.size, comm.rank
    alone = {"all_reduce": lambda xs: [sum(xs)] * n, "all_gather": lambda xs: [jnp.stack(xs)] * n,
             "reduce_scatter": lambda xs: [sum(xs)[r] for r in range(n)], "broadcast": lambda xs: [xs[0]] * n,
             "all_to_all": lambda xs: [jnp.stack([x[r] for x in xs]) for r in range(n)],
             "mean": lambda xs: [sum(xs) / n] * n, "scattered_mean": lambda xs: [sum(xs)[r] / n for r in range(n)]}
    called = {"mean": functools.partial(tj.all_reduce, op="avg"),
              "scattered_mean": functools.partial(tj.reduce_scatter, op="avg")}
    xs = [jnp.asarray(of_rank(comm, r, (3,))) for r in range(n)]

    def worth(r, y):  # to rank r
        return jnp.sum(y ** 2 * jnp.arange(1.0, y.size + 1).reshape(y.shape)) * (r + 1)
    for name, together in alone.items():
        expected = jax.grad(lambda xs: sum(worth(r, y) for r, y in enumerate(together(xs))))(xs)[rank]
        call = called.get(name) or getattr(tj, name)
        mine = jax.grad(lambda x: worth(rank, call(x, comm)))
        for way in (mine, jax.jit(mine), jax.grad(jax.checkpoint(lambda x: worth(rank, call(x, comm))))):
            np.testing.assert_allclose(way(xs[rank]), expected, err_msg=name)
    with raises(NotImplementedError, "op='max' has no gradient"):
        jax.grad(lambda x: tj.all_reduce(x, comm, "max").sum())(xs[0])


def order(comm):
    """Calls that do not depend on each other are in the order of the program, also if one of them has what it needs
    later on one rank: check=True compares all ranks' calls."""
    with comm.split(0, check=True) as checked:
        def busy(x, turns):
            return jax.lax.fori_loop(0, turns, lambda i, y: jnp.tanh(y @ y), x)

        @jax.jit
        def program(x, turns):
            late = busy(x, turns)
            return [tj.all_reduce(late[0, :k] if k % 3 == comm.rank else jnp.ones(k), checked) for k in range(1, 25)]
        for turns in (0, 300, 3):
            for k, total in enumerate(program(jnp.ones((32, 32)) / 32, turns), 1):
                assert total.shape == (k,)

        def turn(x, _):
            return tj.all_reduce(x, checked, "avg") + 1, tj.all_gather(x[0], checked)
        last, seen = jax.jit(lambda x: jax.lax.scan(turn, x, None, length=5))(jnp.ones(2) * comm.rank)
        mean = (comm.size - 1) / 2
        assert (last == mean + 5).all() and (seen[1:] == (mean + np.arange(1, 5))[:, None]).all(), (last, seen)
        assert jax.lax.while_loop(lambda x: x < 50, lambda x: tj.all_reduce(x, checked) + 1, 0.0) >= 50


def trouble(comm):
    x = jnp.ones(3)
    for call, kind, text in ((lambda: tj.all_reduce(x, 3), TypeError, "expected a tutti.Communicator"),
                             (lambda: tj.all_reduce(x, comm, "mean"), ValueError, "op is 'mean'; expected one of sum"),
                             (lambda: tj.broadcast(x, comm, comm.size), ValueError, "root is"),
                             (lambda: tj.all_to_all(jnp.ones((7, 2)), comm), ValueError, "first axis is not the"),
                             (lambda: jax.vmap(lambda x: tj.all_gather(x, comm))(jnp.ones((2, 2))),
                              NotImplementedError, "only all_reduce and broadcast are mapped")):
        with raises(kind, text):
            call()
    with comm.split(0) as other:
        reduced = jax.jit(lambda x: tj.all_reduce(x, other))
        assert reduced(x)[0] == comm.size
    with raises(jax.errors.JaxRuntimeError, "tutti.errors.InvalidUsage: the communicator was closed"):
        reduced(x).block_until_ready()
    del other
    with raises(jax.errors.JaxRuntimeError, "tutti.errors.InvalidUsage: "):
        reduced(x).block_until_ready()
    with raises(jax.errors.JaxRuntimeError, "outside of tutti.group"), tutti.group():
        tj.all_reduce(x, comm).block_until_ready()
    comm.barrier()  # none of it has done any harm
    assert tj.all_reduce(x, comm)[0] == comm.size
    with comm.split(0) as other:  # a barrier of comm might not have ended elsewhere when the abort is known there
        other.barrier()
    if comm.rank == comm.size - 1:
        comm.abort()
        return
    with raises(jax.errors.JaxRuntimeError, f"tutti.errors.RemoteError: .*rank {comm.size - 1}"):
        tj.all_reduce(x, comm).block_until_ready()
    assert comm.failed_rank == comm.size - 1
    comm.abort()


if __name__ == "__main__":
    with tutti.init(timeout=60) as ranks:
        globals()[sys.argv[1]](ranks)
        print(f"{sys.argv[1]}: rank {ranks.rank}", flush=True)
