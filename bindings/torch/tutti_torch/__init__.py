"""torch.distributed over Tutti, for tensors on CPUs and GPUs: importing this registers the backend "tutti".

    import tutti_torch
    torch.distributed.init_process_group("tutti")

Where Tutti's wheel is installed, torch 2.15 and later find it without the import.
"""
import atexit
import importlib.util
import inspect

import torch
import torch.distributed as dist

if importlib.util.find_spec("tutti_torch._C") is not None:  # made by bindings/torch/build
    try:
        from tutti_torch import _C
    except ImportError as error:
        error.msg += (f"\ntutti: its backend was built for another torch than {torch.__version__}, or another Python: "
                      "build it again (bindings/torch/build), or remove it and install Tutti's wheel")
        raise
else:
    from tutti_torch import _build
    _C = _build.load()

Options = _C.Options

__all__ = ["Options", "backend", "devices", "version"]


def version():
    """The version of libtutti, as "0.1.0"."""
    return _C.version()


def devices():
    """The types of devices whose tensors the backend takes: ["cpu"], or ["cpu", "cuda"]."""
    # Whether there is a GPU is not asked: nobody may fork after that.
    return ["cpu", "cuda"] if torch.backends.cuda.is_built() else ["cpu"]


def backend(store, rank, size, timeout, options=None):
    """A torch.distributed.Backend for those who put process groups together themselves. Blocks until all ranks of the
    group have called it with the same store, at most for `timeout` (datetime.timedelta). options: Options."""
    return _C.create(store, rank, size, timeout, options)


def _register():
    if "cuda" in devices():
        _C.streams_of("cuda", lambda device: torch.cuda.current_stream(device).cuda_stream)
    arguments = {}
    if "devices" in inspect.signature(dist.Backend.register_backend).parameters:
        arguments["devices"] = devices()
    create = _C.create
    if "enable_reconfigure" in inspect.signature(dist.init_process_group).parameters:
        arguments["extended_api"] = True
        create = _create
    dist.Backend.register_backend("tutti", create, **arguments)


def _create(group, options):
    if options is not None and not isinstance(options, Options):
        raise TypeError(f"tutti: pg_options is a {type(options).__name__}; expected tutti_torch.Options, or None")
    return _C.create(group.store, group.group_rank, group.group_size, group.timeout, options,
                     deferred=group.enable_reconfigure)


_register()
# A script need not destroy its groups: the other ranks hear a farewell all the same, and not of a death.
atexit.register(_C.close_all)
