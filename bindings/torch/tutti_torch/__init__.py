"""torch.distributed over Tutti, for tensors on the CPU: importing this registers the backend "tutti".

    import tutti_torch
    torch.distributed.init_process_group("tutti")
"""
import atexit
import inspect

import torch
import torch.distributed as dist

from tutti_torch import _C

__all__ = ["version"]


def version():
    """The version of libtutti, as "0.1.0"."""
    return _C.version()


def _register():
    arguments = {}
    if "devices" in inspect.signature(dist.Backend.register_backend).parameters:
        arguments["devices"] = ["cpu"]
    dist.Backend.register_backend("tutti", _C.create, **arguments)


_register()
# A script need not destroy its groups: the other ranks hear a farewell all the same, and not of a death.
atexit.register(_C.close_all)
