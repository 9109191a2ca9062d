"""gpu_check_test.py GPU_CHECK BUILD: tools/gpu-check without a GPU: what it makes of programs that fail, hang, or are
right, with stubs in their place; targets, of figures that were made up; and short rehearsals with the programs of
BUILD: with ranks on CPUs, in place and packed, and on emulated GPUs."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.dont_write_bytecode = True  # no caches beside the sources
GPU_CHECK, BUILD = (pathlib.Path(os.path.abspath(sys.argv.pop(1))) for _ in range(2))
loader = importlib.machinery.SourceFileLoader("gpu_check", str(GPU_CHECK))
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(gpu_check)
runner, goals = sys.modules["gpu_runner"], sys.modules["gpu_targets"]

# A *_perf that prints a table for each --algo, and whose algorithms are as their names say.
STUB = """#!/bin/sh
echo "# tutti version 0"
while [ $# -gt 0 ]; do
    if [ "$1" = --algo ]; then
        echo "# Algorithm: $2"
        printf '           8             2     float     sum      -1'
        case $2 in
        fails*) echo "rank 1: $2 waited for rank 0" >&2; exit 3 ;;
        hangs) touch "$STUB_HANGS"; sleep 100 ;;
        wrong) echo "rank 0: element 3 is 7" >&2; echo "  1 1"; echo "# Out of bounds values : 1 FAILED"; code=7 ;;
        *) echo "    13.47    0.00    0.00       0"; echo "# Out of bounds values : 0 OK" ;;
        esac
        [ "$2" != leaves ] || { echo "rank 0: can't leave" >&2; exit 3; }
    fi
    shift
done
exit ${code:-0}
"""


# In the place of gpu_bench, which no emulated GPU can run.
GPU_BENCH = """#!/bin/sh
[ "$1" = --check ] || echo '{"empty_replay_us": 2, "reductions": []}' >"$2"
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"

    def stub(self, folder, text=STUB, name="all_reduce_perf"):
        (self.folder / folder).mkdir(exist_ok=True)
        path = self.folder / folder / name
        path.write_text(text)
        path.chmod(0o755)


