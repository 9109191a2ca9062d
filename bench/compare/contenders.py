"""Who is compared, in which settings: the command that runs the loop under each library."""
import os
import pathlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field

from collectives import COLLECTIVES

HERE = pathlib.Path(__file__).resolve().parent
CORES = len(os.sched_getaffinity(0))

# A malloc that gives memory back after each call makes its pages faulted in anew by the next one. Debian's peers suffer
# from that more than from anything else, so all of them get a malloc that keeps what it has.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 26)}

PACKAGES = ["openmpi-bin", "libopenmpi-dev", "mpich", "libmpich-dev", "libgloo-dev"]


@dataclass(frozen=True)
class Setting:
    library: str
    label: str
    launcher: tuple  # "{n}" stands for the number of ranks
    program: tuple
    environment: dict = field(default_factory=dict, hash=False)
    crowded: bool | None = None  # only with more ranks than cores (True), only without (False), always (None)

    def fits(self, ranks):
        return self.crowded is None or self.crowded == (ranks > CORES)

    def command(self, ranks):
        fresh = tempfile.mkdtemp(prefix="compare-") if "{directory}" in self.program else ""
        return [part.format(n=ranks, directory=fresh) for part in (*self.launcher, *self.program)], fresh


def compile_once(target, sources, compiler, *flags):
    if not target.exists() or any(source.stat().st_mtime > target.stat().st_mtime for source in sources):
        inputs = [str(s) for s in sources if s.suffix in (".c", ".cc", ".o")]
        subprocess.run([compiler, "-O3", *inputs, "-o", str(target), *flags], check=True)
    return str(target)


class Clients:
    """The programs, built on demand into the build directory."""

    def __init__(self, build):
        self.build = build
        self.out = build / "bench" / "compare"
        self.out.mkdir(parents=True, exist_ok=True)
        self.loop = self.out / "loop.o"
        compile_once(self.loop, [HERE / "loop.c", HERE / "loop.h"], "cc", "-std=gnu11", "-c")

    def _make(self, name, source, compiler, *flags):
        return compile_once(self.out / name, [HERE / source, self.loop], compiler, *flags)

    def machine(self):
        return self._make("machine", "machine.c", "cc", "-std=gnu11", "-pthread")

    def tutti(self, name="tutti_client"):
        library, include = self.build / "src", HERE.parent.parent / "include"
        return self._make(name, f"{name}.c", "cc", "-std=gnu11", f"-I{include}", f"-L{library}", "-ltutti",
                          f"-Wl,-rpath,{library}")

    def rdma(self):
        return self._make("rdma", "rdma.c", "cc", "-std=gnu11", "-libverbs")

    def mpi(self, name):
        return self._make("peer_" + name, "peer_mpi.c", "mpicc." + name, "-std=gnu11")

    def newest_mpi(self, folder):
        """Their compiler wrappers name folders of the machines that built them."""
        return self._make("peer_newest_" + folder.name, "peer_mpi.c", "cc", "-std=gnu11", f"-I{folder}/include",
                          f"-L{folder}/lib", f"-Wl,-rpath,{folder}/lib", "-lmpi")

    def plain(self):
        return self._make("plain", "plain.c", "cc", "-std=gnu11", "-march=native")

    def gloo(self):
        return self._make("peer_gloo", "peer_gloo.cc", "c++", "-std=c++14", "-lgloo", "-pthread")

    def yielding(self):
        return compile_once(self.out / "yielding.so", [HERE / "yielding.c"], "cc", "-std=gnu11", "-shared", "-fPIC")

    def launcher(self):
        return (str(self.build / "tools" / "tutti-run"), "-n", "{n}")


def tutti_settings(clients, op):
    def setting(library, memory, **environment):
        return Setting(library, "", clients.launcher(), (clients.tutti(), memory, op), environment)
    settings = [setting("Tutti private", "private"), setting("Tutti mapped", "mapped")]
    if op == "all_reduce":
        settings += [setting("Tutti private ring", "private", TUTTI_ALGO="ring"),
                     setting("Tutti private direct", "private", TUTTI_ALGO="direct"),
                     setting("Tutti mapped direct", "mapped", TUTTI_ALGO="direct")]
    return settings


def plain_settings(clients, op):
    """What is possible: a program, no library (plain.c)."""
    return [Setting(f"plain {way}", "", (), (clients.plain(), "{n}", way, op)) for way in ("copy", "zero-copy")]


def tuned_ways(collective):
    """Of Open MPI's coll/tuned: arguments."""
    algorithm = f"coll_tuned_{collective.mpi}_algorithm"
    return {label: ("--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", algorithm, str(number),
                    *(("--mca", algorithm + "_segmentsize", "131072") if "segmented" in label else ()))
            for label, number in collective.tuned.items()}


def component_ways(collective, *there):
    """Of Open MPI, too; `there`: components that this version has."""
    return {f"coll/{name}": ("--mca", f"coll_{name}_priority", "100") for name in collective.components
            if name in there}


def open_mpi_settings(clients, op):
    # Yielding counts when ranks share cores. CMA is process_vm_readv, UCX comes with its own.
    start = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "{n}",
             "--mca", "mpi_yield_when_idle")
    ucx = ("--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any")
    algorithms = {"as tuned": ()} | tuned_ways(COLLECTIVES[op])
    copies = {"": ("--mca", "btl_vader_single_copy_mechanism", "none"),
              ", CMA": ("--mca", "btl_vader_single_copy_mechanism", "cma"), ", UCX": ucx}
    ways = {name + how: (*way, *copy) for name, way in algorithms.items() for how, copy in copies.items()}
    ways |= component_ways(COLLECTIVES[op], "sm")
    program = (clients.mpi("openmpi"), op)
    return [Setting("Open MPI", label, (*start, "1" if crowded else "0", *way), program, KEEP_MEMORY, crowded)
            for label, way in ways.items() for crowded in (False, True)]


