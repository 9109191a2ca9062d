#!/usr/bin/env python3
"""The transport verbs on a real kernel's RDMA stack: in the machine of tools/rdma-vm, whose soft-RoCE adapters rxe0 and
rxe1 are the two ends of a cable. All of it in one machine, since starting one takes longer than most tests.

  verbs_test.py RDMA_VM TUTTI_RUN PERF TEST_TRANSPORT     starts the machine and itself in there
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
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


def packets(interface, what="packets"):
    """That it has sent so far."""
    with open(f"/sys/class/net/{interface}/statistics/tx_{what}") as counter:
        return int(counter.read())


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

    def test_puts(self):
        command = [TUTTI_RUN, "-n", "4", os.path.join(os.path.dirname(PERF), "put_check"), "--transport", "verbs"]
        done = run([*command, "-n", "50"], dict(os.environ, TUTTI_DEBUG="INFO"))
        self.assertEqual(done.returncode, 0, done.both)
        self.assertIn("4 ranks on cpu: OK", done.stdout)
        self.assertRegex(done.both, r"verbs: rxe\d lets peers write and read the \d+ bytes of a window")

    def test_paths_are_measured_by_verbs_and_by_tcp(self):
        address = subprocess.run(["ip", "-4", "-o", "address", "show", "rdma0"], capture_output=True, text=True,
                                 check=True).stdout.split()[3].split("/")[0]
        job = dict(os.environ, WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR=address,
                   MASTER_PORT="29511", TUTTI_SECRET="7" * 64, TUTTI_SOCKET_IFNAME="rdma0")
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "tuning.json")
            command = [os.path.join(os.path.dirname(TUTTI_RUN), "tutti-tune"), "--hosts", "--quiet", "--out", file]
            other = subprocess.Popen([*command, "--seconds", "0.05"], env=dict(job, RANK="1", TUTTI_HOSTID="other"))
            try:
                done = run([*command, "--seconds", "0.05"], dict(job, RANK="0", TUTTI_HOSTID="one"))
                self.assertEqual((done.returncode, other.wait(timeout=60)), (0, 0), done.both)
            finally:
                other.kill()
                other.wait()
            with open(file) as written:
                paths = json.load(written)["between_hosts"]
        self.assertEqual({path["transport"] for path in paths}, {"tcp", "verbs"})
        self.assertEqual(re.findall("^(tcp|verbs) ", done.stdout, re.MULTILINE), ["verbs", "tcp"])

    def test_memory_that_adapters_know(self):
        for memory in "mapped", "registered":
            said = self.right(2, "-b", "256K", "-e", "4M", "-f", "4", "-n", "3", "-w", "1", "--memory", memory)
            self.assertRegex(said, r"verbs: rxe\d knows the \d+ bytes at 0x")

    def test_over_the_cable(self):
        before = packets("rdma0")
        said = self.right(2, adapters=ACROSS)
        self.assertGreater(packets("rdma0") - before, 500)
        self.assertRegex(said, r"verbs: rxe0 port 1, [\d.]+ Gbit/s, address 1: 10\.77\.0\.1")
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


class Wrong(unittest.TestCase):
    def refused(self, done, *words):
        self.assertIn(done.returncode, range(1, 128), done.both)  # beyond are crashes
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


SECOND_CABLE = """
for d in rdma2 rdma3; do
    [ $d = rdma3 ] || ip link add rdma2 mtu 4200 address 02:00:0a:4f:00:01 type veth peer name rdma3 mtu 4200 \
        address 02:00:0a:4f:00:02
    for w in rp_filter=0 accept_local=1 arp_ignore=1 arp_announce=2; do
        echo ${w#*=} >/proc/sys/net/ipv4/conf/$d/${w%=*}
    done
done
ip addr add 10.79.0.1/24 dev rdma2 && ip addr add 10.79.0.2/24 dev rdma3
ip link set rdma2 up && ip link set rdma3 up
ip rule add pref 12 iif rdma2 lookup local && ip rule add pref 13 iif rdma3 lookup local
ip rule add pref 22 from 10.79.0.1 to 10.79.0.2 lookup 103 && ip rule add pref 23 from 10.79.0.2 to 10.79.0.1 lookup 104
ip route add 10.79.0.2 dev rdma2 src 10.79.0.1 table 103 && ip route add 10.79.0.1 dev rdma3 src 10.79.0.2 table 104
rdma link add rxe2 type rxe netdev rdma2 && rdma link add rxe3 type rxe netdev rdma3
for d in rxe2 rxe3; do
    p=/sys/class/infiniband/$d/ports/1
    until grep -q ACTIVE $p/state && grep -qs ffff:0a4f $p/gids/*; do sleep 0.1; done
done
"""


class WrongPort(unittest.TestCase):
    """Last (in the alphabet): a cable's routes go with its ports."""

    def start(self, *perf, **options):
        """all_reduce_perf of 2 ranks, and what it has said until data moves."""
        command, environment = ranks(2, *perf, **options)
        job = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
        self.addCleanup(lambda: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
        said = ""
        for line in job.stdout:
            said += line
            if re.search(r"all_reduce of \d{6,} bytes: ", line):
                break
        time.sleep(1)
        return job, said

    def both_ports(self):
        """The adapters of each rank; a single large all-reduce goes by both of a rank's alike."""
        shell(f"set -e; {SECOND_CABLE}")
        adapters = {0: "rxe0,rxe2", 1: "rxe1,rxe3"}
        before = [packets(cable, "bytes") for cable in ("rdma0", "rdma2")]
        command, environment = ranks(2, "-b", "8M", "-e", "8M", "-n", "1", "-w", "0", "-c", "0", adapters=adapters)
        done = run(command, environment)
        self.assertEqual(done.returncode, 0, done.both)
        first, second = (packets(cable, "bytes") - b for cable, b in zip(("rdma0", "rdma2"), before))
        self.assertGreater(first, 6 << 20)
        self.assertGreater(second, 6 << 20)
        return adapters

    def test_another_takes_over(self):
        adapters = self.both_ports()
        cables = [packets("rdma0"), packets("rdma2")]
        job, said = self.start("-b", "1M", "-e", "1M", "-n", "200", "--memory", "mapped",
                               adapters=adapters, TUTTI_TIMEOUT_MS="60000")
        shell("ip link set rdma2 down")
        self.assertGreater(packets("rdma0") - cables[0], 100)
        self.assertGreater(packets("rdma2") - cables[1], 100)
        said += job.communicate(timeout=120)[0]
        self.assertEqual(job.returncode, 0, said)
        self.assertIn("Out of bounds values : 0 OK", said)
        first, second = (rf"{a} port 1 \({host}\.1\) to {b} port 1 \({host}\.2\)"
                         for a, b, host in (("rxe0", "rxe1", r"10\.77\.0"), ("rxe2", "rxe3", r"10\.79\.0")))
        self.assertRegex(said, rf"messages with rank 1 .*{first}, {second}\n")
        self.assertRegex(said, rf"{second}: .*looking for another")
        self.assertRegex(said, rf"messages with rank 1 .*verbs, {first}\n")

    def test_goes_down_in_mid_operation(self):
        job, said = self.start("-b", "1M", "-e", "1M", "-n", "1000000", adapters=ACROSS, TUTTI_TIMEOUT_MS="8000")
        shell("ip link set rdma0 down")
        began = time.monotonic()
        said += job.communicate(timeout=60)[0]
        self.assertIn(job.returncode, range(1, 128), said)
        self.assertLess(time.monotonic() - began, 40, said)
        # Whichever comes first: rxe gives up, or the operation's time-out.
        self.assertRegex(said, r"rank [01] .*rank [01] .*verbs, rxe[01] port 1 \(10\.77\.0\.[12]\) to "
                               r"rxe[01] port 1 \(10\.77\.0\.[12]\)\)")
        self.assertIn("rxe0 port 1 is down", said)

        command, environment = ranks(2, "-b", "8", "-e", "8")
        done = run(command, environment)
        self.assertIn(done.returncode, range(1, 128), done.both)
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
