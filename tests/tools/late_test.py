#!/usr/bin/env python3
"""Ranks that are late or stopped for longer than a host may be silent, over TCP: nobody takes them for dead. Between
processes of one host, and between hosts (tools/netns-run), if this machine lets us make some."""
import os
import subprocess
import sys
import unittest

TUTTI_RUN, NETNS_RUN, LATE, WALL_CLOCK, SECONDS = sys.argv[1:6]
del sys.argv[1:6]
# A host may be silent for a third of what the rank sleeps.
SURROUNDINGS = dict(os.environ, TUTTI_TRANSPORT="tcp", TUTTI_SILENCE_MS=str(int(float(SECONDS) * 1000) // 3))

# One message fills them.
SMALL_WINDOWS = "echo 4096 65536 131072 > /proc/sys/net/ipv4/tcp_rmem"


class Late(unittest.TestCase):
    def right(self, *command, **surroundings):
        done = subprocess.run(command, capture_output=True, text=True, timeout=float(SECONDS) + 120,
                              env={**SURROUNDINGS, **surroundings})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(sorted(done.stdout.split("\n"))[1:], [f"rank {r}: right" for r in range(3)])

    def needs(self, *options):
        """Skips the test if this machine has no such hosts."""
        probe = subprocess.run([sys.executable, NETNS_RUN, "--probe", *options], capture_output=True, text=True)
        if probe.returncode == 77:
            self.skipTest(probe.stderr.strip())

    def between_hosts(self, script, **surroundings):
        self.right(sys.executable, NETNS_RUN, "--hosts", "3", "--ranks", "1", "--", "sh", "-c", script, **surroundings)

    def test_a_rank_is_late(self):
        self.right(TUTTI_RUN, "-n", "3", LATE, SECONDS)

    def test_a_rank_is_late_and_its_data_is_encrypted(self):
        self.right(TUTTI_RUN, "-n", "3", LATE, SECONDS, TUTTI_ENCRYPT="1")

    def test_a_rank_is_stopped_in_the_middle_of_an_operation(self):
        self.right(TUTTI_RUN, "-n", "3", LATE, SECONDS, "stop")

    def test_wall_clocks_jump(self):
        for more in {}, {"TUTTI_TRANSPORT": ""}:
            self.right(TUTTI_RUN, "-n", "3", LATE, SECONDS, LD_PRELOAD=WALL_CLOCK, **more)
        self.right(TUTTI_RUN, "-n", "3", LATE, SECONDS, "stop", LD_PRELOAD=WALL_CLOCK)

    def test_a_time_out_comes_while_wall_clocks_jump(self):
        done = subprocess.run([TUTTI_RUN, "-n", "3", LATE, SECONDS], capture_output=True, text=True,
                              timeout=float(SECONDS) + 120, env=dict(SURROUNDINGS, LD_PRELOAD=WALL_CLOCK,
                                                                     TUTTI_TIMEOUT_MS="500"))
        self.assertIn(done.returncode, range(1, 128), done.stdout + done.stderr)
        # For rank 1, which is late, or for one that waits for it.
        self.assertRegex(done.stderr, r"tuttiAllReduce: rank [02] waited (0\.[5-9]|[1-9]\.\d) s for .*rank \d")

    def test_a_rank_on_another_host_is_late(self):
        self.needs()
        self.between_hosts(f"{SMALL_WINDOWS} && exec {LATE} {SECONDS}")

    def test_a_rank_on_another_host_is_stopped(self):
        self.needs()
        self.between_hosts(f"{SMALL_WINDOWS} && exec {LATE} {SECONDS} stop")

    def test_the_network_is_away_for_less_than_a_host_may_be_silent(self):
        self.needs("--largest", "1480")  # nft
        away = ("nft 'add table inet away; add chain inet away in { type filter hook input priority 0; }; "
                "add rule inet away in iifname \"eth*\" drop'")
        script = f"sleep 1; {away}; sleep {float(SECONDS) / 4}; nft delete table inet away"
        self.between_hosts(f"[ $RANK = 1 ] && ({script}) & exec {LATE} {SECONDS}",
                           TUTTI_SILENCE_MS="15000")  # the shell that brings it back may be late


if __name__ == "__main__":
    unittest.main(verbosity=2)
