#!/usr/bin/env python3
"""tutti-run from outside: what ranks find, what is said, which code comes back, and that nothing is left behind."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TUTTI_RUN, NEVER_EXEC = sys.argv.pop(1), sys.argv.pop(1)


def run(*arguments, **options):
    options = {"capture_output": True, "text": True, "timeout": 60, **options}
    return subprocess.run([TUTTI_RUN, *arguments], **options)


def start(*arguments):
    return subprocess.Popen([TUTTI_RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"  # a zombie of ours is init's to bury
    except OSError:  # gone, perhaps between open and read
        return False


def children(pid):
    """Those that have not ended."""
    found = []
    for child in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{child}/stat") as stat:
                state, parent = stat.read().rsplit(")", 1)[1].split()[:2]
        except OSError:  # gone meanwhile
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(child))
    return found


def wait_until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


class Surroundings(unittest.TestCase):
    def test_variables(self):
        done = run("-n", "3", "sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR "
                   "$MASTER_PORT $TUTTI_SECRET")
        lines = sorted(line.split() for line in done.stdout.splitlines())
        self.assertEqual([line[:5] for line in lines], [[str(r), "3", str(r), "3", "127.0.0.1"] for r in range(3)])
        self.assertEqual(len({(line[5], line[6]) for line in lines}), 1)
        self.assertTrue(0 < int(lines[0][5]) < 65536)
        self.assertRegex(lines[0][6], "^[0-9a-f]{64}$")

    def test_secret_is_fresh(self):
        secrets = {run("-n", "1", "sh", "-c", "echo $TUTTI_SECRET").stdout for _ in range(2)}
        self.assertEqual(len(secrets), 2)

    def test_env(self):
        done = run("-n", "2", "--env", "A=1", "--env", "B=x=y", "sh", "-c", "echo $A$B")
        self.assertEqual(done.stdout, "1x=y\n1x=y\n")

    def test_arguments_of_the_command_are_its_own(self):
        self.assertEqual(run("-n", "1", "echo", "-n", "7", "--prefix", "--nonsense").stdout, "7 --prefix --nonsense")

    def test_bind(self):
        cores = sorted(os.sched_getaffinity(0))
        done = run("-n", "3", "--bind-to", "core", "--prefix", "sh", "-c", "grep Cpus_allowed_list /proc/self/status")
        found = sorted((int(r), int(c)) for r, c in re.findall(r"\[(\d)\].*:\s*(\d+)", done.stdout))
        self.assertEqual(found, [(r, cores[r % len(cores)]) for r in range(3)])

    def test_only_rank_0_reads(self):
        self.assertEqual(run("-n", "3", "--prefix", "cat", input="hello\n").stdout, "[0] hello\n")

    def test_closed_input(self):
        done = subprocess.run(["sh", "-c", f"exec '{TUTTI_RUN}' -n 2 --prefix sh -c 'cat; echo ok' <&-"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(sorted(done.stdout.splitlines()), ["[0] ok", "[1] ok"])
        self.assertEqual(done.returncode, 0)


class Output(unittest.TestCase):
    def test_prefix(self):
        done = run("-n", "2", "--prefix", "sh", "-c", "echo out; echo err >&2; printf end")
        self.assertEqual(sorted(done.stdout.splitlines()), ["[0] end", "[0] out", "[1] end", "[1] out"])
        self.assertEqual(sorted(done.stderr.splitlines()), ["[0] err", "[1] err"])

    def test_lines_do_not_mix(self):
        done = run("-n", "4", "--prefix", "sh", "-c", "for i in $(seq 500); do echo abcdefghij; done")
        self.assertEqual(len(done.stdout.splitlines()), 2000)
        self.assertLessEqual(set(done.stdout.splitlines()), {f"[{r}] abcdefghij" for r in range(4)})

    def test_reader_that_leaves(self):
        done = subprocess.run(["sh", "-c", f"'{TUTTI_RUN}' -n 2 --prefix yes | head -n 1"],
                              capture_output=True, text=True,
                              timeout=30)
        self.assertRegex(done.stdout, r"^\[[01]\] y\n$")

    def test_reader_that_pauses(self):
        with start("-n", "2", "--prefix", "seq", "20000") as job:  # more than pipes hold
            time.sleep(0.5)
            out = job.communicate(timeout=30)[0]
        self.assertEqual((job.returncode, len(out.splitlines())), (0, 40000))

    def test_reader_that_never_reads(self):
        for arguments, number, code in (["--timeout", "0.5"], None, 124), ([], signal.SIGTERM, 143):
            with self.subTest(code=code), start("-n", "2", "--prefix", *arguments, "yes") as job:
                os.read(job.stdout.fileno(), 1)  # all ranks have started
                if number:
                    job.send_signal(number)
                try:
                    self.assertEqual(job.wait(timeout=30), code)
                finally:
                    job.kill()


class Ends(unittest.TestCase):
    def test_success(self):
        done = run("-n", "4", "true")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_exit_code_of_the_failing_rank(self):
        done = run("-n", "3", "sh", "-c", "[ $RANK = 1 ] && exit 5; exit 0")
        self.assertEqual(done.returncode, 5)
        self.assertRegex(done.stderr, r"tutti-run: rank 1 \(pid \d+\) exited with code 5\n")

    def test_killed_rank_ends_the_others(self):
        done = run("-n", "3", "sh", "-c", "[ $RANK = 2 ] && kill -9 $$; sleep 600")
        self.assertEqual(done.returncode, 128 + 9)
        self.assertRegex(done.stderr, r"tutti-run: rank 2 \(pid \d+\) was killed by signal 9 \(Killed\)\n")

    def test_keep_going(self):
        done = run("--keep-going", "-n", "3", "sh", "-c", "[ $RANK = 2 ] && kill -9 $$; sleep 0.3; echo done")
        self.assertEqual((done.returncode, done.stdout), (0, "done\ndone\n"))
        self.assertRegex(done.stderr, r"tutti-run: rank 2 \(pid \d+\) was killed by signal 9 \(Killed\)\n")
        with tempfile.TemporaryDirectory() as folder:  # rank 1 ends when rank 0 is there no longer
            first = f"{folder}/first"
            done = run("--keep-going", "-n", "2", "sh", "-c",
                       f"[ $RANK = 0 ] && {{ echo $$ > {first}.new; mv {first}.new {first}; exit 3; }}; "
                       f"until [ -e {first} ]; do sleep 0.02; done; "
                       f"while kill -0 $(cat {first}) 2> /dev/null; do sleep 0.02; done; exit 4")
        self.assertEqual(done.returncode, 3)

    def test_the_others_may_speak(self):
        done = run("-n", "2", "sh", "-c", "[ $RANK = 0 ] && exit 3; sleep 0.3; echo last words; exit 9")
        self.assertEqual((done.returncode, done.stdout), (3, "last words\n"))

    def test_stubborn_ranks(self):
        done = run("-n", "2", "sh", "-c", "trap '' TERM; [ $RANK = 0 ] && exit 3; while :; do sleep 0.1; done")
        self.assertEqual(done.returncode, 3)

    def test_timeout(self):
        done = run("-n", "2", "--timeout", "0.3", "sleep", "60")
        self.assertEqual(done.returncode, 124)
        self.assertIn("not finished in time", done.stderr)

    def test_parent_that_ignores_its_children(self):
        done = run("-n", "2", "sh", "-c", "[ $RANK = 0 ] && exit 3; exit 0",
                   preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, 3)

    def test_quiet(self):
        done = run("-n", "2", "-q", "sh", "-c", "exit 5")
        self.assertEqual((done.returncode, done.stderr), (5, ""))

    def test_missing_command(self):
        done = run("-n", "3", "no-such-command-here")
        self.assertEqual(done.returncode, 127)
        self.assertIn("cannot run 'no-such-command-here': No such file or directory", done.stderr)

    def test_command_that_is_no_program(self):
        self.assertEqual(run("-n", "1", "/etc/passwd").returncode, 126)

    def test_bad_usage(self):
        for arguments in ([], ["-n"], ["-n", "0", "true"], ["-n", "-1", "true"], ["-n", "x", "true"], ["true"],
                          ["-n", "2"], ["-n", "2", "--nonsense", "true"], ["-n", "2", "--bind", "moon", "true"],
                          ["-n", "2", "--timeout", "-1", "true"], ["-n", "2", "--env", "A", "true"]):
            with self.subTest(arguments=arguments):
                done = run(*arguments)
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, "^tutti-run: .+\nUsage: tutti-run ")
                self.assertEqual(done.stdout, "")

    def test_help(self):
        done = run("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("Usage: tutti-run", done.stdout)


signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a test started by nohup ignores it, and so would what it starts


class Signals(unittest.TestCase):
    def start_and_learn_pids(self, command):
        job = start("-n", "2", "sh", "-c", "echo $$; " + command)
        return job, [int(job.stdout.readline()) for _ in range(2)]

    def finish(self, job):
        output = job.communicate(timeout=30)
        return job.returncode, *output

    def test_passed_on(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
            job, pids = self.start_and_learn_pids("exec sleep 60")
            job.send_signal(number)
            self.assertEqual(self.finish(job)[0], code)
            self.assertFalse(any(map(alive, pids)))

    def test_ignored(self):
        job = subprocess.Popen([TUTTI_RUN, "-n", "2", "sh", "-c", "echo ready; [ $RANK = 1 ] || read go; exit 0"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))  # as nohup does
        self.assertEqual([job.stdout.readline() for _ in range(2)], 2 * ["ready\n"])
        for _ in range(2):
            job.send_signal(signal.SIGHUP)
            time.sleep(0.1)
        said = job.communicate("go\n", timeout=30)[1]
        self.assertEqual((job.returncode, said), (0, ""))

    def test_ranks_that_handle_it(self):
        job = start("-n", "2", "sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
        self.assertEqual([job.stdout.readline() for _ in range(2)], 2 * ["ready\n"])
        job.send_signal(signal.SIGTERM)
        code, out, _ = self.finish(job)
        self.assertEqual((code, out), (0, "bye\nbye\n"))

    def test_stop_and_continue(self):
        job, pids = self.start_and_learn_pids("exec sleep 60")

        def state(pid):
            with open(f"/proc/{pid}/stat") as stat:
                return stat.read().rsplit(")", 1)[1].split()[0]
        job.send_signal(signal.SIGTSTP)
        self.assertTrue(wait_until(lambda: all(state(pid) == "T" for pid in (*pids, job.pid))))
        job.send_signal(signal.SIGCONT)
        self.assertTrue(wait_until(lambda: all(state(pid) != "T" for pid in (*pids, job.pid))))
        job.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(job)[0], 143)

    def test_ranks_that_never_become_their_command(self):
        """As on a file system that does not answer."""
        for arguments, number, code in (["--timeout", "0.3"], None, 124), ([], signal.SIGINT, 130):
            with self.subTest(code=code):
                job = subprocess.Popen([TUTTI_RUN, "-n", "2", *arguments, "true"], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, env=dict(os.environ, LD_PRELOAD=NEVER_EXEC))
                if number:
                    self.assertTrue(wait_until(lambda: len(children(job.pid)) == 3))  # the ranks and the guard
                    job.send_signal(number)
                try:
                    self.assertEqual(self.finish(job)[0], code)
                finally:
                    job.kill()

    def test_ranks_that_nothing_ends(self):
        """As those that wait in the kernel."""
        job = subprocess.Popen([TUTTI_RUN, "-n", "2", "--timeout", "0.1", "true"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=dict(os.environ, LD_PRELOAD=NEVER_EXEC,
                                                                           NEVER_KILLED="1"))
        self.assertTrue(wait_until(lambda: len(children(job.pid)) == 3))
        ranks = children(job.pid)
        try:
            code, _, said = self.finish(job)
        finally:
            job.kill()
        self.assertEqual(code, 124, said)
        self.assertIn("rank 0, 1 does not end, not even by SIGKILL", said)
        self.assertTrue(wait_until(lambda: not any(map(alive, ranks))))  # they go with their parent

    def test_nothing_outlives_a_killed_tutti_run(self):
        job, pids = self.start_and_learn_pids("sleep 60 & echo $!; wait")
        pids += [int(job.stdout.readline()) for _ in range(2)]
        job.kill()
        self.assertTrue(wait_until(lambda: not any(map(alive, pids))))
        self.finish(job)

    def test_what_ranks_leave_behind_is_ended(self):
        done = run("-n", "2", "sh", "-c", "sleep 60 > /dev/null 2>&1 & echo $!")
        self.assertEqual(done.returncode, 0)
        self.assertTrue(wait_until(lambda: not any(alive(int(pid)) for pid in done.stdout.split())))


if __name__ == "__main__":
    unittest.main()