class Cells(Folder):
    def check(self, *algorithms, seconds=60.0, limit=20):
        """{algorithm: (result, detail)} of one list, and the number of processes that it took."""
        self.stub("bin")
        self.out.mkdir()
        check = runner.Check(self.folder, self.out, seconds)
        check.environment["STUB_HANGS"] = str(self.folder / "hangs")
        with contextlib.redirect_stdout(io.StringIO()):
            check.tables(lambda a: a, "all_reduce", "threads", 2, algorithms, [], limit)
            self.code = check.summary()
        written = json.loads((self.out / "cells.json").read_text())["cells"]
        self.assertEqual([tuple(cell) for cell in written], check.cells)
        self.assertEqual([cell[0] for cell in check.cells], list(algorithms))
        return {what: (result, detail) for what, result, _, detail in check.cells}, check.commands

    def test_interrupted_while_a_command_starts(self):
        check = runner.Check(self.folder, self.out, 60)
        start = subprocess.Popen

        def interrupted(*arguments, **options):
            job = start(*arguments, **options)
            check.interrupt()
            return job

        with unittest.mock.patch.object(subprocess, "Popen", interrupted):
            result = check.execute(["sleep", "100"], 50)
        self.assertIsNone(result.returncode)
        self.assertLess(result.seconds, 40)

    def test_all_right(self):
        self.assertEqual(self.check("a", "b+c", "d,e"), (dict.fromkeys(("a", "b+c", "d,e"), ("OK", "")), 1))
        self.assertEqual(self.code, 0)

    def test_one_ends_the_process_and_the_others_go_on(self):
        cells, commands = self.check("a", "fails", "b", "wrong", "c")
        self.assertEqual({a: result for a, (result, _) in cells.items()},
                         {"a": "OK", "fails": "FAILED", "b": "OK", "wrong": "FAILED", "c": "OK"})
        self.assertEqual((commands, self.code), (2, 1))
        self.assertEqual(cells["fails"][1], "exit code 3: rank 1: fails waited for rank 0")
        self.assertIn("element 3 is 7", cells["wrong"][1])
        failures = (self.out / "failures.txt").read_text()
        self.assertIn("==== fails\n$ ", failures)
        self.assertIn("--algo fails", failures)
        self.assertIn("rank 1: fails waited for rank 0", failures)

    def test_wrong_at_the_end(self):
        cells, _ = self.check("a", "wrong")
        self.assertEqual((cells["a"][0], cells["wrong"][0]), ("OK", "FAILED"))

    def test_a_process_that_can_not_leave(self):
        cells, commands = self.check("a", "leaves")
        self.assertEqual((cells["a"][0], cells["leaves"][0], commands), ("OK", "FAILED", 1))
        self.assertIn("can't leave", cells["leaves"][1])

    def test_two_failures_are_enough(self):
        cells, commands = self.check("fails1", "fails2", "a")
        self.assertEqual((cells["a"], commands), (("skipped", "2 before it have failed"), 2))

    def test_a_hang(self):
        cells, _ = self.check("a", "hangs", limit=1)
        self.assertEqual((cells["a"][0], cells["hangs"][0]), ("OK", "FAILED"))
        self.assertIn("not finished within", cells["hangs"][1])

    def test_out_of_time_in_between(self):
        cells, _ = self.check("a", "hangs", "b", seconds=3)
        self.assertEqual({a: result for a, (result, _) in cells.items()},
                         {"a": "OK", "hangs": "skipped", "b": "skipped"})
        self.assertEqual(self.code, 3)

    def test_no_time_at_all(self):
        cells, commands = self.check("a", "b", seconds=0)
        self.assertEqual((cells, commands), (dict.fromkeys("ab", ("skipped", "out of time")), 0))

    def test_libraries_are_still_found_where_they_were(self):
        (self.folder / "bin").mkdir()
        with unittest.mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": "/a:/b"}):
            check = runner.Check(self.folder, self.out)
        self.assertEqual(check.environment["LD_LIBRARY_PATH"], f"{self.folder}/lib:/a:/b")

    def test_what_is_said_of_a_failure(self):
        row = "           8             2     float     sum      -1"
        for text, said in ((f"# a\n{row}rank 1: b\ntutti-run: c", "rank 1: b"),
                           (f"vm:1:1 TUTTI INFO a\n# b\n{row}   1.5   N/A   2e+03\nc", "c"), ("# a\n# b\n", "# b"),
                           ("", "")):
            self.assertEqual(runner.complaint(text), said)

    def test_what_kernels_have_moved_on_hosts_is_said_and_no_complaint(self):
        line = "GPUs on hosts: kernels have read {} bytes and written {}, and 2 in lines\n"
        text = line.format(7, 8) + line.format(9, 10)
        self.assertEqual(runner.moved("# header\n" + text), "16 B read, 18 B written, 4 B in lines")
        self.assertEqual(runner.moved("all is well"), "")
        self.assertEqual(runner.complaint(text + "rank 1: wrong"), "rank 1: wrong")

    def test_what_can_not_be_done_here(self):
        self.out.mkdir()
        check = runner.Check(self.folder, self.out)
        with contextlib.redirect_stdout(io.StringIO()):
            check.note("a", "FAILED", 1.0, "")
            check.withdraw("b", "another cell")
            self.assertEqual(check.count("FAILED"), 1)
            check.withdraw("a", "why")
        self.assertEqual(check.cells, [("a", "skipped", 0.0, "why")])

    def test_shares_of_the_time(self):
        check = runner.Check(self.folder, self.out, 100)
        planned = [(name, check.left()) for name in check.plan([("first", 1), ("second", 3)])]
        for (_, left), expected in zip(planned, (25, 100)):  # what the first has left is for the second
            self.assertAlmostEqual(left, expected, delta=5)


def rows(**times):
    return [{"size": int(size[1:]), "out_of_place": {"time": both[0]}, "in_place": {"time": both[1]}}
            for size, both in times.items()]


