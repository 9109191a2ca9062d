#!/usr/bin/env python3
"""Programs as they ship, with nvcc's kernels, over the CUDA runtime on hosts. With --full, more combinations."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

FULL = "--full" in sys.argv
if FULL:
    sys.argv.remove("--full")
TUTTI_RUN, PERF, PUT_CHECK = (pathlib.Path(sys.argv.pop(1)).absolute() for _ in range(3))


def run(*command, **environment):
    environment = {"TUTTI_TUNING": "none", "TUTTI_TEST_GPU_MS": "60000", **environment}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240,
                          env={**os.environ, **environment})


class Perf(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def perf(self, collective, *arguments, launch=(), rows=3, device="cuda", **environment):
        program = self.folder / (collective + "_perf")
        program.unlink(missing_ok=True)
        program.symlink_to(PERF)
        done = run(*launch, program, "--device", device, "-n", "2", "-w", "0", *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("Out of bounds values : 0 OK", done.stdout)
        table = [line for line in done.stdout.splitlines() if line and not line.startswith("#")]
        self.assertEqual(len(table), rows, done.stdout)
        if device == "cuda":
            self.assertIn("[cuda] GPU on hosts", done.stdout)
        return done.stderr

    def test_threads(self):
        for collective in ("all_reduce", "alltoallv", "reduce_scatter"):
            self.perf(collective, "-t", "3", "-b", "64", "-e", "40000", "-f", "25", TUTTI_TEST_GPUS="2")

    def test_allocations_pins_and_maps_that_wait_for_kernels(self):
        def wait(*arguments, launch=(), device="cuda", peers=False, **environment):
            # small ones, then large ones; and what other peers are for
            for collective in ("all_reduce", "alltoall") if peers else ("all_reduce",):
                with self.subTest(collective=collective, arguments=arguments, launch=launch, **environment):
                    self.perf(collective, *arguments, "-b", "64", "-e", "40000", "-f", "625", rows=2, launch=launch,
                              device=device, TUTTI_TEST_GPU_WAITS="1", **environment)
        processes = (TUTTI_RUN, "-n", "3")
        wait("-t", "4", peers=True)
        wait("-t", "4", TUTTI_TEST_GPUS="2", TUTTI_TEST_GPU_PEERS="0")  # pinned FIFOs
        wait(launch=processes, peers=FULL)
        wait("--transport", "tcp", launch=processes, peers=FULL)
        if FULL:
            wait("-t", "3", "--transport", "tcp")
            wait("-t", "3", device="mixed")
            wait(launch=processes, TUTTI_TEST_GPUS="3", TUTTI_TEST_GPU_PEERS="0")
            wait("-t", "2", launch=(TUTTI_RUN, "-n", "2"), TUTTI_TEST_GPUS="2")

    def test_types_and_ops(self):
        self.perf("all_reduce", "-t", "2", "-b", "1000", "-e", "1000", "-d", "all", rows=12)
        self.perf("all_reduce", "-t", "2", "-b", "1000", "-e", "1000", "-o", "all", rows=6)

    def test_graphs(self):
        self.perf("alltoall", "-g", "4", "-b", "64", "-e", "40000", "-f", "25", "-G", "2")  # on spare streams, too
        self.perf("all_gather", "-t", "2", "-b", "64", "-e", "40000", "-f", "25", "-G", "2", TUTTI_TEST_GPUS="2")
        self.perf("all_reduce", "-g", "3", "-b", "64", "-e", "40000", "-f", "25", "-G", "2", TUTTI_TEST_GPUS="2")

    def test_processes(self):
        self.perf("all_reduce", "-b", "64", "-e", "500000", "-f", "80", launch=(TUTTI_RUN, "-n", "3"),
                  TUTTI_TEST_GPUS="2")

    def test_processes_that_share_a_gpu_say_so_once_unless_there_is_mps(self):
        for mps, wanted in (("0", 1), ("1", 0)):
            said = self.perf("all_reduce", "-b", "64", "-e", "64", rows=1, launch=(TUTTI_RUN, "-n", "3"),
                             TUTTI_TEST_GPUS="2", TUTTI_TEST_GPU_MPS=mps)
            self.assertEqual(said.count("2 processes of this communicator share GPU 0"), wanted, said)
            self.assertEqual(said.count("share GPU"), wanted, said)

    def test_without_peer_access(self):
        for launch, threads in (((), ("-t", "3")), ((TUTTI_RUN, "-n", "2"), ())):
            self.perf("all_reduce", *threads, "-b", "64", "-e", "40000", "-f", "25", launch=launch,
                      TUTTI_TEST_GPUS="2", TUTTI_TEST_GPU_PEERS="0")

    def test_through_host_memory(self):
        self.perf("all_reduce", "-b", "64", "-e", "40000", "-f", "25", "--transport", "tcp",
                  launch=(TUTTI_RUN, "-n", "2"), TUTTI_TEST_GPUS="2")
        self.perf("broadcast", "-t", "3", "-b", "64", "-e", "40000", "-f", "25", device="mixed")

    def test_copy_engines(self):
        for collective in ("all_gather", "alltoall") if FULL else ("alltoall",):
            for arguments, gpus, launch in ((["-t", "2"], "2", ()), (["-g", "3", "-G", "2"], "1", ()),
                                            ([], "2", (TUTTI_RUN, "-n", "2"))):
                with self.subTest(collective=collective, arguments=arguments):
                    self.perf(collective, *arguments, "-R", "2", "-x", "2", "-b", "64", "-e", "40000", "-f", "25",
                              launch=launch, TUTTI_TEST_GPUS=gpus)


class Checks(unittest.TestCase):
    def test_one_sided(self):
        for launch in ((), (TUTTI_RUN, "-n", "2")):
            done = run(*launch, PUT_CHECK, "--device", "cuda", "-n", "5", "--largest", "4000012" if FULL else "300001",
                       *(() if launch else ("-t", "3")))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("OK", done.stdout)


if __name__ == "__main__":
    unittest.main()
