"""Collective communication for arrays: NumPy, torch, CuPy, JAX and all others that show their memory.

    import numpy, tutti
    with tutti.init() as comm:              # ranks of tutti-run, torchrun, mpirun, srun; alone: one rank
        total = comm.all_reduce(numpy.ones(4, "float32"))

Names and meanings are those of the C API (include/tutti/tutti.h). docs/python.md is the manual.
"""
try:
    from tutti import _tutti as _tutti
except ImportError as error:
    error.msg += f"\ntutti: {__file__} is not complete, or for another Python: install the wheel again"
    raise

from tutti._tutti import (Communicator, Memory, Window, Work, device_count, group, init, init_all, join, settings,
                          unique_id, version_code)
from tutti._arrays import zeros
from tutti._objects import all_gather_object, all_reduce_object, broadcast_object
from tutti._waiting import awaited
from tutti.errors import (Error, InternalError, InvalidArgument, InvalidUsage, RemoteError, SystemError, Timeout,
                          UnhandledCudaError)

__version__ = "{}.{}.{}".format(*(version_code() // unit % 100 for unit in (10000, 100, 1)))

Communicator.all_gather_object = all_gather_object
Communicator.all_reduce_object = all_reduce_object
Communicator.broadcast_object = broadcast_object
Work.__await__ = awaited

__all__ = ["Communicator", "Error", "InternalError", "InvalidArgument", "InvalidUsage", "Memory", "RemoteError",
           "SystemError", "Timeout", "UnhandledCudaError", "Window", "Work", "device_count", "group", "init",
           "init_all", "join", "settings", "unique_id", "version_code", "zeros"]