class Targets(unittest.TestCase):
    BYTES = 256 << 20

    def documents(self):
        copies, devices = [{"bandwidth": 3990.0}, {"bandwidth": 4000.0}], 4 * [{}]
        floor = 2 * 4 * self.BYTES / 4000 / 1e3  # us
        large = {"copies": copies, "config": {"devices": devices}}
        return {
            "reduction kernels": {"empty_replay_us": 1.5, "reductions": [
                {"type": kind, "sources": k, "ratio": 0.1 if k == 1 else 0.95 - k / 1000}
                for kind in ("float32", "bfloat16", "f8e4m3") for k in range(1, 9)]},
            "threads 4": large | {"results": rows(s268435456=(floor / 0.9, floor / 0.86))},
            "ring 4": large | {"results": rows(s268435456=(floor / 0.6, floor / 0.55))},
            "graph 1": {"results": rows(s8=(2.0, 0.1), s8192=(2.0, 0.2))},
            "graph 2": {"results": rows(s8=(3.0, 3.4), s8192=(5.0, 6.0))},
            "graph 4": {"results": rows(s8=(3.0, 3.4), s8192=(7.9, 6.0))},
            "graph 8": {"results": rows(s8=(3.0, 3.4), s8192=(7.9, 6.0))},
            "one rank": large | {"results": rows(s268435456=(2 * self.BYTES / 3900 / 1e3, 0.0))},
            "memory 8": {"kib": 46 * 1024}}

    def test_met(self):
        lines = goals.targets(self.documents())
        self.assertEqual({line["verdict"] for line in lines}, {"MET"})
        figures = {line["what"].split(",")[0]: line["figure"] for line in lines}
        self.assertEqual(figures["reduction kernel fp32"], "0.942 with 8")
        self.assertEqual(figures["all_reduce of 4 threads"], "0.900, in place 0.860")
        self.assertEqual(figures["the same by ring"], "0.600, in place 0.550")
        self.assertEqual(figures["all_reduce of 4 ranks in a graph"], "7.90 us at 8192 B")
        self.assertEqual(figures["one rank"], "0.975")
        self.assertEqual(figures["GPU memory of a communicator of 8 ranks"], "46.0 MiB")
        self.assertIn("1.90 us (the empty one 1.50 us)", goals.table(lines))

    def test_missed_one_by_one(self):
        def slower(name, size, half, time):
            def change(documents):
                next(r for r in documents[name]["results"] if r["size"] == size)[half]["time"] = time
            return change

        changes = {
            "reduction kernel bf16": lambda d: d["reduction kernels"]["reductions"][8 + 2].update(ratio=0.919),
            "all_reduce of 4 threads": slower("threads 4", self.BYTES, "in_place", 2 * 4 * self.BYTES / 4e6 / 0.84),
            "the same by ring": slower("ring 4", self.BYTES, "out_of_place", 2 * 4 * self.BYTES / 4e6 / 0.49),
            "all_reduce of 8 ranks in a graph": slower("graph 8", 8192, "in_place", 8.0),
            "all_reduce of 2 ranks in a graph, 8 B, over": slower("graph 2", 8, "out_of_place", 3.6),
            "one rank, 256 MiB": slower("one rank", self.BYTES, "out_of_place", 2 * self.BYTES / 4e6 / 0.94),
            "one rank in place": slower("graph 1", 8192, "in_place", 1.3),
            "GPU memory": lambda d: d["memory 8"].update(kib=96 * 1024)}
        for head, change in changes.items():
            with self.subTest(head):
                documents = self.documents()
                change(documents)
                missed = [line["what"] for line in goals.targets(documents) if line["verdict"] != "MET"]
                self.assertEqual((len(missed), missed[0][:len(head)]), (1, head))

    def test_not_measured(self):
        self.assertEqual({line["verdict"] for line in goals.targets({})}, {"not measured"})
        documents = self.documents()
        documents["reduction kernels"]["reductions"].pop()  # fp8 with 8 sources
        del documents["threads 4"]["copies"]
        unknown = [line["what"] for line in goals.targets(documents) if line["verdict"] == "not measured"]
        self.assertEqual([what[:20] for what in unknown], ["reduction kernel fp8", "all_reduce of 4 thre"])


