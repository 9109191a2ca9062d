"""Tensors of torch's as arguments of tutti.Communicator, on all ranks of a launcher. Run by torch_test.py."""
import re
import warnings
import weakref

import torch
import tutti

TYPES = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.bfloat16,
         torch.float8_e4m3fn, torch.float8_e5m2]


warnings.simplefilter("ignore")  # torch's, of kinds of tensors that are new or on their way out


class Derived(torch.Tensor):
    pass


def refused(call, kind, text):
    try:
        call()
    except kind as error:
        assert re.search(text, str(error)), f"expected {text!r}, got: {error}"
    else:
        raise AssertionError(f"nothing was raised; expected {kind.__name__}: {text}")


def case_types(comm):
    for dtype in TYPES:
        x = torch.arange(6).reshape(2, 3).to(dtype)
        for got in (comm.all_reduce(x), comm.all_reduce(x, torch.empty_like(x))):
            assert type(got) is torch.Tensor and got.dtype == dtype and got.shape == (2, 3)
            assert (got.double() == comm.size * x.double()).all(), got
    moved = comm.all_gather(torch.tensor([True, False]))
    assert moved.shape == (comm.size, 2) and moved[-1].tolist() == [True, False]
    refused(lambda: comm.all_reduce(torch.ones(3, dtype=torch.bool)), TypeError, r"of 1 bytes \('bool'\)")


def case_shapes_and_views(comm):
    table = torch.arange(12.0).reshape(4, 3)
    assert torch.equal(comm.all_reduce(table[1]), comm.size * table[1])
    for empty in (torch.empty(0, 3), torch.tensor(2.0)):
        assert comm.all_reduce(empty).shape == empty.shape
    whole = torch.empty(comm.size, 3)
    assert comm.all_gather(table[2], whole) is whole and torch.equal(whole[-1], table[2])
    for x in (table[:, 1], table.t(), torch.ones(1).expand(3)):
        refused(lambda x=x: comm.all_reduce(x), ValueError, "not contiguous")


def case_derived(comm):
    for x in (torch.ones(3).as_subclass(Derived), torch.nn.Parameter(torch.ones(3), requires_grad=False)):
        got = comm.all_reduce(x)
        assert isinstance(got, torch.Tensor) and got.tolist() == [comm.size] * 3
    assert isinstance(comm.all_gather(torch.ones(3).as_subclass(Derived)), Derived)


def case_kept_while_it_runs(comm):
    for _ in range(20):
        x = torch.ones(10_000)
        work = comm.all_reduce(x, x, async_=True)
        x.data = torch.zeros(1)  # frees what it had
        del x
        work.wait()


def case_kept_by_a_window(comm):
    """A window's memory stays, though the tensor is given another."""
    array = tutti.zeros(4)
    kept, x = weakref.ref(array), torch.from_numpy(array)
    del array
    with comm.window(x) as window:
        x.data = torch.zeros(1)
        assert kept() is not None
        window.put(torch.ones(4), comm.rank)
        assert window.get(torch.zeros(4), comm.rank).tolist() == [1] * 4


def case_lazy(comm):
    refused(lambda: comm.all_reduce(torch.ones(3, requires_grad=True)), ValueError, r"pass x.detach\(\)")
    conjugate = torch.ones(3, dtype=torch.complex64).conj()
    refused(lambda: comm.all_gather(conjugate), ValueError, r"pass x.resolve_conj\(\)")
    refused(lambda: comm.all_reduce(conjugate.imag), ValueError, r"pass x.resolve_neg\(\)")


def case_not_dense(comm):
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        fake = torch.ones(3)
    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    for x in (fake, freed, torch._efficientzerotensor(3), torch._to_functional_tensor(torch.ones(3))):
        refused(lambda x=x: comm.all_reduce(x), TypeError, r"has no memory of its own: pass the dense tensor")
    y = torch.ones(2, 2)
    for x in (y.to_sparse(), y.to_sparse_csr(), torch.quantize_per_tensor(y, 0.1, 0, torch.qint8), y.to("meta"),
              torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
              torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)):
        refused(lambda x=x: comm.all_reduce(x), TypeError, "x: pass a dense array of numbers")
    torch.func.vmap(lambda x: refused(lambda: comm.all_reduce(x), TypeError, "x: pass a dense array") or x)(y)
    assert comm.all_reduce(y)[0, 0] == comm.size


def main():
    with tutti.init(timeout=60) as comm:
        for name, case in sorted(globals().items()):
            if name.startswith("case_"):
                case(comm)
                print(f"rank {comm.rank}: {name} ok", flush=True)


main()
