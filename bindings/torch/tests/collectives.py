"""A rank of a group: every collective over tutti, beside Gloo's in the same process, or beside what all ranks' inputs
give where Gloo has not got it. Ends with "rank r ok"."""
import datetime
import gc
import weakref

import torch
import torch.distributed as dist

import tutti_torch  # registers the backend
from expecting import refused

dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=60))
RANK, SIZE = dist.get_rank(), dist.get_world_size()
TUTTI = dist.group.WORLD
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
GLOO = dist.new_group(backend="gloo")
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SHAPES = [(), (1,), (5,), (3, 7), (0,), (70000,)]


class Memory(bytearray):
    """Whose end can be seen."""


def values(shape, dtype, salt=0):
    """What this rank brings: other values on each rank, small enough that products are exact."""
    count = int(torch.tensor(shape).prod()) if shape else 1
    flat = (torch.arange(count) * 7 + RANK * 3 + salt) % 5
    if dtype == torch.bool:
        return (flat % 2).bool().reshape(shape)
    if dtype.is_complex:
        return torch.complex(flat.double(), flat.double() - 1).to(dtype).reshape(shape)
    return flat.to(dtype).reshape(shape)


def everybodys(tensor):
    """All ranks' tensors, over Gloo, as bytes: it does not have all types."""
    mine = tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0, dtype=torch.uint8)
    rows = [torch.empty_like(mine) for _ in range(SIZE)]
    if tensor.numel():
        dist.all_gather(rows, mine, group=GLOO)
    return [row.view(tensor.dtype).reshape(tensor.shape) for row in rows]


def reduced(rows, op):
    wide = rows[0].dtype
    if wide.is_floating_point:
        rows = [row.double() for row in rows]
    if wide == torch.bool:
        rows = [row.int() for row in rows]
    total = rows[0].clone()
    for row in rows[1:]:
        total = {dist.ReduceOp.SUM: torch.add, dist.ReduceOp.AVG: torch.add, dist.ReduceOp.PRODUCT: torch.mul,
                 dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.MAX: torch.maximum,
                 dist.ReduceOp.BAND: torch.bitwise_and, dist.ReduceOp.BOR: torch.bitwise_or,
                 dist.ReduceOp.BXOR: torch.bitwise_xor}[op](total, row)
    if op == dist.ReduceOp.AVG:
        total = total / SIZE
    return total.to(wide)


def same(got, wanted, what):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (what, got.dtype, wanted.dtype, got.shape)
    if got.dtype.is_floating_point or got.dtype.is_complex:
        close = {torch.float16: 1e-2, torch.bfloat16: 4e-2}.get(got.dtype, 1e-5)
        assert torch.allclose(got, wanted, rtol=close), (what, got, wanted)
    else:
        assert torch.equal(got, wanted), (what, got, wanted)


def test_all_reduce():
    ops = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
    bits = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
    for dtype in FLOATS + INTEGERS + [torch.bool]:
        for shape in SHAPES:
            for op in ops + ([] if dtype in FLOATS else bits):
                mine = values(shape, dtype)
                wanted = reduced(everybodys(mine), op)
                dist.all_reduce(mine, op)
                same(mine, wanted, ("all_reduce", dtype, shape, op))
    beside = values((3, 7), torch.float32)
    dist.all_reduce(beside, group=GLOO)
    mine = values((3, 7), torch.float32)
    dist.all_reduce(mine)
    same(mine, beside, "all_reduce beside Gloo")
    mine = values((9,), torch.float32)
    wanted = reduced(everybodys(mine), dist.ReduceOp.AVG)
    dist.all_reduce(mine, dist.ReduceOp.AVG)
    same(mine, wanted, "average")
    for dtype in (torch.complex64, torch.complex128):
        mine = values((9,), dtype)
        wanted = reduced(everybodys(mine), dist.ReduceOp.SUM)
        dist.all_reduce(mine)
        same(mine, wanted, dtype)
    if hasattr(torch, "float8_e5m2"):
        mine = torch.full((33,), 1.0 + RANK).to(torch.float8_e5m2)
        dist.all_reduce(mine, dist.ReduceOp.MAX)
        assert mine.float().eq(SIZE).all()


