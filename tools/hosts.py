"""Several "hosts" of one machine: network namespaces that bridges join. Each has a name, and an interface of its own
(eth0, or several rails) with an address. The namespaces have no names: they go with the last of their processes,
whatever ends them. Needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN), iproute2, and nftables for packets that get lost."""
import ctypes
import os
import shutil
import signal
import socket
import subprocess

NEWNET, NEWUTS = 0x40000000, 0x04000000
PR_SET_PDEATHSIG = 1
SUBNETS = {4: ("10.77.%d.%d", 24), 6: ("fd77:0:0:%d::%d", 64)}

libc = ctypes.CDLL(None, use_errno=True)


class Cannot(Exception):
    """What this machine lacks, or does not allow."""


def tool(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Cannot(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


def unshare(flags):
    if libc.unshare(flags) != 0:
        raise Cannot(f"no new network namespace: {os.strerror(ctypes.get_errno())} (are you root, and does this "
                     "container have CAP_SYS_ADMIN?)")


def die_with_parent(parent):
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was faster
        os._exit(1)


class Hosts:
    """The bridges lie in a namespace that the calling process enters; a process of its own keeps each host. rate: what
    each may send by each network, as tc says it; loss: percent of packets that get lost on arrival; largest: larger
    ones, in bytes, get lost, and nobody says so."""

    def __init__(self, count, rails=1, ipv6=False, rate=None, loss=0, largest=None):
        self.count, self.rails, self.version = count, rails, 6 if ipv6 else 4
        self.keepers = []
        for name in ["ip", "nsenter"] + ["tc"] * bool(rate):
            if shutil.which(name) is None:
                raise Cannot(f"the program {name} is missing (Debian's packages iproute2 and util-linux have it)")
        if (loss or largest) and shutil.which("nft") is None:
            raise Cannot("packets that get lost need the program nft (Debian's package nftables has it)")
        if os.geteuid() != 0:
            raise Cannot("only root can make network namespaces: run it with sudo, or in a container with "
                         "CAP_SYS_ADMIN and CAP_NET_ADMIN")
        try:
            unshare(NEWNET)
            for rail in range(rails):
                tool("ip", "link", "add", f"bridge{rail}", "type", "bridge")
                tool("ip", "link", "set", f"bridge{rail}", "up")
            for host in range(count):
                self.keepers.append(self.keeper(host))
                for rail in range(rails):
                    tool("ip", "link", "add", self.port(host, rail), "type", "veth", "peer", "name", f"eth{rail}",
                         "netns", str(self.keepers[host]))
                    tool("ip", "link", "set", self.port(host, rail), "master", f"bridge{rail}", "up")
                self.set_up(host, rate)
                if loss:
                    self.lose(host, f"numgen random mod 100000 < {round(loss * 1000)}")
                if largest:
                    self.lose(host, f"meta length > {largest}")
        except Cannot:
            self.end()
            raise

    @staticmethod
    def keeper(host):
        parent = os.getpid()
        ready, said = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                die_with_parent(parent)
                os.close(ready)
                unshare(NEWNET | NEWUTS)
                socket.sethostname(f"host{host}")
                os.write(said, b"1")
                os.close(said)
                while True:
                    signal.pause()
            except Cannot as error:
                os.write(said, str(error).encode())
            finally:
                os._exit(1)
        os.close(said)
        answer = os.read(ready, 4096)
        os.close(ready)
        if answer != b"1":
            raise Cannot(answer.decode() or "a host could not be made")
        return pid

    @staticmethod
    def port(host, rail):
        return f"port{host}.{rail}"

    def address(self, host, rail=0):
        return SUBNETS[self.version][0] % (rail, host + 1)

    def inside(self, host, *command):
        """The command that runs command on that host."""
        place = f"/proc/{self.keepers[host]}/ns/"
        return ["nsenter", f"--net={place}net", f"--uts={place}uts", "--", *command]

    def set_up(self, host, rate):
        tool(*self.inside(host, "ip", "link", "set", "lo", "up"))
        for rail in range(self.rails):
            name = f"eth{rail}"
            tool(*self.inside(host, "ip", "addr", "add", f"{self.address(host, rail)}/{SUBNETS[self.version][1]}",
                              "dev", name, *["nodad"] * (self.version == 6)))
            tool(*self.inside(host, "ip", "link", "set", name, "up"))
            if rate:
                tool(*self.inside(host, "tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", rate, "burst", "256k",
                                  "latency", "50ms"))

    def lose(self, host, which=""):
        """From now on such packets get lost on their arrival there: an expression of nft's, or all."""
        tool(*self.inside(host, "nft", "add table inet tutti; "
                          "add chain inet tutti in { type filter hook input priority 0; }; "
                          f'add rule inet tutti in iifname "eth*" {which} drop'))

    def lose_no_more(self, host):
        tool(*self.inside(host, "nft", "delete table inet tutti"))

    def reset(self, host):
        """All TCP connections of that host's interfaces are reset, for both ends. How many there were."""
        said = tool(*self.inside(host, "ss", "-K", "-Htn", "state", "established", "not", "dst", "127.0.0.0/8"))
        return len(said.splitlines())

    def plug(self, host, state, rail=None):
        """Takes that host's cables, or that of one rail, out ("down") or puts them in again ("up")."""
        for rail in range(self.rails) if rail is None else [rail]:
            tool("ip", "link", "set", self.port(host, rail), state)

    def end(self):
        for pid in self.keepers:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        self.keepers = []
