"""reproducible_test.py TUTTI_RUN TUTTI_PLAN ALL_REDUCE_PERF: with --reproducible, every algorithm, threads and
processes, private and mapped buffers, 1 to 8 channels give one checksum; without it they do not, so the check can
fail."""
import os
import re
import subprocess
import sys
import unittest

TUTTI_RUN, TUTTI_PLAN, PERF = (os.path.abspath(path) for path in sys.argv[1:4])
RANKS = 3
SIZES = ["-b", "12", "-e", "800K", "-f", "40", "-n", "1", "-w", "0", "-c", "0", "-d", "float", "--checksum"]


def checksum(*arguments, processes=False, channels=0):
    head = [TUTTI_RUN, "-n", str(RANKS), PERF] if processes else [PERF, "-t", str(RANKS)]
    done = subprocess.run(head + SIZES + list(arguments), capture_output=True, text=True, timeout=60, check=True,
                          env=os.environ | {"TUTTI_CHANNELS": str(channels)})
    return re.search(r"Checksum of rank 0's results: ([0-9a-f]{16})", done.stdout).group(1)


class Reproducible(unittest.TestCase):
    def test_one_checksum(self):
        listed = subprocess.run([TUTTI_PLAN, "list", "--op", "all_reduce"], capture_output=True, text=True, check=True)
        found = {}
        for algorithm in [[]] + [["--algo", name] for name in listed.stdout.split()]:
            for processes in (False, True):
                for memory in ("private", "mapped"):
                    setting = [*algorithm, "--memory", memory]
                    found.setdefault(checksum("--reproducible", *setting, processes=processes), []).append(setting)
        for channels in range(1, 9):
            for processes in (False, True):
                value = checksum("--reproducible", processes=processes, channels=channels)
                found.setdefault(value, []).append(f"{channels} channels")
        self.assertGreater(sum(len(settings) for settings in found.values()), 20)
        self.assertEqual(len(found), 1, found)

    def test_it_matters(self):
        self.assertNotEqual(checksum("--algo", "ring"), checksum("--algo", "direct"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
