"""New arrays of the kind of another one."""
from __future__ import annotations

import math
import sys
from typing import Any


def empty(like: Any, shape: tuple[int, ...]) -> Any:
    """An array of this shape, of like's type and on its device. NumPy's, or a memoryview, if like is neither of torch
    nor of CuPy."""
    kind = type(like).__module__.partition(".")[0]
    if kind == "torch":
        return sys.modules["torch"].empty(shape, dtype=like.dtype, device=like.device)
    if kind == "cupy":
        with like.device:
            return sys.modules["cupy"].empty(shape, dtype=like.dtype)
    try:
        import numpy
    except ImportError:
        seen = memoryview(like)
        flat = memoryview(bytearray(math.prod(shape) * seen.itemsize))
        return flat.cast(seen.format, shape) if len(flat) > 0 else flat.cast(seen.format)
    if not hasattr(like, "dtype"):
        like = numpy.from_dlpack(like) if hasattr(like, "__dlpack__") else numpy.asarray(memoryview(like))
    return numpy.empty(shape, dtype=like.dtype)
