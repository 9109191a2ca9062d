#!/usr/bin/env python3
"""The same training over Tutti and over Gloo, on CPUs: the losses, and the times side by side.

    python3 bindings/torch/examples/ddp.py             # starts two ranks
    torchrun --nproc-per-node 2 bindings/torch/examples/ddp.py

Each rank has the same network several times: wrapped in unmodified DistributedDataParallel, once over either backend;
in DDP that adds nothing up ("no sum"); not wrapped ("alone"), which tells what the computation takes by itself; and,
where Tutti's wheel is installed, in tutti.torch.DataParallelBucket ("bucket"), which needs no process group. They take
turns, some steps each, so that whatever else the machine does meets all.
Processor time is that of rank 0, of all its threads; where other programs run it tells more than the time of a step.
"""
import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

try:
    import tutti_torch  # noqa: F401  registers the backend
except ImportError:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "build" / "torch"))
    import tutti_torch  # noqa: F401  what bindings/torch/build has made
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

try:
    import tutti.torch
except ImportError:  # without the wheel
    tutti = None

BACKENDS = ("tutti", "gloo")
LAYERS = () if tutti is None else ("bucket",)
ALL = (*BACKENDS, *LAYERS, "no sum", "alone")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, help="how many to start (2)")
    parser.add_argument("--steps", type=int, default=5, help="of either backend in a turn (5)")
    parser.add_argument("--turns", type=int, default=6, help="of either backend; the first is not timed (6)")
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank (32)")
    parser.add_argument("--width", type=int, default=2560, help="of the hidden layers; 2560 makes 25 M parameters")
    parser.add_argument("--views", action="store_true",
                        help="gradients are views of DDP's buckets (gradient_as_bucket_view), which saves copies")
    return parser.parse_args()


def launch(ranks):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    jobs = [subprocess.Popen([sys.executable, *sys.argv], env={**common, "RANK": str(r), "LOCAL_RANK": str(r)})
            for r in range(ranks)]
    status = 0
    while jobs:
        time.sleep(0.05)
        for job in [job for job in jobs if job.poll() is not None]:
            jobs.remove(job)
            if job.returncode != 0 and status == 0:
                status = job.returncode
                for other in jobs:
                    other.terminate()
    return status


def network(width):
    torch.manual_seed(0)
    sizes = [1024, width, width, width, width, 1000]
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def no_sum(_, bucket):
    """DDP's communication hook: each rank keeps its own gradients."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class Trainer:
    """A network of its own, over one backend, or over neither."""

    def __init__(self, backend, options, comm):
        self.model = network(options.width)
        if backend in LAYERS:
            self.model = tutti.torch.DataParallelBucket(self.model, comm)
        elif backend != "alone":
            self.group = dist.new_group(backend=backend if backend in BACKENDS else "tutti")
            self.model = DistributedDataParallel(self.model, process_group=self.group,
                                                 gradient_as_bucket_view=options.views)
        if backend == "no sum":
            self.model.register_comm_hook(None, no_sum)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.data = torch.Generator().manual_seed(dist.get_rank())
        self.batch = options.batch
        self.losses, self.seconds, self.processor = [], [], []

    def turn(self, steps, timed):
        dist.barrier()
        started, used = time.perf_counter(), time.process_time()
        for _ in range(steps):
            x = torch.randn(self.batch, 1024, generator=self.data)
            loss = torch.nn.functional.cross_entropy(self.model(x), x[:, :1000].argmax(1))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())
        dist.barrier()
        if timed:
            self.seconds.append((time.perf_counter() - started) / steps)
            self.processor.append((time.process_time() - used) / steps)

    def all_reduce(self, elements, times):
        """Seconds of an all-reduce of fp32, alone."""
        tensor = torch.ones(elements)
        dist.all_reduce(tensor, group=self.group)
        spent = []
        for _ in range(times):
            dist.barrier()
            started = time.perf_counter()
            dist.all_reduce(tensor, group=self.group)
            spent.append(time.perf_counter() - started)
        return statistics.median(spent)


def communicator():
    """Tutti's own, of the same ranks; None without the wheel."""
    if tutti is None:
        return None
    got = [tutti.unique_id() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(got)
    return tutti.Communicator(dist.get_world_size(), got[0], dist.get_rank())


def train(options):
    dist.init_process_group("tutti")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    comm = communicator()
    trainers = {backend: Trainer(backend, options, comm) for backend in ALL}
    parameters = sum(p.numel() for p in trainers["tutti"].model.parameters())
    for turn in range(options.turns):
        for backend in ALL if turn % 2 == 0 else ALL[::-1]:
            trainers[backend].turn(options.steps, timed=turn > 0)
    alone = {backend: trainers[backend].all_reduce(parameters, 5) for backend in BACKENDS}
    if rank == 0:
        print(f"{ranks} ranks, {torch.get_num_threads()} threads each, {parameters / 1e6:.1f} M parameters, "
              f"{options.batch} samples per rank, torch {torch.__version__}, tutti {tutti_torch.version()}")
        print(f"{'backend':10}{'first loss':>12}{'last loss':>12}{'step ms':>10}{'best':>10}{'worst':>10}"
              f"{'processor ms':>14}{'all-reduce of the gradients ms':>32}")
        for backend, trainer in trainers.items():
            times = [1e3 * seconds for seconds in trainer.seconds]
            reduced = f"{1e3 * alone[backend]:32.1f}" if backend in BACKENDS else ""
            print(f"{backend:10}{trainer.losses[0]:12.6f}{trainer.losses[-1]:12.6f}{statistics.median(times):10.1f}"
                  f"{min(times):10.1f}{max(times):10.1f}"
                  f"{1e3 * statistics.median(trainer.processor):14.1f}{reduced}")
        step = {name: statistics.median(trainer.seconds) for name, trainer in trainers.items()}
        computation, ours, theirs = step["alone"], step["tutti"], step["gloo"]
        work = {backend: 1e3 * statistics.median(trainer.processor) for backend, trainer in trainers.items()}
        beside = {backend: work[backend] - work["alone"] for backend in ALL}
        apart = max(abs(a - b) for a, b in zip(trainers["tutti"].losses, trainers["gloo"].losses))
        parts = ", ".join(f"{name} {(step[name] - computation) / (theirs - computation):.2f}"
                          for name in ALL if name not in ("gloo", "alone"))
        print(f"the computation takes {1e3 * computation:.1f} ms; beyond it, as parts of gloo's time: {parts}")
        print(f"step of tutti / step of gloo: {ours / theirs:.2f}; losses are "
              f"{'the same bits' if apart == 0 else f'at most {apart:.1e} apart'}")
        print("processor ms beside computation: " +
              ", ".join(f"{name} {beside[name]:.1f} ({beside[name] / beside['gloo']:.2f} of gloo's)"
                        for name in ALL if name != "alone"))
    trainers.clear()  # before the groups: torch 1.13 may hang where a reducer is the last to let go of a Gloo group
    if comm is not None:
        comm.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    parsed = arguments()
    if "RANK" in os.environ:
        train(parsed)
    else:
        sys.exit(launch(parsed.ranks))
