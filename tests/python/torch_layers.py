"""A rank: tutti.torch's layers beside one process that adds the gradients of n parts in the order of ranks. Prints
"rank r: <case> ok" for each case; with arguments only those."""
import contextlib
import pathlib
import sys
import time

import torch
import tutti.torch

STEPS = 5
ADAM = {"lr": 0.01, "weight_decay": 0.1}
torch.set_num_threads(1)


class Network(torch.nn.Module):
    """Tied weights, a layer that is used twice, a parameter of another type, one that is frozen, and a buffer."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 7)
        self.twice = torch.nn.Linear(7, 7)
        self.frozen = torch.nn.Linear(7, 7).requires_grad_(False)
        self.scale = torch.nn.Parameter(torch.ones(7, dtype=torch.float64))
        self.out = torch.nn.Linear(7, 11, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        h = torch.tanh(self.twice(torch.tanh(self.twice(self.embed(x)))))
        return self.out(self.frozen(h) * self.scale.float())


def network(rank):
    torch.manual_seed(5 + rank)
    return Network()


def batch(step, rank):
    make = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(11, (6,), generator=make), torch.randint(11, (6,), generator=make)


def loss(model, step, rank):
    x, y = batch(step, rank)
    return torch.nn.functional.cross_entropy(model(x), y)


def alone(ranks, make, passes=1):
    """The reference: (network, optimizer) after all steps."""
    model = network(0)
    optimizer = make([p for p in model.parameters() if p.requires_grad])
    for step in range(STEPS):
        parts = []
        for rank in range(ranks):
            model.zero_grad()
            for k in range(passes):
                loss(model, passes * step + k, rank).backward()
            parts.append([p.grad.clone() for p in model.parameters() if p.requires_grad])
        for p, *grads in zip((p for p in model.parameters() if p.requires_grad), *parts):
            total = grads[0]
            for grad in grads[1:]:
                total = total + grad
            p.grad = total / ranks
        optimizer.step()
    return model, optimizer


def same(got, wanted, exact=True):
    assert got.keys() == wanted.keys(), (got.keys(), wanted.keys())
    for name, value in wanted.items():
        assert torch.equal(got[name], value) if exact else torch.allclose(got[name], value, atol=1e-6), \
            (name, (got[name] - value).abs().max())


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.AdamW(parameters, **ADAM)


def in_groups(parameters):
    half = len(parameters) // 2
    return adam([{"params": parameters[:half]}, {"params": parameters[half:], "weight_decay": 0}])


def train(comm, model, optimizer, passes=1):
    for step in range(STEPS):
        optimizer.zero_grad()
        for k in range(passes - 1):
            with model.no_sync():
                loss(model, passes * step + k, comm.rank).backward()
        loss(model, passes * step + passes - 1, comm.rank).backward()
        optimizer.step()


def case_replicas(comm):
    for make in (sgd, adam):
        for passes in (1, 3):
            wanted = alone(comm.size, make, passes)[0].state_dict()
            for layer in (tutti.torch.DataParallelNaive, tutti.torch.DataParallelBucket,
                          lambda m, c: tutti.torch.DataParallelBucket(m, c, bucket_mb=1e-4)):
                model = layer(network(comm.rank), comm)
                train(comm, model, make(model.parameters()), passes)
                same(model.state_dict(), wanted)


def case_buckets(comm):
    model = tutti.torch.DataParallelBucket(network(comm.rank), comm)
    for set_to_none in (True, False):
        model.zero_grad(set_to_none=set_to_none)
        loss(model, 0, comm.rank).backward()
    of_float32 = [p for p in model.parameters() if p.requires_grad and p.dtype == torch.float32]
    assert len({p.grad.untyped_storage().data_ptr() for p in of_float32}) == 1, "gradients are views of the bucket"
    # A pass that fails leaves nothing behind, and one that does not reach all parameters counts zeros for them.
    model.zero_grad()
    model.module.twice.bias.register_hook(fail := Failing())
    try:
        loss(model, 0, comm.rank).backward()
    except ArithmeticError:
        pass
    else:
        raise AssertionError("no error")
    fail.on = False
    model.zero_grad()
    model.module.scale.sum().backward()
    assert torch.equal(model.module.scale.grad, torch.ones(7, dtype=torch.float64))
    assert not model.module.twice.weight.grad.any()


def case_failed_pass(comm):
    """What a pass had begun to sum before it failed does not come when the gradients have been set to zero."""
    model = tutti.torch.DataParallelBucket(network(0), comm, bucket_mb=1e-4)
    hook = model.module.embed.weight.register_hook(Failing())
    for _ in range(2):
        if comm.rank > 0:
            time.sleep(0.3)  # until then the others wait for its part of the sum
        with contextlib.suppress(ArithmeticError):
            loss(model, 0, comm.rank).backward()
            raise AssertionError("no error")
        model.zero_grad(set_to_none=False)
        comm.barrier()
        assert not model.module.twice.bias.grad.any()
    hook.remove()
    loss(model, 0, comm.rank).backward()
    wanted = tutti.torch.DataParallelBucket(network(0), comm)
    loss(wanted, 0, comm.rank).backward()
    for p, q in zip(model.parameters(), wanted.parameters()):
        assert p.grad is None or torch.equal(p.grad, q.grad)


def shareable(tensor):
    """Whether other ranks of the host can map its memory."""
    at = tensor.data_ptr()
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        if begin <= at < end:
            return "tutti-memory" in line
    raise AssertionError(f"nothing lies at {at:#x}")


def case_memory(comm):
    """Gradients lie where other ranks map them; where there is no such memory all works without."""
    def no_memory(_):
        raise tutti.SystemError("no memory")
    wanted, whole = alone(comm.size, sgd)[0].state_dict(), tutti.Memory
    for memory in (whole, no_memory):
        tutti.Memory = memory
        model = tutti.torch.DataParallelBucket(network(comm.rank), comm)
        train(comm, model, sgd(model.parameters()))
        same(model.state_dict(), wanted)
        assert all(shareable(p.grad) == (memory is whole) for p in model.parameters() if p.requires_grad)
        plain = network(comm.rank)
        optimizer = sgd([p for p in plain.parameters() if p.requires_grad])
        model = tutti.torch.ZeRO(plain, optimizer, 1, comm)
        train(comm, model, optimizer)
        same(model.state_dict(), wanted)
        assert shareable(plain.embed.weight.grad) == (memory is whole)
    tutti.Memory = whole


def case_large_parameters(comm):
    """They are reduced by themselves, from where autograd has put their gradients."""
    def wide(rank):
        torch.manual_seed(rank)
        return torch.nn.Sequential(torch.nn.Linear(3, 600), torch.nn.Linear(600, 600), torch.nn.Linear(600, 1))
    model = tutti.torch.DataParallelBucket(wide(comm.rank), comm, bucket_mb=25)
    naive = tutti.torch.DataParallelNaive(wide(comm.rank), comm)
    assert [[len(parameters) for parameters, _ in bucket] for bucket in model._runs] == [[3, 1, 2]]
    for passes, set_to_none in ((1, True), (2, True), (2, False)):
        for one in (model, naive):
            one.zero_grad(set_to_none=set_to_none)
            for k in range(passes):
                with one.no_sync() if k + 1 < passes else contextlib.nullcontext():
                    one(torch.full((2, 3), 1.0 + comm.rank + k)).sum().backward()
        for p, q in zip(model.parameters(), naive.parameters()):
            assert torch.equal(p.grad, q.grad), (passes, set_to_none, p.shape)
            assert shareable(p.grad)


class Failing:
    on = True

    def __call__(self, gradient):
        if self.on:
            raise ArithmeticError("in a hook")
        return gradient


def case_zero(comm):
    for make, exact in ((sgd, True), (adam, False), (in_groups, False)):
        for passes in (1, 2):
            reference, optimizer_of_it = alone(comm.size, make, passes)
            for stage in (1, 2, 3):
                plain = network(comm.rank)
                optimizer = make([p for p in plain.parameters() if p.requires_grad])
                model = tutti.torch.ZeRO(plain, optimizer, stage, comm, bucket_mb=1e-4)
                train(comm, model, optimizer, passes)
                same(model.state_dict(), reference.state_dict(), exact)
                there = sum(p.untyped_storage().nbytes() for p in plain.parameters() if p.requires_grad)
                assert (there == 0) == (stage == 3), there
                saved, wanted = model.optimizer_state_dict(), optimizer_of_it.state_dict()
                assert saved["param_groups"] == wanted["param_groups"], (saved["param_groups"], wanted["param_groups"])
                for i, state in wanted["state"].items():
                    same(saved["state"][i], state, exact)


def case_zero_checkpoints(comm):
    """What plain torch saved goes on in ZeRO, and what ZeRO saved in plain torch."""
    for stage in (1, 2, 3):
        before, optimizer_before = alone(comm.size, sgd)
        plain = network(7)
        optimizer = sgd([p for p in plain.parameters() if p.requires_grad])
        model = tutti.torch.ZeRO(plain, optimizer, stage, comm)
        model.load_state_dict(before.state_dict())
        model.load_optimizer_state_dict(optimizer_before.state_dict())
        train(comm, model, optimizer)
        after = Network()
        after.load_state_dict(model.state_dict())
        optimizer_after = sgd([p for p in after.parameters() if p.requires_grad])
        optimizer_after.load_state_dict(model.optimizer_state_dict())
        other = tutti.torch.DataParallelBucket(before, comm)
        train(comm, other, optimizer_before)
        same(after.state_dict(), other.state_dict())
        train(comm, tutti.torch.DataParallelBucket(after, comm), optimizer_after)
        train(comm, other, optimizer_before)
        same(after.state_dict(), other.state_dict())


def case_zero_takes_what_is_there(comm):
    """A parameter that was not used in plain torch has no state; the others' are taken."""
    whole = alone(1, sgd)[1].state_dict()
    for missing in whole["state"]:
        for stage in (1, 3):
            plain = network(0)
            model = tutti.torch.ZeRO(plain, sgd([p for p in plain.parameters() if p.requires_grad]), stage, comm)
            model.load_optimizer_state_dict(
                whole | {"state": {i: one for i, one in whole["state"].items() if i != missing}})
            got = model.optimizer_state_dict()["state"]
            for i, state in whole["state"].items():
                if i != missing:
                    same(got[i], state)
                elif i in got:
                    assert not got[i]["momentum_buffer"].any()