def test_broadcast_and_reduce():
    for dtype in (torch.float32, torch.int16, torch.complex64, torch.bool):
        for root in range(SIZE):
            mine = values((5, 3), dtype, salt=root)
            rows = everybodys(mine)
            dist.broadcast(mine, root)
            same(mine, rows[root], ("broadcast", dtype, root))
            mine = values((5, 3), dtype, salt=root)
            dist.reduce(mine, root)
            same(mine, reduced(rows, dist.ReduceOp.SUM) if RANK == root else rows[RANK], ("reduce", dtype, root))


def test_gathers():
    for dtype in (torch.float32, torch.int16, torch.bool):
        for shape in SHAPES:
            mine = values(shape, dtype)
            rows = everybodys(mine)
            lists = [torch.empty_like(mine) for _ in range(SIZE)]
            dist.all_gather(lists, mine)
            for row, wanted in zip(lists, rows):
                same(row, wanted, ("all_gather", dtype, shape))
            for root in range(SIZE):
                lists = [torch.empty_like(mine) for _ in range(SIZE)] if RANK == root else None
                dist.gather(mine, lists, root)
                for row, wanted in zip(lists or [], rows):
                    same(row, wanted, ("gather", dtype, shape, root))
                got = torch.empty_like(mine)
                dist.scatter(got, [mine + q if dtype != torch.bool else mine for q in range(SIZE)]
                             if RANK == root else None, root)
                same(got, rows[root] + RANK if dtype != torch.bool else rows[root], ("scatter", dtype, shape, root))
    flat = torch.arange(6.0) + RANK  # adjacent outputs, one of them the input: nothing is copied
    rows = everybodys(flat)
    whole = torch.zeros(SIZE * 6)
    whole[RANK * 6:RANK * 6 + 6] = flat
    parts = list(whole.split(6))
    dist.all_gather(parts, parts[RANK])
    same(whole, torch.cat(rows), "all_gather in place")
    into = torch.empty(SIZE * 6)
    getattr(dist, "all_gather_into_tensor", None)(into, flat)
    same(into, whole, "all_gather_into_tensor")
    if hasattr(dist, "gather_single"):
        for out in (torch.zeros(SIZE * 6), torch.zeros(SIZE, 6)):
            dist.gather_single(flat, out if RANK == 0 else None, 0)
            same(out.view(-1), whole if RANK == 0 else torch.zeros(SIZE * 6), "gather_single")
        if RANK == 0:
            for wrong in (torch.zeros(6 * SIZE + 1), torch.zeros(6, SIZE + 1)[:, :SIZE]):
                refused(lambda wrong=wrong: dist.gather_single(flat, wrong, 0), "gather_single")
    sizes = [q + 1 for q in range(SIZE)]  # uneven
    lists = [torch.empty(size) for size in sizes]
    dist.all_gather(lists, torch.full((sizes[RANK],), float(RANK)))
    for q, row in enumerate(lists):
        assert row.eq(q).all(), ("uneven all_gather", lists)


def test_reduce_scatter():
    for dtype in (torch.float32, torch.int32, torch.int16):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
            mine = [values((4, 3), dtype, salt=q) for q in range(SIZE)]
            wanted = reduced(everybodys(torch.stack(mine)), op)[RANK]
            got = torch.empty(4, 3, dtype=dtype)
            dist.reduce_scatter(got, mine, op)
            same(got, wanted, ("reduce_scatter", dtype, op))
            got.zero_()
            dist.reduce_scatter_tensor(got, torch.cat(mine), op)
            same(got, wanted, ("reduce_scatter_tensor", dtype, op))
    mine = [torch.full((q + 1,), float(RANK + q)) for q in range(SIZE)]
    got = torch.empty(RANK + 1)
    dist.reduce_scatter(got, mine)
    assert got.eq(sum(q + RANK for q in range(SIZE))).all(), ("uneven reduce_scatter", got)


