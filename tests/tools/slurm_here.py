"""Slurm on this machine, for a test: its daemons in a temporary directory with a configuration of their own, and two
nodes that are both this machine. Needs root, and Debian's slurmctld, slurmd, slurm-client and munge."""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAMS = ["munged", "slurmctld", "slurmd", "srun", "sinfo"]
CONFIGURATION = """
ClusterName=tutti
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={directory}/munge/socket
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmctldPidFile={directory}/slurmctld.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdPidFile={directory}/slurmd.%n.pid
SlurmdLogFile={directory}/slurmd.%n.log
SlurmdSpoolDir={directory}/spool.%n
StateSaveLocation={directory}/state
TmpFS={directory}/tmp.%n
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=tutti1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 State=UNKNOWN
NodeName=tutti2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def path():
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def missing():
    """What keeps it from running here; None: nothing that one can know before."""
    if os.geteuid() != 0:
        return "root, for Slurm's daemons"
    if not os.path.ismount("/sys/fs/cgroup"):
        return "control groups on /sys/fs/cgroup, for Slurm's slurmd"
    absent = [p for p in PROGRAMS if shutil.which(p, path=path()) is None]
    return f"{absent[0]}, of Debian's slurmctld, slurmd, slurm-client and munge" if absent else None


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


class Slurm:
    """with Slurm() as slurm: slurm.srun("-n", "4", "program"). RuntimeError, with what the daemons wrote, if they don't
    come up."""

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="tutti-slurm-")
        self.daemons = []
        self.environment = dict(os.environ, PATH=path(), SLURM_CONF=f"{self.directory}/slurm.conf")
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        d = self.directory
        for name in ["munge", "state", "spool.tutti1", "spool.tutti2", "tmp.tutti1", "tmp.tutti2"]:
            os.mkdir(f"{d}/{name}", 0o700)
        with open(f"{d}/munge/key", "wb", opener=lambda p, flags: os.open(p, flags, 0o400)) as key:
            key.write(os.urandom(1024))
        host = socket.gethostname().split(".")[0]
        with open(f"{d}/slurm.conf", "w") as conf:
            conf.write(CONFIGURATION.format(directory=d, host=host, ports=free_ports(3)))
        self.daemon("munged", "--foreground", "--force", f"--socket={d}/munge/socket", f"--key-file={d}/munge/key",
                    f"--pid-file={d}/munge/pid", f"--log-file={d}/munge/log", f"--seed-file={d}/munge/seed")
        self.until(lambda: os.path.exists(f"{d}/munge/socket"), "munged")
        self.daemon("slurmctld", "-D", "-c")
        for node in ["tutti1", "tutti2"]:
            self.daemon("slurmd", "-D", "-N", node)
        self.until(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == "2", "Slurm's nodes")

    def daemon(self, *command):
        with open(f"{self.directory}/{len(self.daemons)}.out", "w") as output:
            self.daemons.append(subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                                                 env=self.environment, start_new_session=True))

    def until(self, ready, what, seconds=30):
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end or any(d.poll() is not None for d in self.daemons):
                raise RuntimeError(f"{what} did not come up:\n{self.said()}")
            time.sleep(0.1)

    def said(self):
        text = ""
        for name in sorted(os.listdir(self.directory)):
            if name.endswith((".log", ".out")):
                with open(f"{self.directory}/{name}", errors="replace") as file:
                    text += f"--- {name}\n" + "".join(file.readlines()[-10:])
        return text

    def run(self, *command, timeout=60, **environment):
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                              env=dict(self.environment, **environment))

    def srun(self, *arguments, **environment):
        return self.run("srun", *arguments, **environment)

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