class Rehearsal(Folder):
    def command(self, *arguments, program=GPU_CHECK, build=BUILD, device="cpu"):
        where = ["--build", str(build), "--out", str(self.out)]
        return [sys.executable, str(program), "--rehearse", device, *where, *arguments]

    def run_it(self, *arguments, code=0, **where):
        done = subprocess.run(self.command(*arguments, **where), capture_output=True, text=True, timeout=120,
                              check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        cells = json.loads((self.out / "cells.json").read_text())["cells"]
        return done.stdout, {what: (result, detail) for what, result, _, detail in cells}

    def test_hosts_need_their_programs(self):
        done = subprocess.run(self.command(build=self.folder, device="hosts"), capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("has no tests/cuda/perf-on-hosts: build the tests where nvcc is", done.stderr)

    def failing(self):
        """A build whose all_reduce_perf is the stub."""
        self.stub("bench")
        (self.folder / "tools").symlink_to(BUILD / "tools")
        return self.folder

    def test_some_of_it(self):
        said, cells = self.run_it("--match", "smoke: .*processes|bench: .*(4 threads, 2|8 ranks|NCCL)|mixed by shm|"
                                  "^all_reduce .* 2 threads$|training: (one|zero3)|sendrecv 3 processes|sanitizer")
        results = {what: result for what, (result, _) in cells.items()}
        for what in ("smoke: all_reduce, 2 processes", "bench: all_reduce ring 4 threads, 256 MiB",
                     "bench: all_reduce beside NCCL", "all_reduce double_tree 2 threads",
                     "training: zero3, 2 processes, the same loss",
                     "a killed rank is named by the others, mixed by shm", "sendrecv 3 processes, mixed, by shm"):
            self.assertEqual(results[what], "OK")
        self.assertEqual(cells["compute-sanitizer memcheck"], ("skipped", "it needs a GPU"))
        self.assertEqual({result for result in results.values()}, {"OK", "skipped"})
        self.assertIn("TUTTI INFO rank 1 reaches rank 0 by shm", (self.out / "smoke.txt").read_text())
        self.assertEqual((self.out / "failures.txt").read_text(), "")
        documents = json.loads((self.out / "benchmarks.json").read_text())
        self.assertEqual(documents["ring 4"]["config"]["algorithm"], "ring")
        self.assertEqual(documents["memory 8"]["communicators"], 8)
        report = GPU_CHECK.parent.parent / "bench" / "report"
        page = subprocess.run([sys.executable, report, self.out / "benchmarks.json", "-o", self.out / "page.html"],
                              capture_output=True, text=True, check=False)
        self.assertRegex(page.stdout, "measurements from [3-9] runs", page.stderr)
        known = [line for line in goals.targets(documents) if line["verdict"] != "not measured"]
        self.assertEqual(len(known), 3)  # of the floor, by default and by ring; memory
        self.assertIn("skipped     0.0 s  compute-sanitizer memcheck  (it needs a GPU)\n", said)

    def test_on_emulated_gpus(self):
        self.stub("bench", GPU_BENCH, "gpu_bench")
        wanted = ("smoke: .*(one thread|processes|graph|kernels)|killed rank .* by p2p|training: one rank|"
                  "bench: (reduction|graph of [12]|.*one rank)|graphs of 2 threads by local|"
                  "sendrecv 3 processes, mixed|^(broadcast|sendrecv) .* 2 threads$")
        programs = {f"bench/{c}_perf": "perf-emulated" for c in gpu_check.COLLECTIVES + gpu_check.MADE_OF_MESSAGES}
        programs |= {"bench/dp_check": "dp_check-emulated", "bench/put_check": "put_check-emulated"}
        programs |= {"examples/train_chars": "train_chars-emulated"}
        (self.folder / "examples").mkdir()
        (self.folder / "tools").symlink_to(BUILD / "tools")
        for name, program in programs.items():
            (self.folder / name).symlink_to(BUILD / "tests" / "tools" / program)
        _, cells = self.run_it("--only", "smoke,benchmarks,correctness", "--match", wanted, device="cuda",
                               build=self.folder)
        self.assertEqual({result for result, _ in cells.values()}, {"OK"}, cells)
        self.assertGreater(len(cells), 15)
        lines = goals.targets(json.loads((self.out / "benchmarks.json").read_text()))
        known = {line["what"].split(",")[0] for line in lines if line["verdict"] != "not measured"}
        self.assertEqual(known, {"all_reduce of 2 ranks in a graph", "one rank", "one rank in place"})

    def test_a_failure_is_named(self):
        said, cells = self.run_it("--only", "correctness", "--match", "every type", code=1, build=self.failing())
        self.assertEqual(cells["all_reduce every type and operation, 4 threads"][0], "FAILED")
        self.assertEqual(cells["all_gather every type and operation, 4 threads"][0], "FAILED")  # it is not there
        self.assertRegex(said, r"(?m)^FAILED .* all_reduce every type and operation, 4 threads")
        self.assertIn("==== all_reduce every type", (self.out / "failures.txt").read_text())

    def test_a_part_that_breaks_does_not_end_the_others(self):
        self.stub("bench")  # but there is no tools/tutti-plan
        _, cells = self.run_it("--only", "correctness,sanitizers", "--match", "ring 4 threads|itself|memcheck",
                               code=1, build=self.folder)
        self.assertEqual(cells["correctness: gpu-check itself"][0], "FAILED")
        self.assertIn("tutti-plan", cells["correctness: gpu-check itself"][1])
        self.assertEqual(cells["compute-sanitizer memcheck"][0], "skipped")

    def test_out_of_time(self):
        said, cells = self.run_it("--seconds", "0", code=3)
        self.assertEqual({result for result, _ in cells.values()}, {"skipped"})
        self.assertGreater(len(cells), 200)
        for what in ("smoke: all_reduce, one rank", "bench: all_reduce 4 threads, 256 MiB", "broadcast ring 8 threads",
                     "training: zero2, 2 processes, the same loss"):
            self.assertIn(f"  {what}  (out of time)\n", said)

    def test_interrupted(self):
        job = subprocess.Popen(self.command("--only", "correctness", "--match", "^all_reduce .* 4 threads$",
                                            build=self.failing()), stdout=subprocess.PIPE, text=True,
                               env=os.environ | {"STUB_HANGS": str(self.folder / "hangs")})
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        (self.folder / "bench" / "all_reduce_perf").write_text(STUB.replace("hangs)", "tree)"))
        end = time.monotonic() + 60
        while not (self.folder / "hangs").exists() and time.monotonic() < end:
            time.sleep(0.05)
        job.send_signal(signal.SIGTERM)
        said, _ = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 3, said)
        results = {what: result for what, result, *_ in json.loads((self.out / "cells.json").read_text())["cells"]}
        self.assertEqual((results["all_reduce ring 4 threads"], results["all_reduce tree 4 threads"],
                          results["all_reduce bruck 4 threads"]), ("OK", "skipped", "skipped"))

    def test_packed(self):
        packed = self.folder / "packed"
        subprocess.run([sys.executable, str(GPU_CHECK), "--build", str(BUILD), "pack", str(packed)], check=True,
                       capture_output=True, timeout=120)
        linked = subprocess.run(["ldd", *map(str, (packed / "bin").iterdir())], capture_output=True, text=True,
                                check=True, env=os.environ | {"LD_LIBRARY_PATH": str(packed / "lib")}).stdout
        self.assertNotIn("not found", linked)
        elsewhere = {line.split()[0].split(".")[0] for line in linked.splitlines()
                     if "=> /" in line and str(packed) not in line}
        self.assertLessEqual(elsewhere, {"libc", "libm", "libdl", "librt", "libpthread", "libstdc++", "libgcc_s"})
        wanted = "smoke: all_reduce, 2|one rank on a CPU|data parallelism 2|^gather binomial 2"
        _, cells = self.run_it("--match", wanted, program=packed / "gpu-check",
                               build=self.folder / "nowhere")
        self.assertEqual({result for result, _ in cells.values()}, {"OK"})
        self.assertEqual(len(cells), 6)


if __name__ == "__main__":
    unittest.main()