def test_all_to_all():
    for dtype in (torch.float32, torch.int16):
        mine = values((SIZE * 2, 3), dtype)
        rows = everybodys(mine)
        got = torch.empty_like(mine)
        dist.all_to_all_single(got, mine)
        same(got, torch.cat([row[RANK * 2:RANK * 2 + 2] for row in rows]), ("all_to_all_single", dtype))
        to = [(RANK + q) % 3 for q in range(SIZE)]  # uneven, and some are 0
        mine = values((sum(to), 3), dtype)
        got = torch.empty(sum(to), 3, dtype=dtype)
        dist.all_to_all_single(got, mine, to, to)
        beside = torch.empty_like(got) if dtype == torch.float32 else None
        if beside is not None:
            dist.all_to_all_single(beside, mine, to, to, group=GLOO)
            same(got, beside, "all_to_all_single beside Gloo")
        lists = [torch.empty(count, 3, dtype=dtype) for count in to]
        dist.all_to_all(lists, [part.contiguous() for part in mine.split(to)])
        same(torch.cat(lists), got, ("all_to_all", dtype))


def test_coalesced():
    mixed = [values((5,), torch.float32), values((2, 3), torch.float64), values((4,), torch.int32)]
    wanted = [reduced(everybodys(tensor), dist.ReduceOp.SUM) for tensor in mixed]
    work = TUTTI.allreduce_coalesced(mixed)
    work.wait()
    for got, right in zip(mixed, wanted):
        same(got, right, "allreduce_coalesced")
    mine = [values((5,), torch.float32), values((2, 2), torch.int64)]
    lists = [[torch.empty_like(tensor) for tensor in mine] for _ in range(SIZE)]
    TUTTI.allgather_coalesced(lists, mine).wait()
    for i, tensor in enumerate(mine):
        for row, right in zip(lists, everybodys(tensor)):
            same(row[i], right, "allgather_coalesced")


def test_strides():
    def strided(salt=0):
        return values((6, 4), torch.float32, salt).t()
    wanted = reduced(everybodys(strided()), dist.ReduceOp.SUM)
    mine = strided()
    around = torch.zeros(8, 12)
    inside = around[::2, ::2]
    inside.copy_(mine)
    dist.all_reduce(inside)
    same(inside.contiguous(), wanted, "strided all_reduce")
    assert around[1::2].eq(0).all() and around[:, 1::2].eq(0).all()
    lists = [torch.empty(6, 4).t() for _ in range(SIZE)]
    dist.all_gather(lists, mine)
    for row, right in zip(lists, everybodys(mine)):
        same(row.contiguous(), right, "strided all_gather")
    dist.broadcast(mine, SIZE - 1)
    same(mine.contiguous(), everybodys(strided())[SIZE - 1], "strided broadcast")
    weight = torch.nn.Parameter(torch.ones(3, 4).t())
    dist.all_reduce(weight.data)
    with torch.no_grad():
        dist.broadcast(weight, 0)
    assert weight.eq(SIZE).all() and weight.requires_grad


def test_handles():
    many = [torch.full((1000,), float(i + RANK)) for i in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in many]
    for work in reversed(works):
        work.wait()
    assert all(work.is_completed() for work in works)
    total = sum(range(SIZE))
    for i, tensor in enumerate(many):
        assert tensor.eq(i * SIZE + total).all()
    tensor = torch.ones(7)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert future.wait()[0].eq(SIZE).all()
    doubled = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(lambda f: f.value()[0] * 2).wait()
    assert doubled.eq(2 * SIZE).all()
    def nested(done):  # a callback that waits for another operation of the same group
        dist.all_reduce(done.value()[0])
        return done.value()[0]
    assert dist.all_reduce(torch.ones(3), async_op=True).get_future().then(nested).wait().eq(SIZE * SIZE).all()
    work = dist.barrier(async_op=True)
    work.wait()
    dist.barrier()
    if SIZE == 1:
        return
    if RANK == 0:  # the others come late
        late = dist.all_reduce(torch.ones(2), async_op=True)
        refused(lambda: late.wait(datetime.timedelta(milliseconds=20)), "20 ms")
        GLOO.barrier().wait()
        late.wait()
    else:
        GLOO.barrier().wait()
        dist.all_reduce(torch.ones(2))


