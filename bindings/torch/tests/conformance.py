#!/usr/bin/env python3
"""PyTorch's own tests of torch.distributed, those that are for Gloo on CPUs, with Tutti instead: 3 ranks.

    conformance.py [unittest's arguments]

Tests of GPUs are skipped by themselves. EXCEPTIONS are expected to fail, each with its reason: one that passes is an
error as well. Needs torch 2.15 and expecttest. Ranks are forked, so that torch is imported once.
"""
import os
import sys
import tempfile
import unittest

FOLDER = tempfile.TemporaryDirectory(prefix="tutti-conformance-")
os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": "3", "TEMP_DIR": FOLDER.name, "GLOO_SOCKET_IFNAME": "lo",
               "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
               "INIT_METHOD": f"file://{FOLDER.name}/init_dir/shared_init_file"}
for name in ("barrier", "test_dir", "init_dir"):
    os.makedirs(os.path.join(FOLDER.name, name))

# pylint: disable=wrong-import-position
import torch
from torch.testing._internal.distributed import distributed_test as tests

import tutti_torch  # noqa: F401  registers the backend

EXCEPTIONS = {
    "test_ddp_logging_data_cpu": "DDP's log calls every backend that is not torch's own \"custom\"",
}


class Name(str):
    """What the tests take as the backend, and for gloo where they ask whether they are for it."""

    def __eq__(self, other):
        return other in ("gloo", "tutti")

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


tests.BACKEND = Name("tutti")


class Conformance(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def _spawn_processes(self):
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


for name in EXCEPTIONS:
    setattr(Conformance, name, unittest.expectedFailure(getattr(Conformance, name)))
del tests.TestDistBackend  # unittest would run it by itself

if __name__ == "__main__":
    torch.set_num_threads(1)
    done = unittest.main(exit=False).result
    passed = done.testsRun - len(done.skipped) - len(done.failures) - len(done.errors) - len(done.expectedFailures)
    print(f"conformance: {passed} passed, {len(done.expectedFailures)} exceptions, {len(done.skipped)} skipped")
    sys.exit(not done.wasSuccessful())
