"""The cells of tools/gpu-check, in four parts. Within a part the most telling come first, since time may run out."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from gpu_runner import OUT_OF_TIME, Result, complaint, end, read_json
from gpu_targets import race_of

COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "alltoall", "gather", "scatter",
               "sendrecv"]
MADE_OF_MESSAGES = ["alltoallv", "hypercube"]  # no algorithm to choose
NOT_ALIKE = ["all_reduce", "all_gather", "sendrecv", "alltoallv"]  # stand for all where the way of a message is tried
TRAINING_BOUND = 0.01  # nats per character, after 30 steps
SIZES = ["-b", "8", "-e", "300K", "-f", "190", "-n", "1", "-w", "0"]
GRAPHS = ["-b", "8", "-e", "4M", "-f", "8", "-n", "5", "-G", "3"]


def algorithms(check, collective):
    op = {"sendrecv": "send", "alltoall": "all_to_all"}.get(collective, collective)
    listed = subprocess.run([check.program("tutti-plan"), "list", "--op", op], capture_output=True, text=True,
                            env=check.environment, check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.strip()]


def shorter(check, arguments, largest):
    """In a rehearsal no message is larger than this."""
    return [largest if check.small and re.fullmatch(r"\d+M", word) else word for word in arguments]


# ---- a first look: one cell of each kind

def smoke(check):
    """With what the library says of its choices: in smoke.txt."""
    def look(what, collective, kind, n, arguments, device=None):
        what, told = f"smoke: {what}", {"TUTTI_DEBUG": "INFO"}
        result = check.perf(what, collective, kind, n, arguments, 40, device=device, environment=told)
        if result:
            check.record("smoke.txt", what, result, check.perf_command(collective, kind, n, arguments, device))

    if check.only_on_gpus("smoke: reduction kernels", program="gpu_bench"):
        check.run("smoke: reduction kernels", [check.program("gpu_bench"), "--check"], 90)
    some = ["-b", "8", "-e", "1M", "-f", "32", "-n", "3"]
    look("all_reduce, one rank", "all_reduce", "threads", 1, some)
    look("all_reduce, 2 threads", "all_reduce", "threads", 2, some)
    look("all_reduce, 2 ranks of one thread", "all_reduce", "threads", 1, ["-g", "2"] + some)
    look("all_reduce, 2 processes", "all_reduce", "processes", 2, some)
    if check.only_on_gpus("smoke: all_reduce graph of 2 ranks", "CPUs have no graphs"):
        look("all_reduce graph of 2 ranks", "all_reduce", "threads", 1, ["-g", "2"] + GRAPHS)
    look("all_reduce through host memory, 2 threads", "all_reduce", "threads", 2, some + ["--transport", "local"])
    look("all_reduce, a CPU among GPUs, 3 threads", "all_reduce", "threads", 3, some, "mixed")
    look("sendrecv, 2 threads", "sendrecv", "threads", 2, some)
    killed_rank(check, "cuda", "p2p")


# ---- is everything right?

def correctness(check):
    every_algorithm(check, 4, ["-b", "1", "-e", "63M", "-f", "13", "-n", "1", "-w", "0"])  # to more tiles than slots
    for collective in ("all_reduce", "all_gather"):
        check.perf(f"{collective} every type and operation, 4 threads", collective, "threads", 4,
                   ["-b", "1K", "-e", "100K", "-f", "91", "-n", "1", "-w", "0", "-d", "all", "-o", "all"], 90)
    for n in (2, 4):
        for collective in COLLECTIVES if n == 2 else NOT_ALIKE[:2]:
            check.perf(f"{collective} {n} processes", collective, "processes", n, SIZES, 60)
    for collective in ("all_reduce", "all_gather"):  # by reference
        check.perf(f"{collective} 2 processes, registered", collective, "processes", 2, SIZES + ["-R", "1"], 60)
    for collective in ("all_gather", "alltoall"):
        for kind in ("threads", "processes"):
            check.perf(f"{collective} 2 {kind}, by copy engines", collective, kind, 2,
                       SIZES + ["-R", "2", "-x", "2"], 60)
    driven_otherwise(check)
    through_host(check)
    training(check)
    for n in (2, 3):
        check.run(f"data parallelism {n} threads: the bits of CPUs",
                  [check.program("dp_check"), "--ranks", str(n), "--device", check.device],
                  900 if check.small else 300)
    for n in (2, 4):
        check.run(f"one-sided operations {n} threads",
                  [check.program("put_check"), "-t", str(n), "--device", check.device], 60)
    check.run("one-sided operations 2 processes",
              [check.program("tutti-run"), "-n", "2", check.program("put_check"), "--device", check.device, "-n", "20"],
              60)
    killed_rank(check, "cuda", "shm")
    killed_rank(check, "mixed", "shm")
    for n in (8, 2):
        every_algorithm(check, n, ["-b", "1", "-e", "300K", "-f", "13", "-n", "1", "-w", "0"])


def every_algorithm(check, n, arguments):
    arguments = shorter(check, arguments, "400K")
    for collective in COLLECTIVES:
        check.tables(lambda a, c=collective: f"{c} {a} {n} threads", collective, "threads", n,
                     algorithms(check, collective), arguments)
    for collective in MADE_OF_MESSAGES if n > 2 else []:
        check.perf(f"{collective} {n} threads", collective, "threads", n,
                   ["-b", "1", "-e", "4M", "-f", "13", "-n", "2", "-w", "0"])


def driven_otherwise(check):
    check.perf("all_reduce of 4 ranks that one thread drives", "all_reduce", "threads", 1,
               ["-g", "4", "-b", "8", "-e", "16M", "-f", "16", "-n", "3"])
    check.perf("all_reduce 4 threads, unaligned", "all_reduce", "threads", 4,
               ["-u", "1", "-b", "9", "-e", "1M", "-f", "7", "-n", "2", "-d", "half"])
    graphs = [("all_reduce graph of 4 ranks", 1, ["-g", "4"]), ("all_reduce graphs of 2 threads", 2, []),
              ("all_reduce graphs of 2 threads by local", 2, ["--transport", "local"]),
              ("all_reduce graphs of 2 threads by tcp", 2, ["--transport", "tcp"])]
    for what, threads, arguments in graphs:
        if check.only_on_gpus(what, "CPUs have no graphs"):
            check.perf(what, "all_reduce", "threads", threads, GRAPHS + arguments)
    tests = [("order of graphs", "test-gpu-order", 60), ("NCCL's interface for kernels", "test-gpu-lsa", 60),
             ("collectives by multicast", "test-gpu-multicast", 60),
             ("calls, memory, windows, errors and processes on one GPU", "test-one-gpu", 120)]
    for what, name, limit in tests:
        if check.only_on_gpus(what, program=name):
            check.run(what, [check.program(name)], limit)


def through_host(check):
    """GPU ranks whose messages go through host memory: no p2p, rank 0 on the CPU, over a network."""
    every, some = COLLECTIVES + MADE_OF_MESSAGES, NOT_ALIKE
    ways = [(every, "threads", 4, "cuda", "local"), (some, "processes", 2, "cuda", "shm"),
            (some, "processes", 3, "mixed", "tcp"), (["all_reduce", "sendrecv"], "processes", 2, "cuda", "tcp")]
    for collectives, kind, n, device, transport in ways:
        for collective in collectives:
            check.perf(f"{collective} {n} {kind}, {device}, by {transport}", collective, kind, n,
                       SIZES + ["--transport", transport], device=device)
    for collective in COLLECTIVES + ["alltoallv"]:  # not hypercube: 3 are no power of two
        check.perf(f"{collective} 3 processes, mixed, by shm", collective, "processes", 3,
                   SIZES + ["--transport", "shm"], device="mixed")
    check.tables(lambda a: f"all_reduce {a} 4 threads, mixed", "all_reduce", "threads", 4,
                 algorithms(check, "all_reduce"), ["-b", "1", "-e", "4M", "-f", "31", "-n", "2", "-w", "0"],
                 device="mixed")


def training(check):
    """A network that trains on the GPU ends at one loss in all modes: with the bits of one rank, and near that of CPUs,
    whose exp and tanh are others."""
    text = check.folder / "verse.txt"
    if not text.exists():
        text = pathlib.Path(__file__).parent.parent / "examples" / "train_chars" / "data" / "verse.txt"

    def train(what, good, mode, ranks=1, device=None):
        command = [check.program("tutti-run"), "-n", str(ranks), check.program("train_chars"), "--mode", mode,
                   "--device", device or check.device, "--text", str(text), "--steps", "30", "--parts", "2", "--quiet"]
        return final_loss(check.run(f"training: {what}", command, 60, lambda r: good(final_loss(r))))

    cpu = train("one rank on a CPU", lambda loss: loss is not None, "single", device="cpu")
    alone = train("one rank on a GPU, near the CPU's loss",
                  lambda loss: None not in (loss, cpu) and abs(loss - cpu) <= TRAINING_BOUND, "single")
    others = [("dataparallel", 1)] + [(mode, 2) for mode in ("naive", "bucketed", "ps", "ps-sharded", "zero1", "zero2",
                                                             "zero3")]
    for mode, ranks in others:
        what = f"{mode}, {ranks} processes, the same loss"
        if alone is None:
            check.skip(f"training: {what}", OUT_OF_TIME if check.left() < 1 else "one rank has no loss to compare with")
        else:
            train(what, lambda loss: loss == alone, mode, ranks=ranks)


def final_loss(result):
    found = re.search(r"final loss (\S+) after", result.stdout) if result is not None else None
    return float(found.group(1)) if found else None


def killed_rank(check, device, transport):
    """One of three processes is killed in mid-run; the others must name it and end."""
    what = f"a killed rank is named by the others, {device} by {transport}"
    if not check.wanted(what) or (transport == "p2p" and not check.only_on_gpus(what)):
        return
    if check.left() < 10:
        check.skip(what, OUT_OF_TIME)
        return
    patience = min(30, check.left() / 2)  # seconds: for the job to begin, and then to end
    command = check.perf_command("all_reduce", "processes", 3, ["-b", "1M", "-e", "1M", "-n", "1000000", "-c", "0",
                                                                "--transport", transport], device)
    command.insert(1, "--keep-going")  # the others have to end by themselves
    begin = time.monotonic()
    with tempfile.NamedTemporaryFile() as output:
        job = check.start(command, output)
        why, fine = kill_rank_2(job, pathlib.Path(output.name), patience), False
        if not why:
            try:
                code = job.wait(patience)
                text = pathlib.Path(output.name).read_text()
                fine = code != 0 and {"0", "1"} == set(re.findall(r"rank ([01]): .*rank 2\b.*died", text))
                why = "" if fine else complaint(text)
            except subprocess.TimeoutExpired:
                why = f"the others did not end within {patience:.0f} s"
        end(job)
        result = Result(job.poll(), pathlib.Path(output.name).read_text(), time.monotonic() - begin)
        check.job = None
    if check.interrupted:
        check.skip(what, OUT_OF_TIME)
    elif fine:
        check.note(what, "OK", result.seconds, "")
    else:
        check.failed(what, result, command, why)


def kill_rank_2(job, output, patience):
    """Waits until the table has begun, and kills. Why not, if it could not be done."""
    latest = time.monotonic() + patience
    while re.search(r"^ +1048576 ", output.read_text(), re.MULTILINE) is None:
        if job.poll() is not None or time.monotonic() > latest:
            return f"the job did not begin: {complaint(output.read_text())}"
        time.sleep(0.1)
    time.sleep(0.5)  # into the middle of it
    process = re.search(r"^# +Rank +2 .* Pid +(\d+) on ", output.read_text(), re.MULTILINE)
    if process is None:
        return "the job does not say which process rank 2 is"
    try:
        os.kill(int(process.group(1)), signal.SIGKILL)
    except ProcessLookupError:
        return f"rank 2 had ended before it was killed: {complaint(output.read_text())}"
    return ""


# ---- how fast is it?

def benchmarks(check):
    """What gpu_targets.py wants to know, under the names by which it asks."""
    kernels(check, "gpu_bench", "reduction kernels", ["--bytes", "16384"])
    kernels(check, "gpu_probe", "parts of the GPU", ["--rounds", "20", "--litmus", "10000"])
    small_messages(check)
    for n in (2, 8, 4, 1):
        what = f"bench: graph of {n} ranks, 8 B to 8 KiB"
        if check.only_on_gpus(what, "CPUs have no graphs"):
            check.perf(what, "all_reduce", "threads", 1,
                       ["-g", str(n), "-b", "8", "-e", "8K", "-f", "4", "-n", "20", "-G", "2" if check.small else "50"],
                       keep=f"graph {n}")
    large = shorter(check, ["-b", "256M", "-e", "256M", "-n", "10", "--copies"], "1M")
    check.perf("bench: all_reduce 4 threads, 256 MiB", "all_reduce", "threads", 4, large, keep="threads 4")
    check.perf("bench: all_reduce ring 4 threads, 256 MiB", "all_reduce", "threads", 4, large + ["--algo", "ring"],
               keep="ring 4")
    check.perf("bench: all_reduce one rank, 256 MiB", "all_reduce", "threads", 1, large, keep="one rank")
    memory_of_8(check)
    for n in (2, 4, 8):
        check.perf(f"bench: all_reduce {n} threads, 8 B to 128 MiB", "all_reduce", "threads", n,
                   shorter(check, ["-b", "8", "-e", "128M", "-f", "8", "-n", "10"], "1M"), keep=f"sizes {n}")
    race(check)


def small_messages(check):
    """Where the time of one goes, with the right sums, in small.txt; and the same collectives without the kernel of
    small messages."""
    what = "bench: parts of small messages"
    if check.only_on_gpus(what, program="gpu_small"):
        command = [check.program("gpu_small")] + (["--few"] if check.small else [])
        result = check.run(what, command, 60)
        if result:
            check.record("small.txt", what, result, command)
    for n in (2, 8):
        what = f"bench: graph of {n} ranks by the interpreter, 8 B to 8 KiB"
        if check.only_on_gpus(what, "CPUs have no graphs"):
            check.perf(what, "all_reduce", "threads", 1,
                       ["-g", str(n), "-b", "8", "-e", "8K", "-f", "4", "-n", "20", "-G", "2" if check.small else "50"],
                       keep=f"graph {n} interpreter", environment={"TUTTI_GPU_SMALL": "0"})


def kernels(check, program, name, few):
    """few: its arguments in a rehearsal."""
    if not check.only_on_gpus(f"bench: {name}", program=program):
        return
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "report.json")
        check.run(f"bench: {name}", [check.program(program), "--json", str(file)] + (few if check.small else []), 120)
        check.keep(name, read_json(file))


def memory_of_8(check):
    """What the library says that it has taken."""
    result = check.perf("bench: memory of communicators of 8 ranks", "all_reduce", "threads", 8,
                        shorter(check, ["-b", "8", "-e", "64M", "-f", "64", "-n", "1", "-w", "0"], "1M"),
                        environment={"TUTTI_DEBUG": "INFO"})
    said = re.findall(r"rank \d+ of 8 leaves; its connections used at most (\d+) KiB", result.stdout) if result else []
    if said:
        check.keep("memory 8", {"kib": max(int(kib) for kib in said), "communicators": len(said)})


def race(check):
    """Against NCCL, which has one rank on a GPU at most."""
    what = "bench: all_reduce beside NCCL"
    path = check.library("libnccl.so.2") if check.device == "cpu" else nccl(check)
    if path is None:
        check.skip(what, "there is no libnccl.so.2 besides ours")
        return
    result = check.perf(what, "all_reduce", "threads", 1,
                        ["-g", str(gpus()), "-b", "8", "-e", "64M", "-f", "64", "-n", "20", "--vs", f"nccl={path}"],
                        keep="nccl", detail=lambda r: (re.search(r"nccl's time over ours +: (.*)", r.stdout)
                                                       or [None, ""])[1])
    refused = race_of(check.documents.get("nccl"))
    if result and result.returncode == 0 and refused:
        check.withdraw(what, f"NCCL refuses: {refused}")


def nccl(check):
    """The path of an installed NCCL that is not ours: of a Python's wheels, or where the loader looks."""
    python = check.environment.get("PYTHON", sys.executable)
    found = subprocess.run([python, "-c", "import sys; print(*sys.path, sep='\\n')"], capture_output=True, text=True,
                           check=False).stdout.splitlines()
    places = [pathlib.Path(place, "nvidia", "nccl", "lib", "libnccl.so.2") for place in found if place]
    places += [pathlib.Path(folder, "libnccl.so.2") for folder in (
        "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib", "/usr/local/cuda/lib64")]
    return next((place.resolve() for place in places if place.exists()), None)


def gpus():
    tool = shutil.which("nvidia-smi")
    listed = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False).stdout if tool else ""
    return max(1, len([line for line in listed.splitlines() if line.startswith("GPU ")]))


# ---- what does NVIDIA's checker say?

def sanitizers(check):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    for kind in ("memcheck", "racecheck"):
        what = f"compute-sanitizer {kind}"
        if not check.only_on_gpus(what):
            continue
        if not os.path.exists(tool):
            check.skip(what, "it is not there")
            continue
        command = [tool, "--tool", kind, "--error-exitcode", "9", check.program("all_reduce_perf"), "--device", "cuda",
                   "-g", "2", "-b", "8", "-e", "64K", "-f", "8192", "-n", "1", "-w", "0", "-T", "100"]
        result = check.run(what, command, 120)
        if result and "Device not supported" in result.stdout:
            check.withdraw(what, "compute-sanitizer does not support this device")


# Name, share of the time, cells. In this order: what the first leaves of its time is for the others.
PARTS = {"smoke": (20, smoke), "benchmarks": (25, benchmarks), "correctness": (45, correctness),
         "sanitizers": (10, sanitizers)}