def test_pairs():
    if SIZE == 1:
        return
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for shape, dtype in (((3, 4), torch.float32), ((300000,), torch.float64), ((0,), torch.int16), ((), torch.bool)):
        # Around the ring: everybody sends, then receives. Large ones only with handles, as with Gloo.
        sent = dist.isend(values(shape, dtype), right, tag=3)
        got = torch.empty(shape, dtype=dtype)
        dist.recv(got, left, tag=3)
        sent.wait()
        same(got, everybodys(values(shape, dtype))[left], ("ring", shape, dtype))
    if RANK == 0:  # matched by tag, whatever the order, and kept until wanted
        for tag in (1, 2, 3):
            dist.send(torch.full((4,), float(tag)), 1, tag=tag)
    if RANK == 1:
        works = []
        for tag in (3, 1):
            tensor = torch.empty(4)
            works.append((tag, tensor, dist.irecv(tensor, 0, tag=tag)))
        for tag, tensor, work in works:
            work.wait()
            assert tensor.eq(tag).all()
        tensor = torch.empty(2, 8)[:, ::4]  # not contiguous
        dist.recv(tensor.reshape(2, 2) if tensor.is_contiguous() else tensor, 0, tag=2)
        assert tensor.eq(2).all()
    # From any rank.
    if RANK == 0:
        seen = set()
        for _ in range(SIZE - 1):
            tensor = torch.empty(1)
            source = dist.recv(tensor, tag=9)
            assert int(tensor) == source, (tensor, source)
            seen.add(source)
        assert seen == set(range(1, SIZE))
    else:
        dist.send(torch.tensor([float(RANK)]), 0, tag=9)
    ops = [dist.P2POp(dist.isend, torch.full((100000,), float(RANK)), right),
           dist.P2POp(dist.irecv, torch.empty(100000), left)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert ops[1].tensor.eq(left).all()
    # A message of another size, and one that does not come.
    if RANK == 0:
        dist.send(torch.ones(3), 1, tag=11)
    if RANK == 1:
        refused(lambda: dist.recv(torch.empty(4), 0, tag=11), "12 bytes", "16")
        tensor = torch.zeros(4)
        never = dist.irecv(tensor, 0, tag=12)
        refused(lambda: never.wait(datetime.timedelta(milliseconds=30)), "tag 12", "rank 0")
        # The next receive frees the memory of those that have given up.
        memory = Memory(16)
        gone = weakref.ref(memory)
        never = dist.irecv(torch.frombuffer(memory, dtype=torch.float32), 0, tag=12)
        refused(lambda: never.wait(datetime.timedelta(milliseconds=30)), "tag 12", "rank 0")
        del never, memory
        later = dist.irecv(tensor, 0, tag=12)
        gc.collect()
        assert gone() is None
        refused(lambda: later.wait(datetime.timedelta(milliseconds=30)), "tag 12", "rank 0")
    dist.barrier()


def test_groups():
    for ranks in (sorted({0, SIZE - 1}), [SIZE - 1], list(range(SIZE))):
        group = dist.new_group(ranks, backend="tutti")
        if RANK in ranks:
            tensor = torch.ones(5) * (RANK + 1)
            dist.all_reduce(tensor, group=group)
            assert tensor.eq(sum(rank + 1 for rank in ranks)).all()
            tensor = torch.full((2,), float(RANK))
            dist.broadcast(tensor, ranks[-1], group=group)
            assert tensor.eq(ranks[-1]).all()
            dist.barrier(group=group)
            dist.destroy_process_group(group)


def test_objects():
    lists = [None] * SIZE
    dist.all_gather_object(lists, {"rank": RANK})
    assert [each["rank"] for each in lists] == list(range(SIZE))
    one = [("x" * 1000, RANK)]
    dist.broadcast_object_list(one, 0)
    assert one[0][1] == 0


def test_sparse():
    if VERSION < (2, 0):
        return
    for dense_dim in (0, 1):
        mine = torch.zeros(6, 4)
        mine[RANK % 3] = RANK + 1.0
        mine[5, 3] = 1.0
        whole = mine.clone()
        dist.all_reduce(whole, group=GLOO)
        sparse = mine.to_sparse(2 - dense_dim)
        dist.all_reduce(sparse)
        assert sparse.is_sparse
        same(sparse.to_dense(), whole, ("sparse", dense_dim))
    empty = torch.zeros(3).to_sparse()
    dist.all_reduce(empty)
    assert empty.to_dense().eq(0).all()


def test_factors():
    if VERSION < (2, 1):
        return
    for factor in (0.5, torch.tensor([0.5])):
        op = dist._make_nccl_premul_sum(factor)
        mine = values((7,), torch.float32)
        wanted = reduced(everybodys(mine), dist.ReduceOp.SUM) / 2
        dist.all_reduce(mine, op)
        same(mine, wanted, "all_reduce with a factor")
        part, rows = torch.empty(7), values((7 * SIZE,), torch.float32)
        wanted = reduced(everybodys(rows), dist.ReduceOp.SUM).chunk(SIZE)[RANK] / 2
        dist.reduce_scatter_tensor(part, rows, op)
        same(part, wanted, "reduce_scatter with a factor")
    refused(lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16), op), "factor", "Short")


