"""The exceptions of tutti: one for each result code of the C API, with the library's text."""
from __future__ import annotations

from collections.abc import Sequence


class Error(RuntimeError):
    """Of all errors that the library reports. Wrong arguments of Python's own kind are TypeError and ValueError."""

    code: int = 0
    """The tuttiResult_t."""
    failed_rank: int | None = None
    """The rank with which the failure began, if it began with another rank."""
    failed_ranks: tuple[int, ...] = ()
    """That rank, and all others that had died when the error was raised."""


class UnhandledCudaError(Error):
    """A CUDA call failed."""


class SystemError(Error):  # pylint: disable=redefined-builtin # its name in the C API
    """The operating system refused: memory, descriptors, sockets."""


class InternalError(Error):
    """A defect of Tutti: please report it with the text."""


class InvalidArgument(Error, ValueError):
    """One argument is wrong by itself."""


class InvalidUsage(Error):
    """The call is wrong in this place, or does not fit what other ranks call."""


class RemoteError(Error):
    """A peer died, aborted or failed: failed_rank."""


class Timeout(Error, TimeoutError):
    """A wait lasted longer than the communicator allows: the text names whom it was for."""


_OF = {1: UnhandledCudaError, 2: SystemError, 3: InternalError, 4: InvalidArgument, 5: InvalidUsage, 6: RemoteError,
       8: Timeout}


_IN_PYTHON = {"tuttiMemAlloc": "tutti.zeros", "TUTTI_SPLIT_NOCOLOR": "None", "tuttiCommResume": "resume()",
              "tuttiCommGetUniqueId": "grow_id()"}


def of(code: int, text: str, failed_ranks: Sequence[int]) -> Error:
    """The exception of a result code."""
    here = [f"{name} is {ours}" for name, ours in _IN_PYTHON.items() if name in text.partition(": ")[2]]
    error = _OF.get(code, Error)(text + (f" (in Python {', '.join(here)})" if here else ""))
    error.code = code
    error.failed_ranks = tuple(failed_ranks)
    error.failed_rank = error.failed_ranks[0] if error.failed_ranks else None
    return error
