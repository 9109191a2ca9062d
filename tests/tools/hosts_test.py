#!/usr/bin/env python3
"""Ranks on several hosts, which are network namespaces here (tools/netns-run): shared memory inside, TCP between; links
that are cut, secrets that differ, ports that are taken, interfaces and names that do not exist."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

NETNS_RUN, PERF, TUNE = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
SENDRECV, PUT_CHECK = (os.path.join(os.path.dirname(PERF), name) for name in ("sendrecv_perf", "put_check"))
SMALL = ["-b", "8", "-e", "1M", "-f", "64", "-n", "3", "-w", "1"]


def run(*arguments, command=None, timeout=100, **environment):  # less than TCP waits for an answer
    command = command or [PERF, *SMALL]
    done = subprocess.run([sys.executable, NETNS_RUN, *arguments, "--", *command], capture_output=True, text=True,
                          timeout=timeout, env=dict(os.environ, **environment))
    done.both = done.stdout + done.stderr
    return done


# What the program gathers beside it connects no rank with another place of another host, either.
HIERARCHY = "all_reduce:hierarchy;all_gather:halving_doubling"


def shell(script):
    return ["sh", "-c", script]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:  # gone, perhaps between open and read
        return False


class OnHosts(unittest.TestCase):
    def setUp(self):
        self.needs()

    def needs(self, *options):
        """Skips the test if this machine has no such hosts."""
        probe = run("--probe", *options, command=["true"])
        if probe.returncode == 77:
            self.skipTest(probe.stderr.strip())

    def right(self, done):
        self.assertEqual(done.returncode, 0, done.both)
        rows = [line.split() for line in done.stdout.splitlines() if re.match(r" +\d+ ", line)]
        self.assertGreater(len(rows), 2, done.both)
        self.assertIn("Out of bounds values : 0 OK", done.stdout)

    def refused(self, done, *texts):
        self.assertIn(done.returncode, range(1, 128), done.both)  # beyond are crashes
        for text in texts:
            self.assertRegex(done.both, text)


class Together(OnHosts):
    def test_shared_memory_inside_and_tcp_between(self):
        done = run("--hosts", "2", "--ranks", "2", TUTTI_DEBUG="INFO", TUTTI_ALGO="direct")
        self.right(done)
        self.assertRegex(done.both, "rank 0 reaches rank 1 by shm")
        self.assertRegex(done.both, "rank 0 reaches rank 2 by tcp")
        self.assertRegex(done.both, r"connection 1 of 2 with rank 2: 10\.77\.0\.1:\d+ to 10\.77\.0\.2:\d+")

    def test_hierarchy_follows_the_hosts(self):
        done = run("--hosts", "2", "--ranks", "2", TUTTI_DEBUG="INFO", TUTTI_ALGO=HIERARCHY, TUTTI_VERIFY="1")
        self.right(done)
        self.assertNotRegex(done.both, "rank 0 reaches rank 3")  # which is another place of another host

    def test_hierarchy_follows_the_hosts_however_ranks_are_dealt(self):
        done = run("--hosts", "2", "--ranks", "2", "--cyclic", TUTTI_DEBUG="INFO", TUTTI_ALGO=HIERARCHY,
                   TUTTI_VERIFY="1")
        self.right(done)
        self.assertRegex(done.both, "rank 0 reaches rank 2 by shm")
        self.assertRegex(done.both, "rank 0 reaches rank 1 by tcp")
        self.assertNotRegex(done.both, "rank 0 reaches rank 3")

    def test_hierarchy_of_unequal_hosts(self):
        for algorithm in "hierarchy", "direct+ring":
            done = run("--ranks", "2,3", TUTTI_DEBUG="INFO", TUTTI_VERIFY="1",
                       TUTTI_ALGO=f"all_reduce:{algorithm};all_gather:halving_doubling")
            self.right(done)
            self.assertRegex(done.both, "rank 0 reaches rank 2 by tcp")  # ranks 2, 3, 4 are the other host's
            self.assertRegex(done.both, "rank 3 reaches rank 4 by shm")
            self.assertRegex(done.both, r"all_reduce.*: direct\+")
            self.assertNotRegex(done.both, "rank [01] reaches rank 4")  # a remainder rank of the two rails

    def test_hierarchy_of_unequal_hosts_however_ranks_are_dealt(self):
        done = run("--ranks", "3,1,2", "--cyclic", TUTTI_DEBUG="INFO", TUTTI_VERIFY="1",
                   TUTTI_ALGO="all_reduce:hierarchy")
        self.right(done)
        self.assertRegex(done.both, "rank 0 reaches rank [35] by shm")  # hosts are 0 3 5, 1, and 2 4

    def test_rows_by_hierarchies_of_unequal_hosts(self):
        names = {"all_gather": "direct+ring", "reduce_scatter": "direct+direct", "alltoall": "direct+direct"}
        for program, algorithm in names.items():
            collective = program.replace("alltoall", "all_to_all")
            for ranks in "2,3", "1,3,2":
                command = [os.path.join(os.path.dirname(PERF), f"{program}_perf"), *SMALL]
                done = run("--ranks", ranks, command=command, TUTTI_DEBUG="INFO", TUTTI_VERIFY="1",
                           TUTTI_ALGO=f"{collective}:{algorithm}")
                self.right(done)
                self.assertRegex(done.both, rf"{collective}.*: {re.escape(algorithm)}")

    def test_encrypted_if_one_says_so(self):
        """And authenticated alone, unless the other one wants more."""
        for mine, others, expected in (("1", "0", "encrypted by "), ("0", "mac", "in the clear, authenticated by "),
                                       ("mac", "1", "encrypted by "), ("0", "0", "in the clear\n")):
            done = run(command=shell(f'[ $RANK = 1 ] && export TUTTI_ENCRYPT={mine}; exec {PERF} {" ".join(SMALL)}'),
                       TUTTI_ENCRYPT=others, TUTTI_DEBUG="INFO")
            self.right(done)
            self.assertRegex(done.both, rf"connection 1 of 2 with rank 1: .*, {expected}")

    def test_long_path(self):
        """As one rank says; the others of both hosts agree, and ranks that share memory have as large messages."""
        for secret in "0", "1":
            done = run("--hosts", "2", "--ranks", "2", TUTTI_DEBUG="INFO", TUTTI_ENCRYPT=secret, command=shell(
                f"[ $RANK = 2 ] && export TUTTI_ROUND_TRIP_US=20000; {PUT_CHECK} -n 20 && "
                f"{SENDRECV} -b 8 -e 24M -f 64 -n 2 -w 1 && exec {PERF} -b 8 -e 32M -f 64 -n 2 -w 1"))
            self.right(done)
            self.assertIn("4 ranks on cpu: OK", done.stdout)
            told = set(re.findall(r"rank (\d) of 4: the path between hosts is long \(20\.0 ms", done.both))
            self.assertEqual(len(told), 4, done.both)
            self.assertRegex(done.both, "connection 4 of 4 with rank 2")

    def test_ipv6(self):
        done = run("--ipv6", TUTTI_DEBUG="INFO", TUTTI_SOCKETS="1")
        self.right(done)
        self.assertRegex(done.both, r"connection 1 of 1 with rank 1: \[fd77::1\]:\d+ to \[fd77::2\]:\d+")

    def test_several_networks_side_by_side(self):
        done = run("--rails", "2", TUTTI_DEBUG="INFO", TUTTI_SOCKET_IFNAME="eth", TUTTI_SOCKETS="1")
        self.right(done)
        self.assertRegex(done.both, r"connection 1 of 2 with rank 1: 10\.77\.0\.1:\d+ to 10\.77\.0\.2:\d+")
        self.assertRegex(done.both, r"connection 2 of 2 with rank 1: 10\.77\.1\.1:\d+ to 10\.77\.1\.2:\d+")

    def test_one_large_message_goes_by_all_networks(self):
        done = run("--rails", "2", TUTTI_SOCKET_IFNAME="eth", command=shell(
            f"{SENDRECV} -b 8M -e 8M -n 1 -w 0 && awk '/eth/ {{ print $1, $10 }}' /proc/net/dev"))
        self.assertIn("Out of bounds values : 0 OK", done.stdout)
        sent = [int(by) for by in re.findall(r"^eth\d: (\d+)$", done.stdout, re.MULTILINE)]
        self.assertEqual(len(sent), 4, done.both)
        self.assertGreater(min(sent), 0.2 * sum(sent), done.both)  # each a quarter

    def test_large_puts_and_gets_go_by_all_networks(self):
        done = run("--rails", "2", TUTTI_SOCKET_IFNAME="eth", command=shell(
            f"{PUT_CHECK} -n 5 --turns 3 && awk '/eth/ {{ print $1, $10 }}' /proc/net/dev"))
        self.assertIn("2 ranks on cpu: OK", done.stdout)
        sent = [int(by) for by in re.findall(r"^eth\d: (\d+)$", done.stdout, re.MULTILINE)]
        self.assertEqual(len(sent), 4, done.both)
        self.assertGreater(min(sent), 0.2 * sum(sent), done.both)  # rank 0 puts as much as rank 1 answers

    def test_puts(self):
        """By shared memory to the other rank of the host, over TCP to those of the other one."""
        for secret in ("0", "mac", "1"):
            done = run("--hosts", "2", "--ranks", "2", command=[PUT_CHECK, "-n", "50"], TUTTI_ENCRYPT=secret)
            self.assertEqual(done.returncode, 0, done.both)
            self.assertIn("4 ranks on cpu: OK", done.stdout)

    def test_narrow_link(self):
        self.right(run("--rate", "200mbit"))

    def test_hosts_by_their_ids(self):
        done = run("--hosts", "1", "--ranks", "2", TUTTI_DEBUG="INFO", command=shell(
            f'unset LOCAL_WORLD_SIZE; TUTTI_HOSTID=h$RANK exec {PERF} {" ".join(SMALL)}'))
        self.right(done)
        self.assertRegex(done.both, "rank 0 reaches rank 1 by tcp")


    def test_memory_is_that_of_each_machine(self):
        """A size that fits where a machine has two ranks, and not where it has all four."""
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/meminfo", "w") as file:
                file.write("MemAvailable: 40000 kB\n")  # 9.2 MB for each buffer of two ranks
            for host in ("0", "1"):
                with open(f"{folder}/id{host}", "w") as file:
                    file.write(f"machine {host}\n")
            pretend = (f"mount --bind {folder}/meminfo /proc/meminfo && "
                       f"mount --bind {folder}/id$0 /proc/sys/kernel/random/boot_id")
            probe = subprocess.run(["unshare", "-m", "sh", "-c", pretend, "0"], capture_output=True, text=True)
            if probe.returncode != 0:
                self.skipTest(f"nothing can be mounted here: {probe.stderr}")
            measure = f"{pretend} && exec {PERF} -b 8M -e 8M -n 1 -w 0"
            done = run("--hosts", "2", "--ranks", "2", command=shell(f"exec unshare -m sh -c '{measure}' $((RANK/2))"))
            self.assertEqual(done.returncode, 0, done.both)
            self.assertNotRegex(done.both, "memory limitation")
            done = run("--hosts", "2", "--ranks", "2", command=shell(f"exec unshare -m sh -c '{measure}' 0"))
            self.refused(done, "Reducing maxBytes to 4608000 due to memory limitation", "not even messages of 8388608")


class Tuned(OnHosts):
    """What tutti-tune --hosts measures of the path between hosts."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "tuning.json")

    def tune(self, *arguments):
        return run(*arguments, command=[TUNE, "--hosts", "--quiet", "--seconds", "0.01"], TUTTI_TUNING=self.file)

    def paths(self):
        with open(self.file) as file:
            return {path["transport"]: path for path in json.load(file)["between_hosts"]}

    def test_a_link_that_is_slow_is_found_to_be(self):
        done = self.tune("--hosts", "3", "--ranks", "2", "--rate", "200mbit")
        self.assertEqual(done.returncode, 0, done.both)
        pairs = re.findall(r"^tcp +(host\d) +(host\d) +([\d.]+) us +([\d.]+) GB/s$", done.stdout, re.MULTILINE)
        self.assertEqual([pair[:2] for pair in pairs], [("host0", "host1"), ("host0", "host2"), ("host1", "host2")])
        self.assertRegex(done.stdout, "wrote .*/tuning.json on each of 3 hosts")
        tcp = self.paths()["tcp"]
        self.assertGreater(tcp["us_per_byte"], 1 / 26)  # 200 Mbit/s are 25 bytes a microsecond
        self.assertAlmostEqual(tcp["latency_us"], max(float(pair[2]) for pair in pairs), delta=0.01)

    def test_a_long_path_has_figures_of_its_own(self):
        for round_trip, expected in ("", {"tcp"}), ("20000", {"tcp", "tcp, far"}):
            command = [TUNE, "--hosts", "--quiet", "--seconds", "0.01"]
            done = run(command=command, TUTTI_TUNING=self.file, TUTTI_ROUND_TRIP_US=round_trip)
            self.assertEqual(done.returncode, 0, done.both)
            self.assertEqual(set(self.paths()), expected)
        done = run(TUTTI_TUNING=self.file, TUTTI_DEBUG="INFO", TUTTI_ROUND_TRIP_US="20000")
        self.right(done)
        self.assertRegex(done.both, "paths between hosts by tcp, far: .* as tutti-tune has measured")

    def test_ranks_use_what_all_of_them_know(self):
        self.assertEqual(self.tune("--hosts", "2").returncode, 0)
        with open(self.file) as file:
            kept = file.read()
        self.right(run(TUTTI_TUNING="none"))
        done = run(TUTTI_TUNING=self.file, TUTTI_DEBUG="INFO")
        self.right(done)
        said = "paths between hosts by tcp: .* us, .* GB/s, as tutti-tune has measured"
        self.assertEqual(len(re.findall(said, done.both)), 2, done.both)
        done = run(command=shell(f"[ $RANK = 1 ] && export TUTTI_TUNING=none; exec {PERF} {' '.join(SMALL)}"),
                   TUTTI_TUNING=self.file, TUTTI_DEBUG="INFO")
        self.right(done)
        self.assertNotRegex(done.both, said)
        self.assertRegex(done.both, "rank 1 has other measurements of paths between hosts than rank 0: none are used")
        # What a host measures of itself leaves the paths as they are.
        command = [TUNE, "-n", "2", "--op", "barrier", "--quiet", "--seconds", "0.0001", "--out", self.file]
        alone = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        with open(self.file) as file:
            self.assertEqual(json.load(file)["between_hosts"], json.loads(kept)["between_hosts"])

    def test_parent_that_ignores_its_children(self):
        command = [TUNE, "-n", "2", "--op", "barrier", "--quiet", "--seconds", "0.0001", "--out", self.file]
        alone = subprocess.run(command, capture_output=True, text=True, timeout=60,
                               preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(alone.returncode, 0, alone.stderr)

    def test_what_is_not_measured_anew_stays(self):
        def sizes_after(*arguments):
            command = [TUNE, "--quiet", "--seconds", "0.0001", "--transport", "local", "--out", self.file, *arguments]
            alone = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertEqual(alone.returncode, 0, alone.stderr)
            with open(self.file) as file:
                return {(curve["op"], curve["ranks"]): [size for size, _ in curve["microseconds"]]
                        for curve in json.load(file)["measured"]}
        expected = {("barrier", 2): [0]}
        self.assertEqual(sizes_after("-n", "2", "--op", "barrier"), expected)
        expected["broadcast", 2] = [8, 16, 32]
        self.assertEqual(sizes_after("-n", "2", "--op", "broadcast", "--max-power", "5"), expected)
        expected["broadcast", 3] = [8]
        self.assertEqual(sizes_after("-n", "2", "3", "--op", "broadcast", "--max-power", "3"), expected)

    def test_the_first_failure_ends_it(self):
        alone = subprocess.run([TUNE, "--quiet", "-n", "2", "3", "--op", "barrier", "--out", self.file],
                               capture_output=True, text=True, timeout=60, env=dict(os.environ, TUTTI_PROGRAMS="/none"))
        self.assertEqual(alone.returncode, 1, alone.stderr)
        self.assertRegex(alone.stderr, "shm, 2 ranks: the file /none can't be read")
        self.assertRegex(alone.stderr, "something failed; nothing was written")
        self.assertNotRegex(alone.stderr, "3 ranks|local", "what would not be written")
        self.assertFalse(os.path.exists(self.file))

    def test_where_there_is_one_host(self):
        done = self.tune("--hosts", "1", "--ranks", "2")
        self.refused(done, "all ranks are on one host. Start tutti-tune as ranks of several hosts")
        self.assertFalse(os.path.exists(self.file))

    def test_a_transport_that_hosts_lack(self):
        done = run(command=[TUNE, "--hosts", "--quiet", "--transport", "plugin"], TUTTI_TUNING=self.file)
        self.refused(done, "transport plugin")
        self.assertFalse(os.path.exists(self.file))


class Apart(OnHosts):
    def test_a_host_is_cut_off(self):
        done = run("--ranks", "2", "--cut", "1@5", command=[PERF, "-b", "1M", "-e", "1M", "-n", "100000", "-T", "4"])
        self.refused(done, r"rank [01].*\brank [23] \(pid \d+ on host host1\)")

    def test_wrong_secret(self):
        done = run(command=shell(f"[ $RANK = 1 ] && export TUTTI_SECRET={'0' * 64}; exec {PERF} {' '.join(SMALL)}"),
                   TUTTI_INIT_TIMEOUT_MS="4000")
        self.refused(done, "another secret", r"rank 1 of 2 did not arrive within 4 s at .*; 10\.77\.0\.2:\d+ has "
                                             "called, and does not have this job's secret")

    def test_port_is_taken(self):
        taken = ("import os, socket, sys; s = socket.create_server((os.environ['MASTER_ADDR'], 29500)); "
                 "s.set_inheritable(True); os.execv(sys.argv[1], sys.argv[1:])")
        done = run(command=shell(f'[ $RANK = 0 ] && exec python3 -c "{taken}" {PERF}; exec {PERF}'),
                   TUTTI_INIT_TIMEOUT_MS="4000")
        self.refused(done, r"10\.77\.0\.1:29500, which MASTER_ADDR and MASTER_PORT name, is taken by another program")

    def test_two_jobs_on_one_port(self):
        # The second one, of another secret, comes while the first one waits for its rank 1, which comes when rank 0 of
        # the second one has been refused.
        first = f"({PERF} -b 8 -e 8 && echo $RANK: first) &"
        second = f"TUTTI_SECRET={'0' * 64} TUTTI_INIT_TIMEOUT_MS=2500 {PERF} -b 8 -e 8"
        with tempfile.TemporaryDirectory() as folder:
            refused = f"{folder}/refused"
            pause = "do sleep 0.1; done"
            done = run(command=shell(
                f"if [ $RANK = 0 ]; then {first} until ss -ltnH | grep -q :29500; {pause}; {second}; touch {refused}; "
                f"else until [ -e {refused} ]; {pause}; {first} {second}; fi; wait"))
        self.assertEqual(sorted(re.findall(r"^\d: first$", done.stdout, re.MULTILINE)), ["0: first", "1: first"],
                         done.both)
        self.assertRegex(done.both, r"10\.77\.0\.1:29500, which MASTER_ADDR and MASTER_PORT name, is taken")
        self.assertRegex(done.both, r"rank 1 could not reach the place where the ranks meet within 2.5 s "
                                    r"\(10\.77\.0\.1:29500: ")

    def test_large_packets_get_lost(self):
        self.needs("--largest", "1480")
        done = run("--largest", "1480", command=shell(f"{PERF} -b 8 -e 8 && exec {PERF} -b 1M -e 1M -T 20"))
        self.refused(done, "Out of bounds values : 0 OK",
                     r"rank [01] lost its connection with rank [01] \(pid \d+ on host host[01]\) \(10\.77.*: its host "
                     "acknowledges nothing .* MTU")

    def test_interface_that_is_not_there(self):
        done = run(TUTTI_SOCKET_IFNAME="ib7", TUTTI_INIT_TIMEOUT_MS="4000")
        self.refused(done, "TUTTI_SOCKET_IFNAME is 'ib7', but the interfaces of this host that are up are lo, eth0")

    def test_interface_that_the_others_do_not_reach(self):
        wrong = ("ip link add wrong type veth peer name other && ip addr add 10.99.0.1/24 dev wrong && "
                 "ip link set other up && ip link set wrong up && export TUTTI_SOCKET_IFNAME=wrong")
        done = run(command=shell(f"[ $RANK = 0 ] || {{ {wrong}; }}; exec {PERF} -b 8 -e 8 -T 4"))
        self.refused(done, r"rank 0 can't connect to rank 1 \(pid \d+ on host host1\): no connection to "
                           r"10\.99\.0\.1:\d+: Network is unreachable \(from eth0, 10\.77\.0\.1:\d+; "
                           r"TUTTI_SOCKET_IFNAME chooses others\)")

    def behind_a_firewall(self, rank, which, direction="input", after=0, command=f"{PERF} -b 8 -e 8 -T 20",
                          **environment):
        """What comes to that rank's host by the network, or goes from there, is dropped: an expression of nft's, or
        all. After so many seconds. All ranks have to end by themselves, with an error."""
        interface = "iifname" if direction == "input" else "oifname"
        rules = ["add table inet wall", f"add chain inet wall way {{ type filter hook {direction} priority 0; }}",
                 f"add rule inet wall way {interface} eth0 {which} drop"]
        self.needs("--largest", "1500")  # nft
        wall = f"nft '{'; '.join(rules)}'"
        wall = f"(sleep {after}; {wall}) &" if after else f"{wall};"
        done = run("--grace", "60", command=shell(
            f"if [ $RANK = {rank} ]; then {wall} fi; {command}; code=$?; "
            'echo "rank $RANK ended with $code"; exit $code'), **environment)
        codes = dict(re.findall(r"rank (\d) ended with (\d+)$", done.stdout, re.MULTILINE))
        self.assertEqual(sorted(codes), ["0", "1"], done.both)
        self.assertTrue(all(0 < int(code) < 128 for code in codes.values()), done.both)
        return done

    def test_firewall_in_one_direction(self):
        done = self.behind_a_firewall(1, "tcp flags & (syn | ack) == syn")
        self.refused(done, r"rank 0 can't connect to rank 1 \(pid \d+ on host host1\): no connection to "
                           r"10\.77\.0\.2:\d+: it did not answer in time \(from eth0, 10\.77\.0\.1:\d+")

    def test_firewall_where_the_ranks_meet(self):
        done = self.behind_a_firewall(0, "", TUTTI_INIT_TIMEOUT_MS="4000")
        self.refused(done, r"rank 1 of 2 did not arrive within 4 s at 10\.77\.0\.1:29500: have they started, and do "
                           "their hosts reach that address",
                     r"rank 1 could not reach the place where the ranks meet within 4 s \(10\.77\.0\.1:29500: ")

    def test_firewall_that_lets_the_ranks_meet_in_one_direction_only(self):
        here = r"10\.77\.0\.1:29500"
        unreached = rf"rank 1 could not reach the place where the ranks meet within 4 s \({here}: "
        for rank, which, direction in ((0, "", "output"), (1, "tcp flags & (syn | ack) == syn", "output")):
            with self.subTest(rank=rank, direction=direction):
                done = self.behind_a_firewall(rank, which, direction, TUTTI_INIT_TIMEOUT_MS="4000")
                self.refused(done, rf"rank 1 of 2 did not arrive within 4 s at {here}: have they started, and do their "
                                   "hosts reach that address", unreached)

    def test_firewall_in_one_direction_that_comes_amid_a_run(self):
        # By the connections for data or those for control, whichever notice first. What is let through may tell a rank
        # that the other one has given up.
        name = r"rank {} \(pid \d+ on host host{}\)"
        silent = "its host acknowledges nothing any more: it is cut off"
        lost = "|".join(rf"rank {a} lost its connection with {name.format(b, b)} \(10\.77\.0\.\d:\d+ to "
                        rf"10\.77\.0\.\d:\d+\): ({silent}|it has given the connection up)|{name.format(b, b)} can't "
                        rf"be reached from {name.format(a, a)} any more: {silent}" for a, b in ((0, 1), (1, 0)))
        for rank, direction in ((0, "input"), (0, "output")):
            with self.subTest(direction=direction):
                done = self.behind_a_firewall(rank, "", direction, 2, f"{PERF} -b 1M -e 1M -n 1000000 -T 60",
                                              TUTTI_SILENCE_MS="2000")
                self.refused(done, f"rank 0: ({lost})", f"rank 1: ({lost})")

    def test_large_packets_get_lost_amid_a_run(self):
        done = self.behind_a_firewall(1, "meta length > 1480", "input", 2, f"{PERF} -b 1M -e 1M -n 1000000 -T 60",
                                      TUTTI_SILENCE_MS="2000")
        self.refused(done, r"rank [01] lost its connection with rank [01] \(pid \d+ on host host[01]\) \(10\.77.*: "
                           "its host acknowledges nothing .* MTU")

    def test_rank_twice(self):
        done = run("--ranks", "1,2", command=shell(f"[ $RANK = 2 ] && RANK=1; exec {PERF} -b 8 -e 8"),
                   TUTTI_INIT_TIMEOUT_MS="20000")
        self.refused(done, r"rank 1 is there twice: as pid \d+ on host host1 and as pid \d+ on host host1")

    def test_name_that_does_not_resolve(self):
        done = run("--env", "MASTER_ADDR=nobody.invalid")
        self.refused(done, "MASTER_ADDR is 'nobody.invalid', which has no address")


class Runner(OnHosts):
    def test_codes_and_surroundings(self):
        self.assertEqual(run(command=shell("exit $((RANK * 3))")).returncode, 3)
        done = run("--ranks", "2", command=shell("echo $RANK $LOCAL_RANK $WORLD_SIZE $(hostname)"))
        self.assertEqual(sorted(done.stdout.split("\n"))[1:],
                         ["0 0 4 host0", "1 1 4 host0", "2 0 4 host1", "3 1 4 host1"])

    def test_nothing_is_left_after_a_kill(self):
        runner = subprocess.Popen([sys.executable, NETNS_RUN, "--", "sh", "-c", "echo $$; exec sleep 100"],
                                  stdout=subprocess.PIPE, text=True)
        pids = [int(runner.stdout.readline()) for _ in range(2)]
        runner.kill()
        runner.wait()
        end = time.monotonic() + 10
        while any(alive(pid) for pid in pids) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual([pid for pid in pids if alive(pid)], [])
        runner.stdout.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
