"""The collectives as functions of JAX's arrays, with their gradients."""
from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp

from tutti import Communicator
from tutti.jax._primitive import bind

_Op = Literal["sum", "prod", "max", "min", "avg"]

WHATS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
OPS = ("sum", "prod", "max", "min", "avg")
TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
         "float8_e4m3fn", "float8_e5m2")


def all_reduce(x: jax.typing.ArrayLike, comm: Communicator, op: _Op = "sum") -> jax.Array:
    """Combines all ranks' x, and gives all of them the result, of x's shape and type. "sum" and "avg" have gradients:
    what all ranks' results are worth to their losses, combined in the same way."""
    return _call(jnp.asarray(x), comm, "all_reduce", op, 0)


def all_gather(x: jax.typing.ArrayLike, comm: Communicator) -> jax.Array:
    """All ranks' x, by rank: of the shape (size, *x.shape)."""
    return _call(jnp.asarray(x), comm, "all_gather", "sum", 0)


def reduce_scatter(x: jax.typing.ArrayLike, comm: Communicator, op: _Op = "sum") -> jax.Array:
    """Combines all ranks' x, of the shape (size, ...), and gives each rank its row. "sum" and "avg" have gradients."""
    return _call(jnp.asarray(x), comm, "reduce_scatter", op, 0)


def broadcast(x: jax.typing.ArrayLike, comm: Communicator, root: int = 0) -> jax.Array:
    """Rank root's x. The others' must have its shape and type; their gradients are zero."""
    if not 0 <= root < comm.size:
        raise ValueError(f"root is {root}; expected a rank from 0 to {comm.size - 1}")
    return _call(jnp.asarray(x), comm, "broadcast", "sum", root)


def all_to_all(x: jax.typing.ArrayLike, comm: Communicator) -> jax.Array:
    """Row r of x, of the shape (size, ...), goes to rank r. The result has what came from rank r in row r."""
    return _call(jnp.asarray(x), comm, "all_to_all", "sum", 0)


def _checked(x: jax.Array, comm: Communicator, what: str, op: str) -> None:
    if not isinstance(comm, Communicator):
        raise TypeError(f"comm is a {type(comm).__name__}; expected a tutti.Communicator")
    if comm.device >= 0:
        raise ValueError(f"tutti.jax is for ranks on CPUs, and this one is on CUDA device {comm.device}")
    if op not in OPS:
        raise ValueError(f"op is {op!r}; expected one of " + ", ".join(OPS))
    if "reduce" in what and x.dtype.name not in TYPES:
        raise TypeError(f"x has elements of type {x.dtype}, which Tutti does not add up: it knows " + ", ".join(TYPES))
    if what in ("reduce_scatter", "all_to_all") and (x.ndim == 0 or x.shape[0] != comm.size):
        raise ValueError(f"x has the shape {x.shape}, and its first axis is not the {comm.size} ranks: reshape it")


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def _call(x: jax.Array, comm: Communicator, what: str, op: str, root: int) -> jax.Array:
    _checked(x, comm, what, op)
    count, shape = x.size, x.shape
    if what == "all_gather":
        shape = (comm.size, *shape)
    elif what != "all_reduce" and what != "broadcast":
        count //= comm.size
        shape = shape if what == "all_to_all" else shape[1:]
    known = x.dtype.name in TYPES
    scale = 1 if known else x.dtype.itemsize  # what is only moved is bytes
    numbers = {"comm": comm._number, "what": WHATS.index(what), "type": TYPES.index(x.dtype.name if known else "uint8"),
               "op": OPS.index(op), "root": root, "count": count * scale}
    return bind(x, shape=shape, **numbers)


def _forward(x: jax.Array, *how: Any) -> tuple[jax.Array, None]:
    return _call(x, *how), None


def _backward(comm: Communicator, what: str, op: str, root: int, _: None, g: jax.Array) -> tuple[jax.Array]:
    if op not in ("sum", "avg"):
        raise NotImplementedError(f"tutti.jax.{what} with op={op!r} has no gradient, only \"sum\" and \"avg\" have: "
                                  "put jax.lax.stop_gradient around its argument")
    if what == "all_gather":
        return (_call(g, comm, "reduce_scatter", "sum", 0),)
    if what == "reduce_scatter":
        total = _call(g, comm, "all_gather", "sum", 0)
        return (total / comm.size if op == "avg" else total,)
    if what == "broadcast":
        total = _call(g, comm, "all_reduce", "sum", 0)
        return (total if comm.rank == root else jnp.zeros_like(total),)
    return (_call(g, comm, what, op, 0),)


_call.defvjp(_forward, _backward)
