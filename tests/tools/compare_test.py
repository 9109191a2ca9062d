"""compare_test.py COMPARE BUILD: what bench/compare/compare runs, in which order, and what it writes down, with stubs
in the place of the libraries and of the machine."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # no caches beside the sources
COMPARE, BUILD = pathlib.Path(sys.argv.pop(1)).resolve(), pathlib.Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(COMPARE.parent), str(COMPARE.parent.parent)]
import contenders  # noqa: E402
import measurements  # noqa: E402
import measuring  # noqa: E402
import plot  # noqa: E402
import verdict  # noqa: E402
from collectives import COLLECTIVES  # noqa: E402

# A library is NAME US...: it takes so long, in its first call, its second, ...
LIBRARY = """#!/bin/sh
echo "$1" >>log
name=$1; shift
calls=$(grep -c "^$name\\$" log)
shift $((calls - 1))
printf '{"bytes": 1024, "us": [%s]}\\n' "$1"
"""
# One process. The first call is right; what it gets stays.
STALE = """#include <string.h>
#include "loop.h"
static void once(const float* in, float* out, size_t count) {
    static int calls;
    if (calls++ == 0) memcpy(out, in, count * sizeof *in);
}
static double largest(double mine) { return mine; }
int main(int count, char** arguments) {
    const struct call calls[] = {{"all_gather", once}, {NULL, NULL}};
    const struct library library = {0, 1, calls, largest, NULL};
    const struct effort effort = {0.001, 1};
    time_sizes(&library, arguments[count - 1], "400", &effort);
}
"""
MACHINE = """#!/bin/sh
echo "machine $1" >>log
calls=$(grep -c machine log)
echo "{\\"hand_over_ns\\": 5$calls, \\"meeting_us\\": 0.$calls, \\"copy_one_core_gbs\\": 1$calls," \\
    "\\"copy_by_size_gbs\\": {\\"1024\\": 2$calls, \\"67108864\\": 2}}"