def case_zero_forgets(comm):
    """The layer and the optimizer reset the same gradients, also what no_sync() or a pass that failed has left."""
    wanted = alone(comm.size, sgd)[0].state_dict()
    for stage in (1, 2, 3):
        for resets in ("layer", "optimizer"):
            plain = network(comm.rank)
            optimizer = sgd([p for p in plain.parameters() if p.requires_grad])
            model = tutti.torch.ZeRO(plain, optimizer, stage, comm, bucket_mb=1e-4)
            plain.twice.bias.register_hook(fail := Failing())
            for step in range(STEPS):
                fail.on = step == 2
                try:
                    with model.no_sync() if step < 2 else contextlib.nullcontext():
                        loss(model, 99, comm.rank).backward()
                except ArithmeticError:
                    assert fail.on
                fail.on = False
                (model if resets == "layer" else optimizer).zero_grad()
                loss(model, step, comm.rank).backward()
                optimizer.step()
            same(model.state_dict(), wanted)


def case_zero_clips(comm):
    for stage in (1, 3):
        plain = network(0)
        model = tutti.torch.ZeRO(plain, sgd([p for p in plain.parameters() if p.requires_grad]), stage, comm)
        loss(model, 0, comm.rank).backward()
        other = tutti.torch.DataParallelNaive(network(0), comm)
        loss(other, 0, comm.rank).backward()
        wanted = torch.nn.utils.clip_grad_norm_(other.parameters(), 0.01)
        assert abs(model.clip_grad_norm_(0.01) - wanted) < 1e-5
        assert model.clip_grad_norm_(1.0) < 0.0101


