"""race_test.py TUTTI_RUN LIBNCCL REPORT PERF...: every *_perf races our own libnccl.so.2 on CPU buffers, both are
right, and bench/report makes a page of it. A library that can't be loaded, or refuses, is said to."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TUTTI_RUN, LIBRARY, REPORT, *PERF = (os.path.abspath(path) for path in sys.argv[1:])


def run(*command, code=0, **environment):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)
    assert done.returncode == code, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


class Race(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return str(pathlib.Path(self.folder.name, name))

    def test_all_programs(self):
        files = []
        for program in PERF:
            files.append(self.path(pathlib.Path(program).name + ".json"))
            said = run(program, "-t", "2", "-b", "8", "-e", "32K", "-f", "64", "-n", "5", "--vs", f"nccl={LIBRARY}",
                       "--json", files[-1])
            self.assertIn("Out of bounds values : 0 OK", said)
            self.assertIn("nccl's time over ours", said)
            document = json.loads(pathlib.Path(files[-1]).read_text())
            self.assertEqual((document["vs"]["library"], document["vs"]["refused"]), ("nccl", None))
            for row in document["results"]:
                self.assertEqual(row["out_of_place"]["vs"]["nwrong"], 0)
                self.assertGreater(row["out_of_place"]["vs"]["time"], 0)
        page = self.path("page.html")
        run(sys.executable, REPORT, *files, "-o", page)
        text = pathlib.Path(page).read_text()
        self.assertGreaterEqual(text.count("<svg"), 3 * len(files))
        self.assertNotIn('class="bad"', text)

    def test_processes_and_operations(self):
        said = run(TUTTI_RUN, "-n", "2", PERF[0], "-b", "1K", "-e", "1K", "-n", "3", "-o", "all", "--vs",
                   f"nccl={LIBRARY}")
        self.assertIn("Out of bounds values : 0 OK", said)

    def test_what_can_not_race(self):
        self.assertIn("cannot open", run(PERF[0], "-b", "8", "-e", "8", "--vs", "nccl=/nowhere.so", code=6))
        self.assertIn("was expected", run(PERF[0], "--vs", "mpi", code=6))
        # In NCCL's words, and ours are measured all the same.
        said = run(PERF[0], "-t", "2", "-b", "8", "-e", "8", "--vs", f"nccl={LIBRARY}", NCCL_COMM_ID="nonsense")
        self.assertIn("refuses these ranks", said)
        self.assertIn("NCCL_COMM_ID", said)
        self.assertIn("Out of bounds values : 0 OK", said)

    def test_nccls_variables(self):
        said = run(PERF[0], "-t", "2", "-b", "64K", "-e", "64K", "-n", "1", TUTTI_DEBUG="INFO",
                   NCCL_ALGO="allreduce:Ring,NVLS", NCCL_PROTO="LL")
        self.assertRegex(said, r"all_reduce of 65536 bytes: ring,")
        self.assertIn("NCCL_PROTO is set; it means nothing here", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
