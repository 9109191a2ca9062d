"""The one primitive, and how it is compiled: a custom call of XLA's FFI (target.cpp) with a token, which JAX threads
through a program and from one to the next. Ordered effects and their tokens are not in JAX's public interface."""
from __future__ import annotations

import ctypes
import functools
import pathlib
from typing import Any, cast

import jax
import jax.extend
import numpy as np
from jax._src import core, effects
from jax.interpreters import batching, mlir

from tutti import _compiled, _tutti

HERE = pathlib.Path(__file__).resolve().parent
ELEMENTWISE = (0, 3)  # of `what`: an axis more is only more elements


class Ordered(effects.Effect):
    def __str__(self) -> str:
        return "tutti"


ORDERED = Ordered()
for allowed in (effects.lowerable_effects, effects.ordered_effects, effects.control_flow_allowed_effects,
                effects.custom_derivatives_allowed_effects, effects.remat_allowed_effects):
    allowed.add_type(Ordered)

collective_p = jax.extend.core.Primitive("tutti_collective")


def bind(x: jax.Array, **how: Any) -> jax.Array:
    return cast(jax.Array, collective_p.bind(x, **how))  # type: ignore[no-untyped-call]


@functools.partial(jax.jit, static_argnames=("shape", "comm", "what", "type", "op", "root", "count"))
def evaluated(x: Any, **how: Any) -> Any:
    """Outside of jit: as a program of its own."""
    return bind(x, **how)


def abstract(x: Any, *, shape: tuple[int, ...], **_: Any) -> Any:
    return jax.core.ShapedArray(shape, x.dtype), {ORDERED}


def lowered(ctx: Any, x: Any, *, shape: tuple[int, ...], **numbers: int) -> Any:
    register()
    token = core.abstract_token
    rule = jax.ffi.ffi_lowering("tutti_jax_collective", has_side_effect=True)
    out, after = rule(ctx.replace(avals_in=[*ctx.avals_in, token], avals_out=[*ctx.avals_out, token]),
                      x, ctx.tokens_in.get(ORDERED), **{name: np.int64(n) for name, n in numbers.items()})
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({ORDERED: after})))
    return [out]


def batched(arguments: Any, axes: Any, *, what: int, count: int, shape: tuple[int, ...], **numbers: int) -> Any:
    (x,), (axis,) = arguments, axes
    if what not in ELEMENTWISE:
        raise NotImplementedError("tutti.jax: of the collectives only all_reduce and broadcast are mapped by jax.vmap: "
                                  "call the others outside of it")
    times = x.shape[axis]
    new = (*shape[:axis], times, *shape[axis:])
    return collective_p.bind(x, what=what, count=count * times, shape=new, **numbers), axis


collective_p.def_impl(evaluated)
collective_p.def_effectful_abstract_eval(abstract)
mlir.register_lowering(collective_p, lowered, platform="cpu")
batching.primitive_batchers[collective_p] = batched


def register() -> None:
    """Lets XLA know the target, which is compiled for it when the first program is."""
    global registered  # pylint: disable=global-statement
    if registered is not None:
        return
    flags = ["-std=c++17", "-O2", "-g0", "-fPIC", "-shared", "-w", f"-I{HERE}", f"-isystem{jax.ffi.include_dir()}"]
    made = _compiled.Library("jaxlib", jax.lib.__version__, "its collectives", HERE, flags, [], "collectives.so")
    library = ctypes.CDLL(str(made.path()))
    library.tutti_jax_begin(ctypes.c_void_p(_tutti._jax_run))
    jax.ffi.register_ffi_target("tutti_jax_collective", jax.ffi.pycapsule(library.tutti_jax_collective),
                                platform="cpu")
    registered = library


registered: ctypes.CDLL | None = None
