#!/usr/bin/env python3
"""Ranks that are late or stopped for longer than a host may be silent, over TCP: nobody takes them for dead. Between
processes of one host, and between hosts (tools/netns-run), if this machine lets us make some."""
import os
import subprocess
import sys
import unittest

TUTTI_RUN, NETNS_RUN, LATE, SECONDS = sys.argv[1:5]
del sys.argv[1:5]
# A host may be silent for a third of what the rank sleeps.
SURROUNDINGS = dict(os.environ, TUTTI_TRANSPORT="tcp", TUTTI_SILENCE_MS=str(int(float(SECONDS) * 1000) // 3))


class Late(unittest.TestCase):
    def right(self, *command, **surroundings):
        done = subprocess.run(command, capture_output=True, text=True, timeout=float(SECONDS) + 120,
                              env={**SURROUNDINGS, **surroundings})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(sorted(done.stdout.split("\n"))[1:], [f"rank {r}: right" for r in range(3)])

    def between_hosts(self, *arguments):
        probe = subprocess.run([sys.executable, NETNS_RUN, "--probe"], capture_output=True, text=True)
        if probe.returncode == 77:
            self.skipTest(probe.stderr.strip())
        # Windows that one message fills.
        script = f"echo 4096 65536 131072 > /proc/sys/net/ipv4/tcp_rmem && exec {LATE} {SECONDS} {' '.join(arguments)}"
        self.right(sys.executable, NETNS_RUN, "--hosts", "3", "--ranks", "1", "--", "sh", "-c", script)

    def test_a_rank_is_late(self):
        self.right(TUTTI_RUN, "-n", "3", LATE, SECONDS)

    def test_a_rank_is_late_and_its_data_is_encrypted(self):
        self.right(TUTTI_RUN, "-n", "3", LATE, SECONDS, TUTTI_ENCRYPT="1")

    def test_a_rank_is_stopped_in_the_middle_of_an_operation(self):
        self.right(TUTTI_RUN, "-n", "3", LATE, SECONDS, "stop")

    def test_a_rank_on_another_host_is_late(self):
        self.between_hosts()

    def test_a_rank_on_another_host_is_stopped(self):
        self.between_hosts("stop")


if __name__ == "__main__":
    unittest.main(verbosity=2)
