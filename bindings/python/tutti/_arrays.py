"""New arrays: in memory that ranks share, and of the kind of another one."""
from __future__ import annotations

import math
import operator
import sys
from typing import TYPE_CHECKING, Any

from tutti._tutti import Memory

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike = "float32") -> NDArray[Any]:
    """A NumPy array in tutti.Memory: zeroed, and mappable by the other ranks of a host, which then copy large messages
    once, and may put into it (Communicator.window). ImportError without NumPy, ValueError for a negative length, and
    for more bytes than there can be."""
    try:
        import numpy
    except ImportError as error:
        raise ImportError("tutti.zeros makes a NumPy array, and there is no NumPy: pip install numpy; a tutti.Memory "
                          "is such memory without it") from error
    try:
        lengths = (operator.index(shape),)
    except TypeError:
        lengths = tuple(operator.index(length) for length in shape)
    if any(length < 0 for length in lengths):
        raise ValueError(f"shape is {shape}; expected lengths of 0 or more")
    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"dtype is {kind}: other ranks can't use this process's Python objects")
    size = math.prod(lengths) * kind.itemsize
    if size > sys.maxsize:
        raise ValueError(f"shape is {shape}, of {kind}: these are {size} bytes, more than a process can have")
    memory = Memory(size)
    return numpy.ndarray(lengths, kind, memoryview(memory))


def like(x: Any, shape: tuple[int, ...]) -> Any:
    """An array of this shape, of x's type and on its device: CuPy's if x is, else NumPy's or a memoryview. Not for
    torch's."""
    if type(x).__module__.partition(".")[0] == "cupy":
        with x.device:
            return sys.modules["cupy"].empty(shape, dtype=x.dtype)
    try:
        import numpy
    except ImportError:
        seen = memoryview(x)
        flat = memoryview(bytearray(math.prod(shape) * seen.itemsize))
        return flat.cast(seen.format, shape) if len(flat) > 0 else flat.cast(seen.format)
    if not hasattr(x, "dtype"):
        x = numpy.from_dlpack(x) if hasattr(x, "__dlpack__") else numpy.asarray(memoryview(x))
    return numpy.empty(shape, dtype=x.dtype)