def case_server(comm):
    wanted = alone(comm.size, adam)[0].state_dict()
    for server in range(comm.size):
        plain = network(comm.rank)
        with tutti.torch.ParameterServer(plain, adam([p for p in plain.parameters() if p.requires_grad]), comm,
                                         server=server) as model:
            for step in range(STEPS):
                model.zero_grad()
                loss(model, step, comm.rank).backward()
                model.step()
        same(model.state_dict(), wanted)


def case_asynchronous(comm):
    """Sums of powers of two have the same bits in every order: no update is lost, and all ranks end alike."""
    for staleness in (0, 3):
        for resets in ("layer", "optimizer"):
            plain = torch.nn.Linear(2, 1)
            optimizer = torch.optim.SGD(plain.parameters(), lr=1.0)
            with tutti.torch.ParameterServer(plain, optimizer, comm, asynchronous=True, server=comm.size - 1,
                                             staleness=staleness) as model:
                model.load_state_dict({"weight": torch.tensor([[8.0, 16.0]]), "bias": torch.tensor([4.0])})
                comm.barrier()
                for _ in range(4 + comm.rank):
                    (model if resets == "layer" else optimizer).zero_grad()
                    model(torch.tensor([[1.0, 2.0]])).sum().backward()
                    model.step()
                if resets == "layer":
                    model.close()  # `with` need not do it then
            steps = sum(4 + rank for rank in range(comm.size))
            assert plain.weight.tolist() == [[8 - steps, 16 - 2.0 * steps]], plain.weight
            assert plain.bias.tolist() == [4 - steps], plain.bias