def test_monitored_barrier():
    if VERSION < (2, 15):  # which asks for the name gloo
        return
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30), wait_all_ranks=True)
    if SIZE > 2:
        if RANK == 0:
            refused(lambda: dist.monitored_barrier(timeout=datetime.timedelta(milliseconds=200), wait_all_ranks=True),
                    "Rank 1 failed to pass monitoredBarrier in 200 ms" if SIZE == 3 else "failed to pass")
        elif RANK > 1:
            refused(lambda: dist.monitored_barrier(timeout=datetime.timedelta(seconds=30)),
                    f"Rank {RANK} successfully reached monitoredBarrier", "Rank 0: ")
    dist.barrier()
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))  # nothing of that is left


def test_handles_that_end_at_once():
    """A synchronous call runs in the calling thread; its handle and its future tell the same."""
    if VERSION < (2, 8):
        return
    options = dist.AllreduceOptions()
    options.asyncOp = False
    tensor = torch.ones(3)
    work = TUTTI.allreduce([tensor], options)
    assert work.is_completed() and work.is_success() and tensor.eq(SIZE).all()
    assert work.wait() and work.wait(datetime.timedelta(milliseconds=1)) and work.result()[0].eq(SIZE).all()
    assert work.get_future().wait()[0].eq(SIZE).all() and work.get_future().done()
    queued = [dist.all_reduce(torch.ones(50000), async_op=True) for _ in range(4)]
    dist.all_reduce(tensor)  # behind them
    assert tensor.eq(SIZE * SIZE).all()
    for handle in queued:
        assert handle.get_future().wait()[0].eq(SIZE).all()


