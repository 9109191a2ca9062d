#!/usr/bin/env python3
"""torch_test.py: tutti_torch, which lies on PYTHONPATH, with 2 and 4 ranks. Skips (77) where this Python has no
torch."""
import os
import re
import sys
import unittest

try:
    import torch
    import torch.distributed
except ImportError as error:
    print(f"skipped: no torch: {error}")
    sys.exit(77)
if not torch.distributed.is_gloo_available():
    print("skipped: this torch has no Gloo to compare with")
    sys.exit(77)
import spawn


class Torch(unittest.TestCase):
    def all_ok(self, ended):
        for rank, (status, output) in enumerate(ended):
            self.assertEqual(status, 0, f"rank {rank}:\n{output}")
            self.assertIn(f"rank {rank} ok", output)

    def skipped(self, ended):
        reason = re.search("^skipped: (.*)", ended[0][1], re.MULTILINE)
        if reason:
            self.skipTest(reason.group(1))

    def test_collectives(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                self.all_ok(spawn.run("collectives.py", ranks))

    @unittest.skipUnless("EMULATED" in os.environ, "no emulated GPUs: check.py has them")
    def test_on_devices(self):
        path = os.pathsep.join([os.environ["EMULATED_DEVICE"], os.environ["PYTHONPATH"]])
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                ended = spawn.run("on_devices.py", ranks, PYTHONPATH=path, LD_LIBRARY_PATH=os.environ["EMULATED"])
                self.all_ok(ended)
                self.skipped(ended)

    def test_ddp(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                ended = spawn.run("training.py", ranks, "ddp")
                self.all_ok(ended)
                if ranks == 2:  # a sum of two has no order
                    self.assertIn("the same bits", ended[0][1])

    def test_fsdp(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                ended = spawn.run("training.py", ranks, "fsdp")
                self.skipped(ended)
                self.all_ok(ended)

    def test_death(self):
        for status, output in spawn.run("trouble.py", 3, "death")[:2]:
            self.assertEqual(status, 0, output)
            self.assertEqual(output.count("tutti: all_reduce: "), 3, output)
            self.assertIn("rank 2", output)

    def test_death_of_a_sender(self):
        status, output = spawn.run("trouble.py", 2, "pair")[0]
        self.assertEqual(status, 0, output)
        self.assertRegex(output, "tutti: recv: from rank 1 to rank 0, which are ranks 0 and 1 here: rank 0 .*died")

    def test_stopped_sender(self):
        status, output = spawn.run("trouble.py", 2, "stopped")[0]
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("tutti: recv: its timeout has passed: rank 1 has begun to send "), 2, output)

    def test_time_out(self):
        status, output = spawn.run("trouble.py", 2, "late")[0]
        self.assertEqual(status, 0, output)
        self.assertIn("rank 1", output)

    def test_different_calls(self):
        for status, output in spawn.run("trouble.py", 2, "differ"):
            self.assertEqual(status, 0, output)
            self.assertRegex(output, "tutti: all_reduce: .*5")
            self.assertNotIn("no error", output)

    def test_forked_children(self):
        for status, output in spawn.run("trouble.py", 2, "fork"):
            self.assertEqual(status, 0, output)
            self.assertEqual(len(re.findall("before this process was forked: make a new one", output)), 5, output)
            self.assertEqual(output.count("no error\n"), 2, output)
            self.assertTrue(output.endswith("the parent goes on\n"), output)

    def test_destroyed_by_python(self):
        self.all_ok(spawn.run("destroyed.py", 2))

    def test_quiet_end(self):
        for status, output in spawn.run("trouble.py", 2, "quiet"):
            self.assertEqual((status, output), (0, "ends\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