"""


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        measuring.say = lambda text: None
        for name, text in (("library", LIBRARY), ("machine", MACHINE)):
            pathlib.Path(name).write_text(text)
            pathlib.Path(name).chmod(0o755)

    def setting(self, library, label, *us):
        return contenders.Setting(library, label, (), ("./library", library + "/" + label, *map(str, us)))

    def log(self):
        return pathlib.Path("log").read_text().split("\n")[:-1]

    def test_the_machine_takes_its_turn_in_every_round(self):
        chosen = {self.setting("Tutti private", "", 7, 9, 8): [1024], self.setting("MPICH", "a", 30, 10, 20): [1024]}
        rows, limits = measuring.alternate(chosen, 2, 3, (1, 1, 60), "./machine", [8, 1024])
        log = self.log()
        for round_of in (log[0:3], log[3:6], log[6:9]):
            self.assertEqual(sorted(round_of), ["MPICH/a", "Tutti private/", "machine 2"])
        self.assertEqual([row["us"] for row in sorted(rows, key=lambda row: row["library"])], [20, 8])
        self.assertEqual(limits, {"hand_over_ns": 51, "meeting_us": 0.1, "copy_one_core_gbs": 13,
                                  "copy_by_size_gbs": {"1024": 23, "67108864": 2}})

    def test_batches_are_told_apart_by_the_distance_of_the_cores(self):
        def run(*batches):
            return [measuring.Batch(us, ways) for us, *ways in batches]
        runs = {"a": run((1, 30, 31), (9, 30, 200), (5, 200, 201), (7, 210, 190), (2, 60, 30)), "b": run((4, 35, 33))}
        both = {"near": {"us": 1.5, "batches": 2}, "far": {"us": 6, "batches": 2}}
        self.assertEqual(measuring.apart(runs), {"a": both, "b": {"near": {"us": 4, "batches": 1}}})
        for steady in ({"b": runs["b"]}, {"b": [measuring.Batch(4)]}, {"b": []}):
            self.assertEqual(measuring.apart(steady), {"b": {}})
        rows = [{"ranks": 2, "bytes": 1024, "library": library, "setting": "", "us": 5, **parts} for library, parts in
                (("Tutti private", both), ("MPICH", {"near": {"us": 3, "batches": 4}}))]
        near, far = verdict.Results(rows).apart()
        self.assertEqual((near.time(2, 1024, "Tutti private"), near.best_peer(2, 1024)), (1.5, 3))
        self.assertEqual((far.time(2, 1024, "Tutti private"), far.best_peer(2, 1024)), (6, None))
        self.assertIn("all-reduce, cores far, 2 processes", verdict.table(far, {}))
        rows = [{"ranks": 2, "bytes": 1024, "library": "MPICH", "setting": "", "us": 5}]
        self.assertEqual(verdict.Results(rows).apart(), [])

    def test_what_takes_less_time_than_none_is_no_figure(self):
        settings = [self.setting("Tutti mapped", "", -3, -2, 4, -1), self.setting("MPICH", "a", -9),
                    self.setting("MPICH", "b", 6, 6, -7, 8)]
        chosen = measuring.best_settings(settings[1:], 2, [1024], (1, 1, 60))
        self.assertEqual([setting.label for setting in chosen], ["b"])
        rows, _ = measuring.alternate({settings[0]: [1024]} | chosen, 2, 3, (1, 1, 60), "./machine", [1024])
        self.assertEqual([(row["library"], row["us"]) for row in rows], [("MPICH", 6)])
        runs = {"a": [measuring.Batch(us, (30, 30)) for us in (-1, -2, 3)], "b": [measuring.Batch(-5, (200, 200))]}
        self.assertEqual(measuring.apart(runs), {"a": {}, "b": {}})

    def test_two_settings_go_on_and_the_rounds_tell_the_better(self):
        settings = [self.setting("MPICH", "a", 5, 8, 9, 8), self.setting("MPICH", "b", 6, 6, 6, 6),
                    self.setting("MPICH", "c", 7)]
        chosen = measuring.best_settings(settings, 2, [1024], (1, 1, 60))
        self.assertEqual([setting.label for setting in chosen], ["a", "b"])
        rows, limits = measuring.alternate(chosen, 2, 3, (1, 1, 60), "./machine", [1024])
        results = verdict.Results(rows)
        self.assertEqual((results.best_peer(2, 1024), results.setting(2, 1024, "MPICH")), (6, "b"))
        machine = {"2": limits}
        self.assertIn("MPICH: 1 KiB b", verdict.table(results, machine))
        self.assertIn("51 ns", verdict.limits(machine))
        self.assertIn("MPICH", plot.svg([results], machine))
        self.assertTrue(verdict.target_table(verdict.targets(results, machine, 12)))

    def test_how_a_library_comes_goes_on_unless_it_is_far_behind(self):
        settings = [self.setting("MPICH", label, us) for label, us in (("as shipped", 8), ("b", 6), ("c", 7))]
        chosen = measuring.best_settings(settings, 2, [1024], (1, 1, 60))
        self.assertEqual([setting.label for setting in chosen], ["as shipped", "b", "c"])
        pathlib.Path("log").unlink()
        settings[0] = self.setting("MPICH", "as shipped", 9)
        chosen = measuring.best_settings(settings, 2, [1024], (1, 1, 60))
        self.assertEqual([setting.label for setting in chosen], ["b", "c"])

    def test_programs_without_a_library_are_beside_the_peers_and_none_of_them(self):
        times = {"Tutti private": 8, "Tutti mapped": 4, "MPICH": 12, "plain copy": 6, "plain zero-copy": 5}
        results = verdict.Results([{"ranks": 2, "bytes": 1024, "library": library, "setting": "", "us": us}
                                   for library, us in times.items()])
        self.assertEqual(results.best_peer(2, 1024), 12)
        said = verdict.summary(results)
        self.assertIn("plain copy / Tutti private: least 0.75 (2 processes, 1 KiB), median 0.75 of 1", said)
        self.assertIn("Tutti private / Tutti mapped: least 2.00", said)
        self.assertIn("best peer / Tutti mapped: least 3.00", said)

    def test_programs_without_a_library_add_up_what_they_should(self):
        clients = contenders.Clients(pathlib.Path().resolve())  # their loop checks every sum
        for setting in (setting for op in COLLECTIVES for setting in contenders.plain_settings(clients, op)):
            for ranks in (1, 2, 3, 8) if setting.program[-1] == "all_reduce" else (2, 5):
                for touched in ({}, {"COMPARE_TOUCH": "1"}):
                    os.environ.update(touched)
                    runs = measuring.run_batches(setting, ranks, [8, 48, 52, 4096, 4100, 600000], 0.001, 1, 60)
                    os.environ.pop("COMPARE_TOUCH", None)
                    self.assertEqual(len(runs), 6, (setting.program, ranks, touched))
                    ways = [way for run in runs.values() for batch in run for way in batch.line_ns]
                    self.assertEqual(len(ways), 12 if ranks > 1 and contenders.CORES > 1 else 0)
                    self.assertTrue(all(ways))

    def test_an_output_of_an_earlier_call_is_noticed(self):
        clients = contenders.Clients(pathlib.Path().resolve())
        pathlib.Path("stale.c").write_text(STALE)
        stale = contenders.compile_once(clients.out / "stale", [pathlib.Path("stale.c"), clients.loop], "cc",
                                        "-std=gnu11", f"-I{COMPARE.parent}")
        done = subprocess.run([stale, "all_gather"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('"bytes": 400', done.stdout)  # only the last result was wrong
        self.assertIn("all_gather, rank 0: element 1 of 100 is 7, expected -7", done.stderr)
        for name, why in (("broadcast", "this library has none"), ("scan", "no such collective")):
            done = subprocess.run([stale, name], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(why, done.stderr)

    def test_collectives_have_tables_of_their_own_and_only_all_reduce_has_targets(self):
        rows = [{"op": op, "ranks": 2, "bytes": 1024, "library": library, "setting": "", "us": us}
                for op, times in (("all_reduce", (2, 6)), ("broadcast", (1, 5))) for library, us in
                zip(("Tutti private", "MPICH"), times)]
        limits = {"hand_over_ns": 50, "meeting_us": 0.5, "copy_one_core_gbs": 5,
                  "copy_by_size_gbs": {"1024": 20.48, "67108864": 2}}
        collectives = [verdict.Results([row for row in rows if row["op"] == op], op)
                       for op in ("all_reduce", "broadcast")]
        for results, peer, floor in zip(collectives, (3, 5), (0.5, 0.1)):
            self.assertEqual(verdict.floor({"2": limits}, results.op, 2, 1024), floor)
            self.assertIn(f"{results.title}, 2 processes", verdict.table(results, {"2": limits}))
            self.assertIn(f"{results.title}\n", verdict.summary(results))
            self.assertIn(f"best peer / Tutti private: least {peer:.2f}", verdict.summary(results))
        picture = plot.svg(collectives, {"2": limits})
        self.assertIn("all-reduce, float32 sum, 2 processes", picture)
        self.assertIn("broadcast, float32, 2 processes", picture)
        run = measurements.of_compare("compare.json", {"results": rows, "machine": {}})
        self.assertEqual([(p.subject, p.bus) for p in run.points if p.series == "MPICH"],
                         [("all_reduce, 2 CPU ranks (processes), float sum", 1024 / 6e3),
                          ("broadcast, 2 CPU ranks (processes), float", 1024 / 5e3)])

    def test_an_mpi_that_cannot_be_fetched_is_left_out_with_the_reason(self):
        pathlib.Path("python3").write_text("#!/bin/sh\necho no venv here >&2\nexit 1\n")
        pathlib.Path("python3").chmod(0o755)
        done = subprocess.run([COMPARE.parent / "newest_mpis", "mpis"], capture_output=True, text=True, check=False,
                              env=os.environ | {"PATH": os.getcwd() + ":" + os.environ["PATH"]})
        self.assertIn("mpis/intel is left out: no venv here", done.stderr)
        self.assertEqual(list(pathlib.Path("mpis").iterdir()), [])
        settings, missing = contenders.newest_settings(None, ["broadcast"], pathlib.Path("mpis"))
        self.assertEqual((settings, len(missing)), ({"broadcast": []}, 3))
        self.assertIn("Intel MPI (not in ", missing[0])

    def test_all_ways_of_the_peers_are_tried(self):
        class Clients:
            def __getattr__(self, name):
                return lambda *_: name
        labels = {library: [setting.label for setting in make(Clients(), "all_reduce")]
                  for library, (_, make) in contenders.PEERS.items()}
        for algorithm in ("as tuned", "ring", "segmented ring", "Rabenseifner", "recursive doubling"):
            for copies in ("", ", CMA", ", UCX"):
                self.assertIn(algorithm + copies, labels["Open MPI"])
        self.assertIn("as shipped", labels["MPICH"])  # with the device's collectives
        self.assertIn("recursive doubling, no device collectives", labels["MPICH"])
        self.assertIn("function, sleep", labels["Gloo"])
        newest = {library: [setting.label for setting in make(pathlib.Path("/mpis"), Clients(), "all_reduce")]
                  for library, make in contenders.NEWEST.values()}
        for label in ("as shipped", "algorithm 24", "yielding, way 3"):
            self.assertIn(label, newest["Intel MPI"])
        for label in ("as shipped", "coll/han", "coll/sm", "ring, no CMA"):
            self.assertIn(label, newest["newest Open MPI"])
        self.assertIn("as shipped, several threads", newest["newest MPICH"])
        self.assertIn('"function sleep"', (COMPARE.parent / "hosts.py").read_text())
        for op, name in (("all_gather", "allgather"), ("reduce_scatter", "reduce_scatter_block"),
                         ("broadcast", "bcast"), ("all_to_all", "alltoall")):
            settings = [setting for _, make in contenders.PEERS.values() for setting in make(Clients(), op)]
            settings += [setting for _, make in contenders.NEWEST.values()
                         for setting in make(pathlib.Path("/mpis"), Clients(), op)]
            for setting in settings:
                self.assertEqual(setting.program[-1], op)
            said = {part for setting in settings for part in (*setting.launcher, *setting.environment)}
            self.assertIn(f"coll_tuned_{name}_algorithm", said)
            self.assertIn(f"MPIR_CVAR_{name.upper()}_INTRA_ALGORITHM", said)
            self.assertIn(f"I_MPI_ADJUST_{name.upper()}", said)
            self.assertFalse([part for part in said if "allreduce" in part.lower()])

    def test_numbers_that_nothing_can_be_measured_with_are_refused(self):
        for option, number in (("--ranks", "1"), ("--sizes", "-8"), ("--sizes", "6"), ("--rounds", "0")):
            done = subprocess.run([COMPARE, option, number], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, option)
            self.assertIn(f"argument {option}: {number}; a", done.stderr)

    def test_what_figures_depend_on_is_written_down(self):
        os.environ.pop("TUTTI_TUNING", None)
        about = measuring.surroundings(BUILD)
        self.assertEqual(about["tuning"], "none")
        self.assertEqual(os.environ["TUTTI_TUNING"], "none")  # and so it is
        self.assertEqual(about["cores"], contenders.CORES)
        for key in ("time", "processor", "kernel", "commit", "optimization"):
            self.assertTrue(about[key], key)
        self.assertIsInstance(about["load_before"], float)
        pathlib.Path("tuning.json").write_text("{}")
        os.environ["TUTTI_TUNING"] = "tuning.json"
        self.assertTrue(re.fullmatch(r"tuning.json, sha256 [0-9a-f]{16}", measuring.surroundings(BUILD)["tuning"]))


if __name__ == "__main__":
    unittest.main()
