#!/usr/bin/env python3
"""What a training step spends beyond its computation: the layer of tutti/dp.h under PyTorch's autograd, beside Gloo's
DistributedDataParallel, on CPUs. Needs torch 2.1 or later.

    LD_LIBRARY_PATH=build/src python3 bench/compare/layer.py       # starts two ranks

Each rank has the same network four times: with the layer, with DDP over Gloo, alone, which shows how long the
computation takes, and alone with a copy of each gradient, as layers make it that have buckets of their own. They take
turns, some steps each, so that whatever else the machine does meets all."""
import argparse
import ctypes
import os
import socket
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WAYS = ("layer", "gloo", "copies", "alone")
FLOAT32, SAME_TYPE, UNDEF_INT = 7, -1, -(1 << 31)


class Parameter(ctypes.Structure):
    """tuttiDpParameter_t, as far as it is used here: the first version's."""
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("grad", ctypes.c_void_p),
                ("count", ctypes.c_size_t), ("type", ctypes.c_int), ("gradType", ctypes.c_int),
                ("group", ctypes.c_int), ("unit", ctypes.c_int)]


class Config(ctypes.Structure):
    """tuttiDpConfig_t as far as it is used here; the fields behind have their defaults."""
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("mode", ctypes.c_int),
                ("bucketBytes", ctypes.c_size_t), ("firstBucketBytes", ctypes.c_size_t),
                *((name, ctypes.c_int) for name in ("rebuild", "sum", "microBatches", "fp32Gradients",
                                                    "findUnusedParameters", "broadcast", "zeroGrad"))]

    def __init__(self):
        super().__init__(ctypes.sizeof(self), 0x54754450, 100, 1, 0, 0, *[UNDEF_INT] * 6, 0)  # bucketed; no zeroGrad


class Layer:
    """Sums the gradients of a model while its backward pass runs. Autograd makes each of them anew; the layer reads it
    there, and the sum is in the bucket. What autograd has made is kept until the next pass has made another: if all of
    it were freed at once, malloc would give it back to the system, and each page of the next would be a fault."""

    def __init__(self, model):
        self.library = ctypes.CDLL("libtutti.so.0")
        self.library.tuttiGetLastError.restype = ctypes.c_char_p
        self.comm, self.layer, self.made = ctypes.c_void_p(), ctypes.c_void_p(), {}
        self.call("tuttiCommInitEnv", ctypes.byref(self.comm), None)
        named = list(model.named_parameters())
        parameters = (Parameter * len(named))()
        for number, (name, tensor) in enumerate(named):
            parameters[number] = Parameter(name.encode(), tensor.data_ptr(), None, tensor.numel(), FLOAT32, SAME_TYPE,
                                           0, 0)
        self.call("tuttiDpCreate", ctypes.byref(self.layer), parameters, ctypes.c_size_t(len(named)),
                  ctypes.byref(Config()), self.comm)
        for number, (_, tensor) in enumerate(named):
            at = ctypes.c_void_p()
            self.call("tuttiDpGradient", self.layer, ctypes.c_size_t(number), ctypes.byref(at))
            memory = (ctypes.c_float * tensor.numel()).from_address(at.value)
            view = torch.frombuffer(memory, dtype=torch.float32).view(tensor.shape)
            self.hand_over(tensor, view, ctypes.c_size_t(number))

    def hand_over(self, parameter, view, number):
        def take(_):
            made = parameter.grad
            self.made[number.value] = made
            self.call("tuttiDpGradReadyAt", self.layer, number, ctypes.c_void_p(made.data_ptr()))
            parameter.grad = view
        parameter.register_post_accumulate_grad_hook(take)

    def call(self, name, *arguments):
        if getattr(self.library, name)(*arguments) != 0:
            raise RuntimeError(f"{name}: {self.library.tuttiGetLastError(None).decode()}")

    def begin(self):
        self.call("tuttiDpBegin", self.layer)

    def synchronize(self):
        self.call("tuttiDpSynchronize", self.layer)

    def close(self):
        self.call("tuttiDpDestroy", self.layer)
        self.call("tuttiCommDestroy", self.comm)


