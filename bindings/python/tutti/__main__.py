"""python -m tutti: what works here, what does not, and why."""
import ctypes.util
import importlib.metadata
import os
import pathlib
import platform
import shlex
import shutil
import sys
import sysconfig

import tutti


def transports() -> "list[tuple[str, str]]":
    rows = [("local", "yes: ranks that are threads of one process")]
    try:
        with tutti.Communicator(1, tutti.unique_id(), 0) as comm:
            comm.barrier()
    except tutti.Error as error:
        rows[0] = ("local", f"no: {error}")
    room = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    rows.append(("shm", f"yes: {room.f_bavail * room.f_frsize >> 20} MiB free in /dev/shm" if room else
                 "no: there is no /dev/shm"))
    rows.append(("tcp", "yes: between hosts (docs/cluster.md: interfaces, firewalls, encryption)"))
    folder = pathlib.Path("/sys/class/infiniband")
    adapters = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not adapters:
        rows.append(("verbs", "no: there is no InfiniBand or RoCE adapter (/sys/class/infiniband)"))
    elif ctypes.util.find_library("ibverbs") is None:
        rows.append(("verbs", f"no: there is {', '.join(adapters)}, but no libibverbs: install rdma-core"))
    else:
        rows.append(("verbs", f"yes: {', '.join(adapters)}"))
    plugin = tutti.settings().get("TUTTI_NET_PLUGIN")
    rows.append(("plugin", f"TUTTI_NET_PLUGIN={plugin}" if plugin else "no: TUTTI_NET_PLUGIN names none"))
    return rows


def gpus() -> str:
    try:
        count = tutti.device_count()
    except tutti.Error as error:
        return f"no: {error}"
    if count > 0:
        return f"yes: {count}"
    try:
        tutti.Communicator(1, tutti.unique_id(), 0, device=0).close()
    except tutti.Error as error:  # which says why
        return f"no: {str(error).rpartition(' be made: ')[2]}"
    return "no: CUDA counts none"


def package(name: str, meaning: str) -> "tuple[str, str]":
    try:
        return name, f"yes: {importlib.metadata.version(name)}, {meaning}"
    except importlib.metadata.PackageNotFoundError:
        return name, f"no: it is not installed ({meaning})"


def backend() -> str:
    """The backend of torch.distributed."""
    if package("torch", "")[1].startswith("no"):
        return "no: there is no torch"
    compiler = shlex.split(os.environ.get("CXX") or "c++")[0]
    if shutil.which(compiler) is None:
        return f"no: there is no C++ compiler {compiler}: install g++, or name one in CXX"
    if not pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "no: there is no Python.h: install python3-dev"
    return f"yes: {compiler} compiles it when it is first used, and it is kept"


def main() -> None:
    print(f"tutti {tutti.__version__}, Python {platform.python_version()}, {platform.machine()}, in "
          f"{pathlib.Path(tutti.__file__).parent}")
    rows = [*transports(), ("GPUs", gpus()), package("numpy", "arrays are made by it"),
            package("torch", "tensors are arrays"), ("backend", backend()), package("jax", "arrays, and tutti.jax"),
            package("cupy", "arrays on GPUs")]
    for name, what in rows:
        print(f"  {name:8} {what}")


if __name__ == "__main__":
    sys.exit(main())