def test_split_and_options():
    if VERSION < (2, 15):
        return
    from torch._C._distributed_c10d import ErrorType
    backend = TUTTI._get_backend(torch.device("cpu"))
    assert backend.supports_splitting
    assert backend.get_error() == ErrorType.SUCCESS
    dist.set_timeout(datetime.timedelta(seconds=50), TUTTI)
    halves = [list(range(0, (SIZE + 1) // 2)), list(range((SIZE + 1) // 2, SIZE))]
    mine = halves[RANK >= (SIZE + 1) // 2]
    part = dist.split_group(TUTTI, [half for half in halves if half])
    tensor = torch.full((3,), float(RANK))
    dist.all_reduce(tensor, group=part)
    assert tensor.eq(sum(mine)).all(), tensor
    dist.destroy_process_group(part)


def test_works_as_torch_knows_them():
    """The number of a collective of its group; and that a work which was waited for is kept by nobody."""
    if VERSION < (2, 15):
        return
    from torch._C._distributed_c10d import _get_work_registry_size
    from torch.distributed._functional_collectives import allow_inflight_collective_as_graph_input_ctx
    group = dist.new_group(backend="tutti")
    for number in (1, 2, 3):
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        assert work._get_sequence_number() == number == group._get_sequence_number_for_group()
        work.wait()
    with allow_inflight_collective_as_graph_input_ctx():
        before = _get_work_registry_size()
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        assert _get_work_registry_size() == before + 1
        work.wait()
        assert _get_work_registry_size() == before
    dist.destroy_process_group(group)


def test_a_merged_group():
    """Ranks that meet in a store are a group of their own."""
    if VERSION < (2, 15):
        return
    store = dist.PrefixStore("merged", dist.distributed_c10d._get_default_store())
    merged = TUTTI.merge_remote_group(store, SIZE, datetime.timedelta(seconds=30), "merged", "of all")
    tensor = torch.full((3,), 2.0)
    merged.allreduce([tensor]).wait()
    assert merged.size() == SIZE and tensor.eq(2.0 * SIZE).all()
    assert {merged.rank()} <= set(range(SIZE))


def test_options_of_a_group():
    """pg_options reach the library, and the groups that are made of the group."""
    if VERSION < (2, 15):
        return
    options = tutti_torch.Options(transport="tcp", algorithm="ring", reproducible=False)
    group = dist.new_group(backend="tutti", pg_options=options)
    part = dist.split_group(group, [list(range(SIZE))])
    other = dist.split_group(group, [list(range(SIZE))], pg_options=tutti_torch.Options(channels=2))
    for made, wanted in ((TUTTI, (None, None)), (group, ("tcp", None)), (part, ("tcp", None)), (other, (None, 2))):
        tensor = torch.full((3,), float(RANK))
        dist.all_reduce(tensor, group=made)
        assert tensor.eq(sum(range(SIZE))).all(), tensor
        got = made._get_backend(torch.device("cpu")).options
        assert (got.transport, got.channels) == wanted, (got.transport, got.channels, wanted)
    if SIZE > 1:
        dist.send(tensor, (RANK + 1) % SIZE, group=group)
        dist.recv(tensor, (RANK - 1) % SIZE, group=group)
    for made in (part, other, group):
        dist.destroy_process_group(made)
    wrong = tutti_torch.Options(algorithm="nowhere")
    for call in (lambda: dist.new_group(backend="tutti", pg_options=wrong),
                 lambda: dist.split_group(TUTTI, [list(range(SIZE))], pg_options=wrong)):
        refused(call, "nowhere", "algorithm")
    refused(lambda: dist.new_group(backend="tutti", pg_options={"algorithm": "ring"}), "dict", "tutti_torch.Options")


def test_refusals():
    refused(lambda: dist.all_reduce(torch.ones(3).to_sparse(), dist.ReduceOp.MAX), "SUM")
    refused(lambda: TUTTI.allreduce([torch.ones(1), torch.ones(1)]), "one tensor")
    refused(lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND), "integers", "Float")
    if SIZE > 1 and hasattr(torch, "float8_e4m3fnuz"):
        odd = torch.ones(3).to(torch.float8_e4m3fnuz)
        refused(lambda: dist.all_reduce(odd), "Float8_e4m3fnuz", "convert them", "x.float()")
    refused(lambda: TUTTI._allgather_base(torch.empty(SIZE * 3), torch.ones(2)), "elements")
    refused(lambda: TUTTI.alltoall_base(torch.ones(SIZE), torch.ones(SIZE), [2] * SIZE, []), f"{SIZE} rows")
    refused(lambda: dist.all_gather([torch.empty(2)] * (SIZE + 1), torch.ones(2)), f"{SIZE + 1} tensors")
    refused(lambda: dist.reduce_scatter(torch.empty(2), [torch.ones(3)] * SIZE), f"rank {RANK}", "2")
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # nothing of that has harmed the group
    assert tensor.eq(SIZE).all()


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
assert tutti_torch.version().count(".") == 2
print(f"rank {RANK} ok", flush=True)