def copy_from(parameter, view):
    """Each gradient of a parameter is copied into the view."""
    def move(_):
        view.copy_(parameter.grad)
        parameter.grad = view
    parameter.register_post_accumulate_grad_hook(move)


class Trainer:
    """A network of its own."""

    def __init__(self, way, options):
        torch.manual_seed(0)
        sizes = [1024, *[options.width] * 4, 1000]
        layers = [part for inputs, outputs in zip(sizes, sizes[1:])
                  for part in (torch.nn.Linear(inputs, outputs), torch.nn.ReLU())]
        self.model = torch.nn.Sequential(*layers[:-1])
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.layer = Layer(self.model) if way == "layer" else None
        if way == "copies":
            for p in self.model.parameters():
                copy_from(p, torch.empty_like(p, requires_grad=False))
        if way == "gloo":
            self.model = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.data = torch.Generator().manual_seed(dist.get_rank())
        self.batch = options.batch
        self.losses, self.seconds = [], []

    def turn(self, steps, timed):
        dist.barrier()
        started = time.perf_counter()
        for _ in range(steps):
            x = torch.randn(self.batch, 1024, generator=self.data)
            loss = torch.nn.functional.cross_entropy(self.model(x), x[:, :1000].argmax(1))
            self.optimizer.zero_grad(set_to_none=True)
            if self.layer:
                self.layer.begin()
            loss.backward()
            if self.layer:
                self.layer.synchronize()
            self.optimizer.step()
            self.losses.append(loss.item())
        dist.barrier()
        if timed:
            self.seconds.append((time.perf_counter() - started) / steps)


def launch(ranks):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": str(port)}
    jobs = [subprocess.Popen([sys.executable, *sys.argv], env={**common, "RANK": str(r), "LOCAL_RANK": str(r)})
            for r in range(ranks)]
    return max(abs(job.wait()) for job in jobs)


def train(options):
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    trainers = {way: Trainer(way, options) for way in WAYS}
    for turn in range(options.turns + 1):
        for way in WAYS if turn % 2 == 0 else WAYS[::-1]:
            trainers[way].turn(options.steps, timed=turn > 0)
    layer, gloo, copies, alone = (1e3 * statistics.median(trainers[way].seconds) for way in WAYS)
    apart = max(abs(a - b) for a, b in zip(trainers["layer"].losses, trainers["gloo"].losses))
    if dist.get_rank() == 0:
        print(f"{ranks} ranks, {trainers['alone'].parameters / 1e6:.1f} M parameters, {options.batch} samples a rank, "
              f"torch {torch.__version__}; medians of {options.turns} turns of {options.steps} steps")
        print(f"a step: computation {alone:.1f} ms, with copies {copies:.1f}, with the layer {layer:.1f}, DDP over "
              f"Gloo {gloo:.1f}; losses at most {apart:.1e} apart")
        print(f"beyond the computation: {layer - alone:.1f} ms over {gloo - alone:.1f}: "
              f"{(layer - alone) / (gloo - alone):.2f} (target: at most 0.3); copies alone are "
              f"{(copies - alone) / (gloo - alone):.2f}")
    trainers["layer"].layer.close()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, help="how many to start (2)")
    parser.add_argument("--steps", type=int, default=5, help="of each in a turn (5)")
    parser.add_argument("--turns", type=int, default=5, help="of each that are timed (5)")
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank (32)")
    parser.add_argument("--width", type=int, default=2560, help="of the hidden layers; 2560 makes 25 M parameters")
    options = parser.parse_args()
    return train(options) if "RANK" in os.environ else launch(options.ranks)


if __name__ == "__main__":
    sys.exit(main())
