#!/usr/bin/env python3
"""The *_perf programs from outside: refusals, exit codes, the table's shape, the JSON report."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TUTTI_RUN, PERF, IDLE_GETS = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)).parent, sys.argv.pop(1)
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "alltoall", "alltoallv", "gather",
               "scatter", "sendrecv", "hypercube")


def perf(collective, *arguments, launch=()):
    return subprocess.run([*launch, str(PERF / (collective + "_perf")), *arguments], capture_output=True, text=True,
                          timeout=120)


def rows(done):
    return [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]


class Refusals(unittest.TestCase):
    def test_usage(self):
        for arguments in (["-Q"], ["--nonsense"], ["-b", "4X"], ["-b", "-4"], ["-e", ""], ["-b"], ["-d", "quad"],
                          ["-o", "median"], ["-z", "2"], ["-G", "1"], ["-D", "1"], ["-n", "0"], ["-n", "many"],
                          ["-t", "0"], ["-g", "-1"], ["-a", "4"], ["--device", "tpu"], ["--memory", "far"],
                          ["-b", "8", "-e", "4"], ["-i", "0", "-b", "1", "-e", "2"], ["-r", "1", "-b", "8", "-e", "8"],
                          ["-G", "1", "-I", "1", "--device", "cuda"], ["stray"],
                          ["-J", "/nonexistent/x.json", "-b", "8", "-e", "8"]):
            with self.subTest(arguments=arguments):
                done = perf("reduce", *arguments)
                self.assertEqual(done.returncode, 6, done.stderr)
                self.assertNotEqual(done.stderr, "")
                self.assertEqual(rows(done), [])

    def test_steps_of_nothing(self):
        done = perf("all_reduce", "-b", "8", "-e", "8", "-i", "0", "-n", "1")
        self.assertEqual((done.returncode, len(rows(done))), (0, 1), done.stderr)

    def test_rounds(self):
        for arguments in (["-t", "3"], ["-g", "2"], ["-t", "2", "-m", "2"]):
            with self.subTest(arguments=arguments):
                done = perf("hypercube", "-b", "8", "-e", "8", *arguments)
                self.assertEqual((done.returncode, rows(done)), (6, []))

    def test_reason_comes_first_and_once(self):
        done = perf("all_reduce", "-d", "quad", launch=(TUTTI_RUN, "-q", "-n", "4"))
        self.assertEqual(done.returncode, 6)
        self.assertRegex(done.stderr, "^all_reduce_perf: .*unknown type 'quad'.*\nUsage: ")
        self.assertEqual(done.stderr.count("unknown type"), 1)

    def test_cuda_is_not_built(self):
        done = perf("all_reduce", "--device", "cuda")
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1))

    def test_dp_check_without_a_case(self):
        done = subprocess.run([str(PERF / "dp_check"), "--device", "cpu", "--match", "no such case"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "dp_check: no case has a name with no such case\n")

    def test_put_check_with_gets_that_do_nothing(self):
        done = subprocess.run([str(PERF / "put_check"), "-t", "2", "-n", "1"], capture_output=True, text=True,
                              timeout=120, env=dict(os.environ, LD_PRELOAD=IDLE_GETS))
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("rank 0: 1 of 1 bytes that it gets from rank 1 are wrong (round 0)", done.stderr)

    def test_a_tuning_file_that_is_not_there_is_told(self):
        done = subprocess.run([str(PERF / "all_reduce_perf"), "-b", "8", "-e", "8"], capture_output=True, text=True,
                              timeout=120, env=dict(os.environ, TUTTI_TUNING="/nowhere/x.json", TUTTI_DEBUG="INFO"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("TUTTI INFO TUTTI_TUNING: there is no file /nowhere/x.json", done.stderr)

    def test_library_error(self):
        done = perf("all_reduce", "-b", "8", "-e", "8", "--algo", "no-such-algorithm")
        self.assertEqual(done.returncode, 3)
        self.assertIn("no-such-algorithm", done.stderr)
        done = perf("all_reduce", "-b", "8", "-e", "8", "--algo", "dissemination")
        self.assertEqual(done.returncode, 3)
        self.assertIn("not capable of all_reduce; these are: ring", done.stderr)

    def test_bandwidth_too_low(self):
        self.assertEqual(perf("all_reduce", "-b", "8", "-e", "8", "-t", "2", "--min_bw", "1e9").returncode, 7)


class Table(unittest.TestCase):
    def test_communicators_that_the_environment_has_made_in_the_background(self):
        done = perf("all_reduce", "-b", "8", "-e", "8", "-n", "1", launch=["env", "NCCL_COMM_BLOCKING=0"])
        self.assertEqual((done.returncode, len(rows(done))), (0, 1), done.stderr)

    def test_shape(self):
        for collective in COLLECTIVES:
            with self.subTest(collective=collective):
                done = perf(collective, "-b", "256", "-e", "4K", "-f", "4", "-n", "2", "-t", "2")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("\n# Out of bounds values : 0 OK\n", done.stdout)
                self.assertIn(f"# Collective test starting: {collective}_perf\n", done.stdout)
                self.assertEqual([row[0] for row in rows(done)], ["256", "1024", "4096"])
                self.assertEqual({len(row) for row in rows(done)}, {13})
                self.assertEqual({row[8] for row in rows(done)}, {"0"})
                out_of_place_only = collective in ("alltoall", "alltoallv", "sendrecv")
                self.assertEqual({row[12] for row in rows(done)}, {"N/A" if out_of_place_only else "0"})

    def test_ranks_learn_whether_buffers_are_mapped(self):
        told = "the buffers of all ranks of the last call can be mapped by peers"
        arguments = ("-b", "2M", "-e", "2M", "-n", "3")
        for memory, times in (("private", 0), ("mapped", 3)):
            with self.subTest(memory=memory):
                done = perf("all_reduce", *arguments, "--memory", memory,
                            launch=(TUTTI_RUN, "-q", "-n", "3", "env", "TUTTI_DEBUG=INFO"))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual((done.stdout + done.stderr).count(told), times)

    def test_columns(self):
        done = perf("all_reduce", "-b", "8", "-e", "8", "-n", "2")
        lines = [line for line in done.stdout.splitlines() if line]
        head = next(line for line in lines if line.startswith("#       size"))
        self.assertEqual(head.rstrip(),
                         "#       size         count      type   redop    root     time   algbw   busbw  "
                         "#wrong     time   algbw   busbw  #wrong")
        row = next(line for line in lines if not line.startswith("#"))
        self.assertRegex(row, "^           8             2     float     sum      -1  ")

    def test_counts(self):
        for collective, count in (("reduce_scatter", "64"), ("all_gather", "64"), ("broadcast", "256")):
            row = rows(perf(collective, "-b", "1K", "-e", "1K", "-t", "4", "-n", "1"))[0]
            self.assertEqual(row[:2], ["1024", count])

    def test_uneven_and_rounds_between_processes(self):
        for collective in ("alltoallv", "hypercube"):
            for ranks in ("1", "2", "4"):
                with self.subTest(collective=collective, ranks=ranks):
                    done = perf(collective, "-b", "8", "-e", "4M", "-f", "8", "-n", "2", "-d", "half",
                                launch=(TUTTI_RUN, "-q", "-n", ranks))
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertEqual({row[8] for row in rows(done)}, {"0"})

    def test_roots_ops_and_types(self):
        done = perf("reduce", "-b", "64", "-e", "64", "-t", "2", "-n", "1", "-r", "-1", "-o", "all", "-d", "all")
        self.assertEqual(len(rows(done)), 12 * 6 * 2)
        self.assertEqual({row[4] for row in rows(done)}, {"0", "1"})
        self.assertEqual(done.returncode, 0)

    def test_unchecked(self):
        self.assertEqual(rows(perf("all_reduce", "-b", "8", "-e", "8", "-c", "0", "-n", "1"))[0][8], "N/A")

    def test_more_columns(self):
        done = perf("all_reduce", "-b", "8", "-e", "8", "-t", "3", "-n", "3", "-I", "1",
                    "--error", "-S", "1", "-d", "half")
        self.assertEqual(len(rows(done)[0]), 13 + 2 * 5 + 2)

    def test_ways_to_have_four_ranks(self):
        for launch, arguments in (((), ["-t", "4"]), ((), ["-g", "4"]), ((), ["-t", "2", "-g", "2", "-p", "1"]),
                                  ((TUTTI_RUN, "-n", "4"), []), ((TUTTI_RUN, "-n", "2"), ["-g", "2"]),
                                  ((TUTTI_RUN, "-n", "2"), ["-t", "2", "-y", "0"])):
            with self.subTest(launch=launch, arguments=arguments):
                done = perf("all_reduce", "-b", "8", "-e", "32K", "-f", "8", "-n", "2", *arguments, launch=launch)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout.count("#  Rank "), 4)

    def test_other_ways_of_running(self):
        for arguments in (["-m", "3"], ["-z", "1"], ["-u", "1"], ["-N", "2"], ["-C", "1"], ["-a", "3"], ["-R", "1"],
                          ["--memory", "mapped"], ["--algo", "ring"], ["-M", "1"], ["-T", "20"], ["-x", "1"]):
            with self.subTest(arguments=arguments):
                done = perf("all_reduce", "-b", "8", "-e", "32K", "-f", "64", "-n", "2", "-t", "2", *arguments)
                self.assertEqual((done.returncode, done.stderr), (0, ""))


class Algorithms(unittest.TestCase):
    """--algo several times: a table for each, one after the other."""

    def test_a_table_and_a_file_for_each(self):
        for launch, ranks in (((), ["-t", "2"]), ((), ["-g", "2"]), ((TUTTI_RUN, "-q", "-n", "2"), [])):
            with self.subTest(launch=launch, ranks=ranks), tempfile.TemporaryDirectory() as directory:
                path = pathlib.Path(directory) / "report.json"
                done = perf("all_reduce", "-b", "8", "-e", "64", "-f", "8", "-n", "1", *ranks, "--algo", "ring",
                            "--algo", "direct,ring", "--algo", "all_reduce:tree;*:ring", "--json", str(path),
                            "--copies", launch=launch)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                told = [line[13:] for line in done.stdout.splitlines() if line.startswith("# Algorithm: ")]
                self.assertEqual(told, ["ring", "direct,ring", "all_reduce:tree;*:ring"])
                self.assertEqual([row[0] for row in rows(done)], 3 * ["8", "64"])
                self.assertEqual(done.stdout.count("Out of bounds values : 0 OK"), 3)
                files = [path, path.with_name("report.json.0"), path.with_name("report.json.1")]
                reports = [json.loads(file.read_text()) for file in files]
                self.assertEqual([report["config"]["algorithm"] for report in reports], told)
                for report in reports:
                    self.assertEqual(len(report["results"]), 2)
                    self.assertEqual([copy["size"] for copy in report["copies"]], [64, 64])
                    self.assertGreater(report["copies"][0]["bandwidth"], 0)

    def test_what_came_before_a_failure_is_told(self):
        done = perf("all_reduce", "-b", "8", "-e", "8", "-n", "1", "-t", "2", "--algo", "ring", "--algo", "nonsense",
                    "--algo", "tree")
        self.assertEqual((done.returncode, len(rows(done))), (3, 1))
        self.assertIn("nonsense", done.stderr)
        self.assertNotIn("Algorithm: tree", done.stdout)


class Json(unittest.TestCase):
    def test_report(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "report.json"
            for _ in range(2):
                perf("all_reduce", "-b", "8", "-e", "64", "-f", "8", "-n", "1", "-t", "2", "--json", str(path),
                     launch=("env", "TUTTI_SECRET=" + 64 * "e"))
            self.assertEqual({p.name for p in path.parent.iterdir()}, {"report.json", "report.json.0"})
            self.assertNotIn(64 * "e", path.read_text())
            report = json.loads(path.read_text())
        self.assertEqual(report["version"], 3)
        self.assertEqual(len(report["config"]["devices"]), 2)
        self.assertEqual([row["size"] for row in report["results"]], [8, 64])
        self.assertLessEqual({"time", "alg_bw", "bus_bw", "nwrong"}, set(report["results"][0]["in_place"]))
        self.assertEqual(report["out_of_bounds"], {"count": 0, "okay": True})
        for key in ("start_time", "end_time", "args", "env", "average_bus_bandwidth", "errors"):
            self.assertIn(key, report)


if __name__ == "__main__":
    unittest.main()
