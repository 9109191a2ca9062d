"""A process group for torchft: `Manager(pg=ProcessGroupTutti(), ...)`. Needs torchft."""
import datetime

import torch
from torch.distributed import ProcessGroup as _Group
from torchft.process_group import ProcessGroupWrapper

import tutti_torch

__all__ = ["ProcessGroupTutti"]


class ProcessGroupTutti(ProcessGroupWrapper):
    """Takes tensors on CPUs and on GPUs, in place of ProcessGroupGloo and ProcessGroupNCCL.

    ProcessGroupTutti(timeout=datetime.timedelta(seconds=60)): how long an operation, and the making of a group, may
    take. An operation of which a rank is lost raises on the others at once, and names that rank. `abort()`, of any
    thread, ends the operations of the others: they raise."""

    _aborted = False

    def _create_pg(self, store, rank, world_size):
        self._aborted = False
        backend = tutti_torch.backend(store, rank, world_size, self._timeout)
        group = _Group(store, rank, world_size)
        group._set_default_backend(_Group.BackendType.CUSTOM)
        for device in tutti_torch.devices():
            group._register_backend(torch.device(device), _Group.BackendType.CUSTOM, backend)
        return group

    def abort(self, errored=True):
        self._aborted = self._aborted or errored
        super().abort(errored)

    def shutdown(self):
        super().abort(errored=False)

    def errored(self):
        """Why configure() is to be called again, or None."""
        if self._aborted:
            return RuntimeError("tutti: the process group was aborted")
        return None

    def set_timeout(self, timeout: datetime.timedelta):
        super().set_timeout(timeout)
        if self._pg is not None:
            self._pg.set_timeout(timeout)

    def getBackendName(self):
        return "torchft-tutti"