class Broken(torch.optim.SGD):
    def step(self, closure=None):
        raise ArithmeticError("no update")


def case_server_that_fails(comm):
    """Whose gradient the optimizer can't take is told at once, and so is the server."""
    plain = torch.nn.Linear(2, 1)
    model = tutti.torch.ParameterServer(plain, Broken(plain.parameters(), lr=1.0), comm, asynchronous=True,
                                        staleness=9)
    for thread in model._threads:
        thread.join()
    if comm.size > 1:
        try:
            model.step()
        except tutti.RemoteError:
            assert not model.serves
        except RuntimeError as error:
            assert model.serves and isinstance(error.__cause__, ArithmeticError), error
        else:
            raise AssertionError("no error")
    comm.barrier()
    model.__exit__(ArithmeticError, None, None)


def case_refused(comm):
    for call, text in ((lambda: tutti.torch.ZeRO(torch.nn.Linear(1, 1), stepped(), 4, comm), "not 4"),
                       (lambda: tutti.torch.ZeRO(torch.nn.Linear(1, 1), stepped(), 1, comm), "has made steps"),
                       (lambda: tutti.torch.DataParallelBucket(torch.nn.ReLU(), comm), "no parameter"),
                       (lambda: tutti.torch.DataParallelNaive(torch.nn.Linear(1, 1, device="meta"), comm), "on meta")):
        try:
            call()
        except ValueError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)


def stepped():
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = sgd([parameter])
    parameter.sum().backward()
    optimizer.step()
    return optimizer


def main():
    names = sys.argv[1:] or [name[len("case_"):] for name in globals() if name.startswith("case_")]
    with tutti.init(reproducible=True, timeout=60) as comm:
        for name in names:
            globals()[f"case_{name}"](comm)
            print(f"rank {comm.rank}: {name} ok", flush=True)


main()
