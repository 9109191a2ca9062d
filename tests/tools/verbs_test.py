#!/usr/bin/env python3
"""The transport verbs on a real kernel's RDMA stack: in the machine of tools/rdma-vm, whose soft-RoCE adapters rxe0 and
rxe1 are the two ends of a cable. All of it in one machine, since starting one takes longer than most tests.

  verbs_test.py RDMA_VM TUTTI_RUN PERF TEST_TRANSPORT     starts the machine and itself in there
"""
import os
import re
import signal
import subprocess
import sys
import time
import unittest

ARGUMENTS = sys.argv[1:5]
RDMA_VM, TUTTI_RUN, PERF, TRANSPORT = ARGUMENTS
CONFORMANCE = ("messages of all sizes*,a writer gets*,memory passed by reference*,a sleeping rank*,one end may go*,"
               "what arrives for a rank*")
CANNOT, SKIP = 125, 77  # of rdma-vm; of a test
ACROSS = {0: "rxe0", 1: "rxe1"}  # over the cable: each rank has an adapter of its own


def ranks(count, *perf, adapters=None, **environment):
    """all_reduce_perf among so many ranks, each with its adapters: the command and its environment."""
    command = [TUTTI_RUN, "-n", str(count), PERF, "--transport", "verbs", *perf]
    if adapters:
        one = " ".join(f"[ $RANK = {rank} ] && export TUTTI_IB_HCA={name};" for rank, name in adapters.items())
        command[3:4] = ["/bin/sh", "-c", f'{one} exec {PERF} "$@"', "sh"]
    return command, dict(os.environ, TUTTI_DEBUG="INFO", **environment)


def run(command, environment=None, timeout=120):
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    done.both = done.stdout + done.stderr
    return done


def shell(text):
    subprocess.run(text, shell=True, check=True)


class Right(unittest.TestCase):
    SMALL = ["-b", "8", "-e", "1M", "-f", "32", "-n", "3", "-w", "1"]

    def right(self, count, *perf, **options):
        command, environment = ranks(count, *(perf or self.SMALL), **options)
        done = run(command, environment)
        self.assertEqual(done.returncode, 0, done.both)
        self.assertIn("Out of bounds values : 0 OK", done.stdout)
        self.assertRegex(done.both, "rank 0 reaches rank 1 by verbs")
        return done.both

    def test_conformance(self):
        done = run([TRANSPORT, "-d", "yes", CONFORMANCE])
        self.assertEqual(done.returncode, 0, done.both)
        self.assertIn("All tests passed", done.both)

    def test_two_and_four_ranks(self):
        self.right(2)
        self.right(4)

    def test_over_the_cable(self):
        before = self.packets()
        said = self.right(2, adapters=ACROSS)
        self.assertGreater(self.packets() - before, 500)
        self.assertRegex(said, r"verbs: rxe0 port 1, address 1: 10\.77\.0\.1")
        self.assertRegex(said, r"messages with rank 1 .*, by verbs, rxe0 port 1 \(10\.77\.0\.1\) to rxe1 port 1 "
                               r"\(10\.77\.0\.2\)")

    def test_wire_that_delays_reorders_and_loses(self):
        # rxe answers what overtakes by repeating all that follows: large messages would take long.
        for trouble, largest in (("delay 1ms", "256K"), ("delay 1ms reorder 5%", "8K"), ("loss 0.5%", "256K")):
            with self.subTest(trouble):
                shell(f"tc qdisc add dev rdma0 root netem {trouble}")
                try:
                    self.right(2, "-b", "8", "-e", largest, "-f", "32", "-n", "2", "-w", "1", adapters=ACROSS,
                               TUTTI_TIMEOUT_MS="20000")
                finally:
                    shell("tc qdisc del dev rdma0 root")

    @staticmethod
    def packets():
        with open("/sys/class/net/rdma0/statistics/tx_packets") as counter:
            return int(counter.read())


class Wrong(unittest.TestCase):
    def refused(self, done, *words):
        self.assertNotEqual(done.returncode, 0, done.both)
        for pattern in words:
            self.assertRegex(done.both, pattern)

    def test_locked_memory(self):
        command, environment = ranks(2, "-b", "8", "-e", "8")
        limited = ["sh", "-c", 'ulimit -l 64; exec setpriv --bounding-set -ipc_lock "$@"', "sh", *command]
        self.refused(run(limited, environment), r"can't register \d+ bytes.*64 KiB \(`ulimit -l`\)")

    def test_addresses_that_are_not_there(self):
        command, environment = ranks(2, "-b", "8", "-e", "8", TUTTI_IB_GID_INDEX="7")
        self.refused(run(command, environment),
                     r"rxe0 port 1 is without an address of index 7 \(TUTTI_IB_GID_INDEX\)")
        command, environment = ranks(2, "-b", "8", "-e", "8", TUTTI_IB_HCA="mlx5")
        self.refused(run(command, environment), "rxe0 port 1 is not among TUTTI_IB_HCA")


class WrongPort(unittest.TestCase):
    """Last (in the alphabet): the cable's routes go with its ports."""

    def test_goes_down_in_mid_operation(self):
        command, environment = ranks(2, "-b", "1M", "-e", "1M", "-n", "1000000", adapters=ACROSS,
                                     TUTTI_TIMEOUT_MS="8000")
        job = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
        said = ""
        for line in job.stdout:  # until data moves
            said += line
            if "bytes: " in line:
                break
        time.sleep(1)
        shell("ip link set rdma0 down")
        began = time.monotonic()
        try:
            said += job.communicate(timeout=60)[0]
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
        self.assertNotEqual(job.returncode, 0, said)
        self.assertLess(time.monotonic() - began, 40, said)
        self.assertRegex(said, r"lost its connection with rank [01] .*verbs, rxe[01] port 1 \(10\.77\.0\.[12]\) to "
                               r"rxe[01] port 1 \(10\.77\.0\.[12]\)\): rxe[01] port 1 is down")

        command, environment = ranks(2, "-b", "8", "-e", "8")
        done = run(command, environment)
        self.assertNotEqual(done.returncode, 0, done.both)
        self.assertRegex(done.both, r"rxe0 port 1 is down")


def in_machine():
    prepared = subprocess.run([RDMA_VM, "--prepare"], capture_output=True, text=True)
    if prepared.returncode == CANNOT:
        print(f"skipped: {prepared.stderr.strip()}")
        return SKIP
    return subprocess.run([RDMA_VM, "--mem", "2048", "--timeout", "900", "--", sys.executable, *sys.argv]).returncode


if __name__ == "__main__":
    if "RDMA_VM" not in os.environ:
        sys.exit(in_machine())
    del sys.argv[1:5]
    unittest.main(verbosity=2)