def mpich_ways(collective, *there):
    """Variables; `there`: algorithms of the device that this version has."""
    name = "MPIR_CVAR_" + collective.mpi.upper()
    ways = {"as shipped": {}}
    ways |= {algorithm.replace("_", " "): {name + "_POSIX_INTRA_ALGORITHM": algorithm}
             for algorithm in collective.device if algorithm in there}
    return ways | {algorithm.replace("_", " ") + ", no device collectives":
                   {name + "_INTRA_ALGORITHM": algorithm, "MPIR_CVAR_DEVICE_COLLECTIVES": "none"}
                   for algorithm in collective.mpich}


def mpich_settings(clients, op):
    program = (clients.mpi("mpich"), op)
    start = ("mpiexec.mpich", "-n", "{n}")
    settings = []
    for label, way in mpich_ways(COLLECTIVES[op], "release_gather").items():
        environment = KEEP_MEMORY | way
        settings.append(Setting("MPICH", label, start, program, environment, False))
        settings.append(Setting("MPICH", label + ", made to yield", (*start, "-genv", "LD_PRELOAD", clients.yielding()),
                                program, environment, True))
    return settings


def gloo_settings(clients, op):
    def setting(algorithm, waiting, crowded):
        return Setting("Gloo", f"{algorithm}, {waiting}", clients.launcher(),
                       (clients.gloo(), "{directory}", algorithm, waiting, op), KEEP_MEMORY, crowded)
    classes = [name for name in COLLECTIVES[op].gloo if name != "function"]
    settings = [setting(name, *how) for how in (("poll", False), ("sleep", True)) for name in classes]
    return settings + [setting("function", "sleep", None)] * ("function" in COLLECTIVES[op].gloo)


PEERS = {"Open MPI": ("mpicc.openmpi", open_mpi_settings), "MPICH": ("mpicc.mpich", mpich_settings),
         "Gloo": ("/usr/include/gloo/allreduce.h", gloo_settings)}


def intel_settings(folder, clients, op):
    program, root = (clients.newest_mpi(folder), op), {"I_MPI_ROOT": str(folder), "I_MPI_PIN": "0"}
    start = (str(folder / "bin/mpiexec.hydra"), "-launcher", "fork", "-n", "{n}")
    ways = {"as shipped": {}}
    for algorithm in COLLECTIVES[op].intel:
        ways[f"algorithm {algorithm}"] = {f"I_MPI_ADJUST_{COLLECTIVES[op].mpi.upper()}": str(algorithm)}
    settings = [Setting("Intel MPI", label, start, program, KEEP_MEMORY | root | way) for label, way in ways.items()]
    return settings + [Setting("Intel MPI", f"yielding, way {way}", start, program,
                               KEEP_MEMORY | root | {"I_MPI_THREAD_YIELD": way}, True) for way in "123"]


def newest_open_mpi_settings(folder, clients, op):
    start = (str(folder / "bin/mpirun"), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "{n}")
    ways = {"as shipped": ()} | tuned_ways(COLLECTIVES[op]) | component_ways(COLLECTIVES[op], "sm", "han")
    ways |= {f"{label}, no CMA": (*way, "--mca", "smsc", "^cma") for label, way in ways.items() if label != "coll/sm"}
    program, environment = (clients.newest_mpi(folder), op), KEEP_MEMORY | {"OPAL_PREFIX": str(folder)}
    return [Setting("newest Open MPI", label, (*start, "--mca", "mpi_yield_when_idle", "1" if crowded else "0", *way),
                    program, environment, crowded) for label, way in ways.items() for crowded in (False, True)]


def newest_mpich_settings(folder, clients, op):
    start, program = (str(folder / "bin/mpiexec"), "-n", "{n}"), (clients.newest_mpi(folder), op)
    # A process that may have several threads yields while it waits.
    return [Setting("newest MPICH", label + (", several threads" if crowded else ""), start, program,
                    KEEP_MEMORY | way | ({"COMPARE_THREADS": "1"} if crowded else {}), crowded)
            for label, way in mpich_ways(COLLECTIVES[op], "release_gather", "ipc_read").items()
            for crowded in (False, True)]


# By folder: see newest_mpis.
NEWEST = {"intel": ("Intel MPI", intel_settings), "openmpi": ("newest Open MPI", newest_open_mpi_settings),
          "mpich": ("newest MPICH", newest_mpich_settings)}


def newest_settings(clients, ops, root):
    """The same of the MPIs that newest_mpis has put under `root`."""
    settings, missing = {op: [] for op in ops}, []
    for name, (library, make) in NEWEST.items():
        folder = root.resolve() / name
        if not (folder / "include/mpi.h").exists():
            missing.append(f"{library} (not in {folder})")
            continue
        try:
            for op in ops:
                settings[op] += make(folder, clients, op)
        except subprocess.CalledProcessError:
            missing.append(library + " (does not compile)")
    return settings, missing


def peer_settings(clients, ops):
    """By collective, all settings of the peers that are there, and the names of those that are not."""
    settings, missing = {op: [] for op in ops}, []
    for name, (sign, make) in PEERS.items():
        if not (pathlib.Path(sign).exists() if sign.startswith("/") else shutil.which(sign)):
            missing.append(name)
            continue
        try:
            for op in ops:
                settings[op] += make(clients, op)
        except subprocess.CalledProcessError:
            missing.append(name + " (does not compile)")
    return settings, missing


def install():
    prefix = [] if os.geteuid() == 0 else ["sudo"]
    subprocess.run([*prefix, "apt-get", "install", "-y", *PACKAGES], check=True)
