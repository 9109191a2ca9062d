#!/usr/bin/env python3
"""Ranks that real launchers start: Open MPI's and MPICH's mpirun, PRRTE's prterun, Slurm's srun, each where it is
installed; torchrun by the variables that it sets."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import slurm_here

LAUNCHED, PMIX = sys.argv.pop(1), sys.argv.pop(1) == "pmix"


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "SLURM_", "PMI", "OMPI_"))}
    return dict(kept, TUTTI_DEBUG="INFO", TUTTI_TUNING="none", TUTTI_INIT_TIMEOUT_MS="30000", **more)


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment(**more))
    done.both = done.stdout + done.stderr
    return done


class Launched(unittest.TestCase):
    def right(self, done, ranks, pmix=None):
        self.assertEqual(done.returncode, 0, done.both)
        said = sorted(re.findall(r"rank \d+ of \d+ is right", done.stdout))
        self.assertEqual(said, [f"rank {r} of {ranks} is right" for r in range(ranks)], done.both)
        if pmix is not None:
            self.assertEqual(f"the ranks meet by {pmix}'s PMIx" in done.both, PMIX, done.both)


AGENT = """#!/bin/sh
# What mpirun calls instead of ssh: AGENT [options] host command...
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec "{prefix}${host##*.}" sh -c "$*"
"""


class Hosts:
    """Two network namespaces, 10.78.0.1 and 10.78.0.2, that are hosts to mpirun. OSError, CalledProcessError."""

    def __enter__(self):
        self.prefix = f"tutti{os.getpid()}-"
        self.directory = tempfile.mkdtemp()
        self.agent = f"{self.directory}/agent"
        with open(self.agent, "w", opener=lambda p, flags: os.open(p, flags, 0o700)) as agent:
            agent.write(AGENT.replace("{prefix}", self.prefix))
        try:
            for n in "12":
                self.ip("netns", "add", self.prefix + n)
            self.ip("link", "add", "veth1", "netns", self.prefix + "1", "type", "veth", "peer", "name", "veth2",
                    "netns", self.prefix + "2")
            for n in "12":
                self.ip("-n", self.prefix + n, "addr", "add", f"10.78.0.{n}/24", "dev", f"veth{n}")
                for device in ["lo", f"veth{n}"]:
                    self.ip("-n", self.prefix + n, "link", "set", device, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def ip(self, *arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)

    def __exit__(self, *_):
        for n in "12":
            subprocess.run(["ip", "netns", "del", self.prefix + n], capture_output=True)
        shutil.rmtree(self.directory)


class Mpirun(Launched):
    def program(self, *names):
        found = next((shutil.which(n) for n in names if shutil.which(n)), None)
        if found is None:
            self.skipTest(f"{names[0]} is not installed")
        return found

    def openmpi(self):
        mpirun = self.program("mpirun.openmpi")
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return [mpirun, *as_root, "--oversubscribe"]

    def test_openmpi(self):
        self.right(run(*self.openmpi(), "-n", "4", LAUNCHED), 4, pmix="Open MPI")

    def test_openmpi_with_a_secret_of_ones_own(self):
        done = run(*self.openmpi(), "-n", "2", LAUNCHED, TUTTI_SECRET="ab" * 32)
        self.right(done, 2)
        self.assertNotIn("PMIx", done.both)

    def test_openmpi_without_a_server_of_pmix(self):
        done = run(*self.openmpi(), "-n", "2", "env", "PMIX_RANK=", LAUNCHED)
        self.right(done, 2)
        self.assertNotIn("PMIx", done.both)

    def two_hosts(self):
        try:
            hosts = Hosts().__enter__()
        except OSError as error:
            self.skipTest(f"no network namespaces: {error}")
        except subprocess.CalledProcessError as error:
            self.skipTest(f"no network namespaces: `{' '.join(error.cmd)}`: {error.stderr.strip()}")
        self.addCleanup(hosts.__exit__)
        return hosts, ["ip", "netns", "exec", hosts.prefix + "1"]

    def right_on_two_hosts(self, done, pmix=None):
        self.right(done, 4, pmix)
        self.assertIn("rank 0 reaches rank 1 by shm", done.both)
        self.assertRegex(done.both, "rank [01] reaches rank [23] by tcp")

    def test_openmpi_on_two_hosts_needs_no_secret_and_no_place(self):
        mpirun = self.openmpi()
        if not PMIX:
            self.skipTest("this build has no PMIx")
        hosts, first = self.two_hosts()
        done = run(*first, *mpirun, "-H", "10.78.0.1:2,10.78.0.2:2", "-n", "4", "--mca", "plm_rsh_agent", hosts.agent,
                   "--mca", "oob_tcp_if_include", "10.78.0.0/24", "-x", "TUTTI_DEBUG", LAUNCHED)
        self.right_on_two_hosts(done, pmix="Open MPI")

    def test_mpich(self):
        self.right(run(self.program("mpirun.mpich", "mpiexec.hydra"), "-n", "4", LAUNCHED), 4)

    def test_mpich_on_two_hosts(self):
        mpirun = self.program("mpirun.mpich", "mpiexec.hydra")
        hosts, first = self.two_hosts()
        done = run(*first, mpirun, "-hosts", "10.78.0.1:2,10.78.0.2:2", "-n", "4", "-launcher", "ssh",
                   "-launcher-exec", hosts.agent, "-localhost", "10.78.0.1", "-genv", "MASTER_ADDR", "10.78.0.1",
                   "-genv", "MASTER_PORT", "29535", "-genvlist", "TUTTI_SECRET,TUTTI_DEBUG,TUTTI_INIT_TIMEOUT_MS",
                   LAUNCHED, TUTTI_SECRET="ef" * 32)
        self.right_on_two_hosts(done)

    def test_prterun(self):
        prterun = self.program("prterun")
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        self.right(run(prterun, *as_root, "--map-by", ":OVERSUBSCRIBE", "-n", "4", LAUNCHED), 4, pmix="PMIx")

    def test_what_torchrun_sets(self):
        ranks = []
        for r in range(3):
            variables = {"RANK": str(r), "WORLD_SIZE": "3", "LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": "3",
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533", "GROUP_RANK": "0",
                         "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_USE_AGENT_STORE": "True",
                         "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_MAX_RESTARTS": "0"}
            ranks.append(subprocess.Popen([LAUNCHED], env=environment(**variables), stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True))
        for r, rank in enumerate(ranks):
            said = rank.communicate(timeout=60)[0]
            self.assertEqual(rank.returncode, 0, said)
            self.assertIn(f"rank {r} of 3 is right", said)


class Srun(Launched):
    @classmethod
    def setUpClass(cls):
        cls.missing = slurm_here.missing()
        if not cls.missing:
            cls.slurm = slurm_here.Slurm().__enter__()
            cls.addClassCleanup(cls.slurm.stop)

    def setUp(self):
        if self.missing:
            self.skipTest(self.missing)

    def srun(self, *arguments, **more):
        done = self.slurm.srun(*arguments, TUTTI_DEBUG="INFO", TUTTI_TUNING="none", **more)
        done.both = done.stdout + done.stderr
        return done

    def has_pmix(self):
        listed = self.slurm.srun("--mpi=list")
        return "pmix" in listed.stdout + listed.stderr  # it is on one or the other

    def test_one_node(self):
        self.right(self.srun("-N", "1", "-n", "4", LAUNCHED), 4)
        self.right(self.srun("-N", "1", "-n", "4", "--mpi=pmi2", LAUNCHED), 4)

    def test_two_nodes_need_a_secret_and_a_place(self):
        done = self.srun("-N", "2", "-n", "4", LAUNCHED)
        self.assertIn(done.returncode, range(1, 128), done.both)
        self.assertIn("set TUTTI_SECRET", done.both)
        self.right(self.srun("-N", "2", "-n", "4", LAUNCHED, TUTTI_SECRET="cd" * 32, MASTER_ADDR="127.0.0.1",
                             MASTER_PORT="29534"), 4)

    def test_two_nodes_with_pmix_need_nothing(self):
        if not PMIX or not self.has_pmix():
            self.skipTest("this build, or Slurm, has no PMIx")
        self.right(self.srun("-N", "1", "-n", "4", "--mpi=pmix", LAUNCHED), 4, pmix="Slurm")
        apart = ["sh", "-c", f"TUTTI_HOSTID=node$SLURM_NODEID exec {LAUNCHED}"]  # the nodes are one machine in truth
        done = self.srun("-N", "2", "-n", "4", "--mpi=pmix", *apart)
        self.right(done, 4, pmix="Slurm")
        self.assertRegex(done.both, r"rank \d reaches rank \d by tcp")


if __name__ == "__main__":
    unittest.main(verbosity=2)
