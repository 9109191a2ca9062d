"""tutti_plan_test.py TUTTI_PLAN TUTTI_RUN ALL_REDUCE_PERF MANUAL: programs go into files and from files into ranks."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PLAN, TUTTI_RUN, PERF = (os.path.abspath(path) for path in sys.argv[1:4])
MANUAL = pathlib.Path(sys.argv[4])


def plan(*arguments, code=0):
    done = subprocess.run([PLAN, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout if code == 0 else done.stderr


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, text, name="p.json"):
        path = pathlib.Path(self.folder.name) / name
        path.write_text(text)
        return path

    def test_files_show_what_algorithms_show(self):
        for op, algorithm, more in (("all_reduce", "ring", []), ("gather", "binomial", ["--root", "2"]),
                                    ("barrier", "dissemination", [])):
            choice = ["--op", op, "--algo", algorithm, "--ranks", 5, *more]
            file = self.write(plan("export", *choice))
            self.assertEqual(plan("show", "--file", file), plan("show", *choice))
            self.assertEqual(plan("show", "--file", file, "--rank", 3), plan("show", *choice, "--rank", 3))
            proof, proof_of_file = plan("verify", *choice), plan("verify", "--file", file)
            self.assertEqual(proof_of_file, proof.replace(algorithm, "my_" + algorithm, 1))
            picture = plan("svg", *choice)
            self.assertEqual(plan("svg", "--file", file), picture.replace(f"by {algorithm}", f"by my_{algorithm}"))

    def test_all_collectives_and_roots(self):
        file = self.write(plan("export", "--algo", "ring", "--ranks", 3, "--name", "other"))
        proven = re.findall(r"^other (.*): proven$", plan("verify", "--file", file), re.M)
        roots = [f"{op}, 3 ranks, root {root}" for op in ("broadcast", "reduce") for root in range(3)]
        self.assertEqual(proven, [f"{op}, 3 ranks" for op in ("all_reduce", "reduce_scatter", "all_gather")] + roots)
        self.assertIn("root 1, rank 2 of 3", plan("show", "--file", file, "--op", "reduce", "--root", 1, "--rank", 2))
        self.assertIn("9 sets", plan("svg", "--file", file, code=2))
        self.assertIn("none of the 9 sets", plan("show", "--file", file, "--ranks", 4, code=2))
        only = self.write(plan("export", "--algo", "ring", "--ranks", 3, "--root", 1))
        self.assertEqual(plan("verify", "--file", only).count("root 1: proven"), 2)

    def test_a_disk_that_is_full(self):
        for command in ("list",), ("export", "--algo", "ring", "--ranks", "64"):
            with open("/dev/full", "w") as full:
                done = subprocess.run([PLAN, *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr),
                             (1, "tutti-plan: the output can't be written: No space left on device\n"))

    def test_what_an_algorithm_cannot_do(self):
        said = plan("verify", "--op", "all_gather", "--algo", "flat", "--ranks", 4, code=2)
        self.assertRegex(said, "^tutti-plan: flat cannot do all_gather; these can: ring, ")

    def test_hierarchies_of_hosts(self):
        for op, algorithm in ("all_reduce", "direct+ring"), ("all_reduce", "hierarchy"), ("broadcast", "direct+tree"):
            choice = ["--op", op, "--algo", algorithm, "--nodes", "3,5", *(["--root", 4] if op == "broadcast" else [])]
            file = self.write(plan("export", *choice))
            self.assertEqual(plan("show", "--file", file), plan("show", *choice))
            self.assertIn(f"my_{algorithm.replace('+', '_')} {op}, 8 ranks", plan("verify", "--file", file))
            self.assertIn("8 ranks on hosts of 3+5", plan("svg", *choice))
            self.assertNotEqual(plan("show", *choice), plan("show", "--op", op, "--algo", algorithm, "--ranks", 8))
        explained = plan("explain", "--op", "all_reduce", "--nodes", "4,4", "--bytes", "64K")
        self.assertIn("tcp", explained)
        self.assertIn("\ndirect+tree ", explained)
        self.assertNotIn("\nhierarchy ", explained)
        for option, value in ("--cores", "-3"), ("--cores", "0"), ("--round-trip", "-1"):
            self.assertIn(f"{option}: Value {value} not in range",
                          plan("explain", "--op", "all_reduce", "--ranks", 2, f"{option}={value}", code=2))
        for wrong, word in (["3,5", "--ranks", 7], "--ranks is 7"), (["3,0"], "a node of 0"):
            self.assertIn(word, plan("show", "--op", "all_reduce", "--algo", "ring", "--nodes", *wrong, code=2))

    def test_a_long_path_takes_large_tiles_and_few_rounds(self):
        for round_trip, tile in ("0", "65536"), ("1999", "65536"), ("50000", "2097152"):
            explained = plan("explain", "--op", "all_reduce", "--ranks", "2", "--bytes", "64M", "--transport", "tcp",
                             "--round-trip", round_trip)
            self.assertRegex(explained, rf"\nring +[\d.e+]+ +{tile} ")
        self.assertIn("flat is chosen", plan("explain", "--op", "all_reduce", "--nodes", "1,1,1,1", "--bytes", "8",
                                             "--cores", "2", "--round-trip", "50000"))

    def test_the_manuals_example(self):
        example, = re.findall(r"```json\n(.*?)```", MANUAL.read_text(), re.S)
        self.assertIn("star all_reduce, 3 ranks: proven", plan("verify", "--file", self.write(example)))

    def test_errors(self):
        text = plan("export", "--op", "all_reduce", "--algo", "ring", "--ranks", 3)
        wrong = self.write(text.replace('"recv 2", "input 1"', '"recv 2"'))
        error = plan("verify", "--file", wrong, code=1)
        self.assertTrue(error.startswith(f"{wrong}:11: all_reduce of 3 ranks: rank 0, step 2 "), error)
        shown = MANUAL.read_text().split("    mine.json:11: ")[1].split("\n\n")[0]
        self.assertEqual(error.split(":11: ")[1].split(), shown.split())
        self.assertIn("is said to complete", plan("svg", "--file", wrong, code=1))
        self.assertIn("{recv 2} -> {out[1], send 1}  completes", plan("show", "--file", wrong))  # to look at
        taken = self.write(text.replace("my_ring", "ring"))
        self.assertIn(f"{taken}:4: 'name': Tutti has", plan("verify", "--file", taken, code=1))
        self.assertIn("can't be read", plan("verify", "--file", "/does/not/exist", code=1))
        for arguments, word in ((["--algo", "magic", "--ranks", 3], "there is no --algo magic"),
                                (["--algo", "ring", "--ranks", 3, "--name", "a b"], "--name a b: 1 to 64 letters"),
                                (["--algo", "pair", "--ranks", 3], "two ranks only"),
                                (["--algo", "ring", "--ranks", 3, "--root", 3], "--root is 3"),
                                (["--algo", "ring", "--ranks", 3, "--op", "all_reduce", "--root", 1], "has no root")):
            self.assertIn(word, plan("export", *arguments, code=2))
        self.assertIn("or --file", plan("show", "--op", "all_reduce", code=2))
        self.assertIn("exclude", plan("show", "--file", wrong, "--algo", "ring", code=2))


class Ranks(unittest.TestCase):
    def checksum(self, algorithm, *launcher, file=None):
        environment = dict(os.environ, TUTTI_PROGRAMS=str(file)) if file else None
        done = subprocess.run([*launcher, "-b", "12", "-e", "800K", "-f", "40", "-n", "1", "-w", "0", "-c", "1", "-d",
                               "float", "--checksum", "--algo", algorithm], capture_output=True, text=True, timeout=60,
                              env=environment)
        found = re.search(r"Checksum of rank 0's results: ([0-9a-f]{16})", done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return found.group(1)

    def test_the_environment_loads_what_was_exported(self):
        processes, threads = [TUTTI_RUN, "-n", "3", PERF], [PERF, "-t", "3"]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(plan("export", "--algo", "ring", "--ranks", 3))
            file.flush()
            for launcher in (processes, threads):
                ring = self.checksum("ring", *launcher)
                self.assertNotEqual(ring, self.checksum("direct", *launcher))  # so that it tells them apart
                self.assertEqual(ring, self.checksum("my_ring", *launcher, file=file.name))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
