#!/usr/bin/env python3
"""Processes that a network plugin joins: tests/transport/net_plugin.cpp, of two versions of the interface; how it is
chosen and refused, and what its faults do to a job."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
from addresses import own_address  # noqa: E402

TUTTI_RUN, PERF, V8, V11, NO_PLUGIN = sys.argv[1:6]
del sys.argv[1:6]
SMALL = ["-b", "8", "-e", "1M", "-f", "64", "-n", "3", "-w", "1"]


def run(*arguments, ranks=2, command=None, options=(), **environment):
    command = command or [PERF, *SMALL, *arguments]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "NCCL_"))}
    done = subprocess.run([TUTTI_RUN, *options, "-n", str(ranks), *command], capture_output=True, text=True, timeout=90,
                          env=dict(kept, TUTTI_TUNING="none", **environment))
    done.both = done.stdout + done.stderr
    return done


class Plugin(unittest.TestCase):
    def right(self, done):
        self.assertEqual(done.returncode, 0, done.both)
        self.assertIn("Out of bounds values : 0 OK", done.stdout)

    def refused(self, done, *why):
        self.assertIn(done.returncode, range(1, 128), done.both)  # beyond are crashes
        for part in why:
            self.assertIn(part, done.both)

    def test_both_versions(self):
        for ranks, plugin in [(2, V8), (4, V11), (3, V8)]:
            done = run("--transport", "plugin", ranks=ranks, TUTTI_NET_PLUGIN=plugin, TUTTI_DEBUG="INFO")
            self.right(done)
            self.assertRegex(done.both, "rank 0 reaches rank 1 by plugin")

    def test_puts(self):
        done = run(command=[os.path.join(os.path.dirname(PERF), "put_check"), "--transport", "plugin"], ranks=3,
                   TUTTI_NET_PLUGIN=V11)
        self.assertEqual(done.returncode, 0, done.both)
        self.assertIn("3 ranks on cpu: OK", done.stdout)

    def test_it_is_preferred_to_tcp_between_hosts(self):
        address = own_address()
        if address is None:
            self.skipTest("no network interface beside the loopback")
        # Ranks of this host that take each other for ranks of different ones.
        apart = ["sh", "-c", f'TUTTI_HOSTID=host$RANK LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR={address} exec "$@"',
                 "sh", PERF, *SMALL]
        for plugin, transport in [(V11, "plugin"), ("none", "tcp")]:
            done = run(command=apart, TUTTI_NET_PLUGIN=plugin, TUTTI_SECRET="12" * 32, TUTTI_DEBUG="INFO")
            self.right(done)
            self.assertIn(f"rank 0 reaches rank 1 by {transport}", done.both)

    def test_what_does_not_serve_is_an_error_or_a_warning(self):
        self.refused(run("--transport", "plugin", TUTTI_NET_PLUGIN=NO_PLUGIN), NO_PLUGIN, "is not a network plugin")
        self.refused(run("--transport", "plugin", TUTTI_NET_PLUGIN="/nowhere.so"), "/nowhere.so: cannot open")
        self.refused(run("--transport", "plugin"), "TUTTI_NET_PLUGIN")
        self.refused(run("--transport", "plugin", NCCL_NET_PLUGIN=NO_PLUGIN), "is not a network plugin")
        done = run("--transport", "tcp", NCCL_NET_PLUGIN=NO_PLUGIN)
        self.right(done)
        self.refused(run("--transport", "plugin", TUTTI_NET_PLUGIN=V8, TUTTI_ENCRYPT="1"), "encrypt")

    def test_a_call_that_fails_ends_the_job_on_all_ranks(self):
        self.refused(run("--transport", "plugin", TUTTI_NET_PLUGIN=V8, TEST_NET_PLUGIN_FAULTS="init:fail:1"),
                     f"{V8} (Test8, interface version 8): init failed")
        only_1 = ["sh", "-c", '[ $RANK = 1 ] || unset TEST_NET_PLUGIN_FAULTS; exec "$@"', "sh", PERF, *SMALL,
                  "--transport", "plugin"]
        for fault in ["isend:fail:20", "irecv:fail:30", "test:fail:200"]:
            done = run(command=only_1, ranks=3, TUTTI_NET_PLUGIN=V11, TEST_NET_PLUGIN_FAULTS=fault)
            # Rank 1 knows of its own call; its peers, of the connection that has ended, and all may hear it from them.
            self.refused(done, "rank 1")
            self.assertRegex(done.both, "test-net-v11.so .*: (isend|irecv|test) failed: it returned 2")

    def test_a_process_that_is_killed_is_named(self):
        with tempfile.NamedTemporaryFile() as said:  # by rank 0, when all have joined
            killed = ["sh", "-c", '[ $RANK = 1 ] && (until grep -q "Using devices" $SAID; do sleep 0.1; done; '
                      'sleep 0.5; kill -9 $$) & [ $RANK = 0 ] && exec "$@" > $SAID; exec "$@"',
                      "sh", PERF, "-b", "1M", "-e", "1M", "-n", "1000000", "--transport", "plugin"]
            done = run(options=["--keep-going"], command=killed, ranks=3, TUTTI_NET_PLUGIN=V11, SAID=said.name)
        for rank in [0, 2]:
            self.assertRegex(done.both, rf"rank {rank}: rank 1 \(pid \d+ on host .*\) died")

    def test_what_is_never_ready_ends_with_the_time(self):
        for fault in ["connect:later:1000000000", "test:later:1000000000"]:
            done = run("--transport", "plugin", TUTTI_NET_PLUGIN=V11, TEST_NET_PLUGIN_FAULTS=fault,
                       TUTTI_TIMEOUT_MS="1500")
            self.refused(done, "Test11, loopback")
            self.assertRegex(done.both, "rank [01].*rank [01]")

    def test_slow_and_often_not_ready(self):
        self.right(run("--transport", "plugin", TUTTI_NET_PLUGIN=V8,
                       TEST_NET_PLUGIN_FAULTS="connect:later:50,isend:later:100,irecv:later:40,isend:slow:50"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
