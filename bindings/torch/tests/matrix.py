"""A rank: every collective x every type x every op, called and begun, of 4 elements and of none. Needs torch 2.15. Ends
with "rank r ok"."""
import functools
import operator

import torch
import torch.distributed as dist

dist.init_process_group("cpu:tutti")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]
COMPLEX = [torch.complex64, torch.complex128]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
OF = {"SUM": operator.add, "PRODUCT": operator.mul, "MIN": min, "MAX": max, "BAND": operator.and_, "BOR": operator.or_,
      "BXOR": operator.xor}
OPS = [({"SUM", "AVG", "PRODUCT", "MIN", "MAX"}, FLOATS), (set(OF), INTEGERS), ({"SUM", "AVG"}, COMPLEX)]


def value(rank, dtype):
    return bool(rank % 2) if dtype == torch.bool else rank + 1


def filled(count, dtype, what):
    return torch.full((count,), what, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)


def of_rank(rank, count, dtype):
    return filled(count, dtype, value(rank, dtype))


def joined(tensors):
    """torch.cat, also of types that it does not know."""
    return torch.cat([t.view(torch.uint8) for t in tensors]).view(tensors[0].dtype)


def reduced(op, count, dtype):
    values = [value(rank, dtype) for rank in range(SIZE)]
    if op == "AVG":
        return filled(count, dtype, sum(values) / SIZE)
    return filled(count, dtype, functools.reduce(OF[op], values))


def check(what, call, got, wanted):
    """call(async_op=...) writes to got; wanted is None where that is of no interest."""
    for begun in (False, True):
        for tensor in got:
            tensor.view(torch.uint8).zero_()
        work = call(async_op=begun)
        assert (work is None) != begun, what
        if begun:
            work.wait()
        for tensor, expected in zip(got, wanted or []):
            assert torch.equal(tensor.view(torch.uint8), expected.view(torch.uint8)), (what, begun, tensor, expected)


def moves(count, dtype):
    mine, all_of_them = of_rank(RANK, count, dtype), [of_rank(rank, count, dtype) for rank in range(SIZE)]
    root, whole = RANK == 0, joined(all_of_them)
    one, into, rows = torch.empty_like(mine), torch.empty_like(whole), [torch.empty_like(mine) for _ in range(SIZE)]
    call = functools.partial
    check("all_gather", call(dist.all_gather, rows, mine), rows, all_of_them)
    check("all_gather_single", call(dist.all_gather_single, into, mine), [into], [whole])
    check("gather", call(dist.gather, mine, rows if root else None), rows, all_of_them if root else None)
    check("gather_single", call(dist.gather_single, mine, into if root else None), [into], [whole] if root else None)
    check("scatter", call(dist.scatter, one, all_of_them if root else None), [one], [mine])
    check("all_to_all", call(dist.all_to_all, rows, [mine] * SIZE), rows, all_of_them)
    check("all_to_all_single", call(dist.all_to_all_single, into, joined([mine] * SIZE)), [into], [whole])
    for begun in (False, True):
        copy = mine.clone()
        work = dist.broadcast(copy, SIZE - 1, async_op=begun)
        if begun:
            work.wait()
        assert torch.equal(copy.view(torch.uint8), all_of_them[-1].view(torch.uint8)), ("broadcast", dtype)


def reductions(op, count, dtype):
    mine, total, how = of_rank(RANK, count, dtype), reduced(op, count, dtype), getattr(dist.ReduceOp, op)
    one = torch.empty_like(mine)
    check((op, dtype), functools.partial(dist.reduce_scatter, one, [mine] * SIZE, how), [one], [total])
    check((op, dtype), functools.partial(dist.reduce_scatter_single, one, joined([mine] * SIZE), how), [one], [total])
    for begun in (False, True):
        for call in (dist.all_reduce, functools.partial(dist.reduce, dst=0)):
            copy = mine.clone()
            work = call(copy, op=how, async_op=begun)
            if begun:
                work.wait()
            assert call is not dist.all_reduce and RANK != 0 or torch.equal(copy, total), (op, dtype, copy, total)


for n in (0, 4):
    for kind in FLOATS + INTEGERS + COMPLEX + FLOAT8:
        moves(n, kind)
    for names, kinds in OPS:
        for name in sorted(names):
            for kind in kinds:
                reductions(name, n, kind)
print(f"rank {RANK} ok", flush=True)
dist.destroy_process_group()
