"""Every operation of tutti.Communicator against NumPy, on all ranks of a launcher. Run by python_test.py."""
import array
import asyncio
import operator
import sys

import ml_dtypes
import numpy as np
import tutti

TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", ml_dtypes.bfloat16,
         ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
OPS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def of_rank(q, dtype="float32", shape=(4, 3)):
    """What rank q has: small numbers that all types hold exactly."""
    return ((np.arange(np.prod(shape)) + q) % 3).reshape(shape).astype(dtype)


def same(got, expected):
    expected = np.asarray(expected)
    assert got.dtype == expected.dtype and got.shape == expected.shape, (got.dtype, got.shape, expected)
    assert (got == expected).all(), (got, expected)


class Only:
    """An array that shows its memory by DLPack and by nothing else."""

    def __init__(self, data):
        self.data = data

    def __dlpack__(self, **options):
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.data.__dlpack_device__()


class Cases:
    def __init__(self, comm):
        self.comm, self.ranks, self.me = comm, range(comm.size), comm.rank

    def all(self, *args, **kwargs):
        return np.stack([of_rank(q, *args, **kwargs) for q in self.ranks])

    def check_all_reduce_of_all_types(self):
        for dtype in TYPES:
            for op, of in OPS.items():
                expected = of.reduce(self.all(dtype), axis=0, dtype=np.dtype(dtype))
                same(self.comm.all_reduce(of_rank(self.me, dtype), op=op), expected)
        same(self.comm.all_reduce(of_rank(self.me, "float64"), op="avg"), self.all("float64").mean(axis=0))

    def check_all_reduce_into(self):
        x, expected = of_rank(self.me), self.all().sum(axis=0, dtype="float32")
        out = np.empty_like(x)
        assert self.comm.all_reduce(x, out) is out
        same(out, expected)
        same(x, of_rank(self.me))
        assert self.comm.all_reduce(x, out=x) is x
        same(x, expected)
        large = np.full(100_000, self.me + 1, "int64")
        same(self.comm.all_reduce(large), np.full(100_000, sum(q + 1 for q in self.ranks), "int64"))
        same(self.comm.all_reduce(np.float64(2.5).reshape(())), np.float64(2.5 * self.comm.size))
        assert self.comm.all_reduce(np.empty((0, 3))).shape == (0, 3)
        fixed = of_rank(self.me, shape=(2, 1, 3))
        fixed.flags.writeable = False
        for x in (fixed, fixed[0, 0, 0:1], np.asfortranarray(fixed[0])):
            made = self.comm.all_reduce(x)
            assert type(made) is np.ndarray and made.base is None and made.flags.writeable and made.dtype == x.dtype
            assert made.shape == x.shape and made.flags.c_contiguous

    def check_kinds_of_arrays(self):
        n = self.comm.size
        assert self.comm.all_reduce(array.array("d", [1, 2])).tolist() == [n, 2 * n]
        assert bytes(self.comm.all_reduce(b"\1\2")) == bytes([n, 2 * n])
        x = np.ones(5, "float32")
        self.comm.all_reduce(Only(x), Only(x))
        same(x, np.full(5, n, "float32"))
        same(self.comm.all_reduce(x[::-1].copy()[1:4]), np.full(3, n * n, "float32"))

    def check_pre_mul_sum(self):
        op = self.comm.pre_mul_sum(np.float32(0.5))
        same(self.comm.all_reduce(of_rank(self.me), op=op), self.all().sum(axis=0) * np.float32(0.5))
        ones, n = np.ones(3, "float32"), self.comm.size  # nobody but the operations has these ops; they begin later
        works = [self.comm.all_reduce(np.ones(100_000, "float32"), async_=True)]
        works += [self.comm.all_reduce(ones, op=self.comm.pre_mul_sum(np.float32(k)), async_=True) for k in range(4)]
        for k, work in enumerate(works[1:]):
            same(work.wait(), ones * k * n)

    def check_rooted(self):
        x, n = of_rank(self.me), self.comm.size
        for root in self.ranks:
            total = self.comm.reduce(x, root)
            got = self.comm.gather(x, root)
            if self.me == root:
                same(total, self.all().sum(axis=0))
                same(got, self.all())
            else:
                assert total is None and got is None
            part = self.comm.scatter(self.all() if self.me == root else None, root,
                                     None if self.me == root else np.empty_like(x))
            same(part, x)
            y = np.full((2, n), root if self.me == root else -1, "int64")
            y.flags.writeable = self.me != root
            assert self.comm.broadcast(y, root) is y
            same(y, np.full((2, n), root, "int64"))

    def check_gathered_and_scattered(self):
        x, n = of_rank(self.me), self.comm.size
        same(self.comm.all_gather(x), self.all())
        flat = np.empty(12 * n, "float32")
        same(self.comm.all_gather(x, flat), self.all().reshape(-1))
        whole = np.empty((n, 4, 3), "float32")
        whole[self.me] = x
        same(self.comm.all_gather(whole[self.me], out=whole), self.all())
        table = self.all() + self.me
        expected = sum(self.all()[self.me] + q for q in self.ranks)
        same(self.comm.reduce_scatter(table), expected)
        same(self.comm.reduce_scatter(table.reshape(-1), np.empty(12, "float32")), expected.reshape(-1))
        same(self.comm.all_to_all(np.stack([np.array([self.me, q]) for q in self.ranks])),
             np.stack([np.array([q, self.me]) for q in self.ranks]))

    def check_uneven(self):
        n, me = self.comm.size, self.me
        counts = [q + 1 for q in self.ranks]
        rows = [np.full(q + 1, q, "int32") for q in self.ranks]
        same(self.comm.all_gatherv(rows[me], counts), np.concatenate(rows))
        apart = np.full(3 * sum(counts), -1, "int32")
        displs = [3 * sum(counts[:q]) for q in self.ranks]
        self.comm.all_gatherv(rows[me], counts, apart, displs=displs)
        assert all((apart[d:d + c] == q).all() for q, (d, c) in enumerate(zip(displs, counts)))
        assert (apart == -1).sum() == 2 * sum(counts)
        got = self.comm.gatherv(rows[me], counts if me == 0 else None)
        assert me != 0 or (got == np.concatenate(rows)).all()
        part = self.comm.scatterv(np.concatenate(rows) if me == n - 1 else None, counts if me == n - 1 else None, n - 1,
                                  None if me == n - 1 else np.empty(me + 1, "int32"))
        same(part, rows[me])
        same(self.comm.all_to_allv(np.repeat(np.int32(me), sum(counts)), counts, [me + 1] * n),
             np.repeat(np.arange(n, dtype="int32"), me + 1))
        same(self.comm.reduce_scatterv(np.concatenate(rows), counts), rows[me] * np.int32(n))

    def check_what_is_only_moved(self):
        for dtype in ("bool", "int16", "complex128", "S5", [("a", "i2"), ("b", "f8")]):
            x = of_rank(self.me, "int32").astype(dtype)
            got = self.comm.all_gather(x)
            assert got.dtype == x.dtype and all((got[q] == of_rank(q, "int32").astype(dtype)).all() for q in self.ranks)

    def check_pairs_and_groups(self):
        n, x = self.comm.size, of_rank(self.me)
        right, left = (self.me + 1) % n, (self.me - 1) % n
        same(self.comm.sendrecv(x, right, np.empty_like(x), left), of_rank(left))
        got = [np.empty_like(x) for _ in self.ranks]
        with tutti.group():
            for q in self.ranks:
                self.comm.send(x, q)
                with tutti.group():
                    self.comm.recv(got[q], q)
        same(np.stack(got), self.all())
        if n > 1 and self.me < 2:
            if self.me == 0:
                self.comm.send(x, 1)
            else:
                same(self.comm.recv(np.empty_like(x), 0), of_rank(0))

    def check_a_group_that_an_exception_leaves_issues_nothing(self):
        x = of_rank(self.me)
        try:
            with tutti.group():
                self.comm.all_reduce(x, x)
                raise KeyError("on purpose")
        except KeyError:
            pass
        same(x, of_rank(self.me))
        self.comm.barrier()

    def check_async(self):
        x, expected = of_rank(self.me), self.all().sum(axis=0)
        works = [self.comm.all_reduce(x, async_=True) for _ in range(50)]
        works[0].wait(timeout=60)
        self.comm.all_reduce(of_rank(self.me, "float64"))  # behind them
        assert all(work.done() for work in works)
        for work in works:
            same(work.wait(), expected)

        async def both():
            return await asyncio.gather(self.sum(x), self.sum(x + x))
        once, twice = asyncio.run(both())
        same(once, expected)
        same(twice, 2 * expected)

    async def sum(self, x):
        return await self.comm.all_reduce(x, async_=True)

    def check_async_keeps_what_it_uses(self):
        for _ in range(20):
            self.comm.all_reduce(np.ones(10_000), async_=True)
        self.comm.barrier()

    def check_split_and_shrink(self):
        n, me = self.comm.size, self.me
        with self.comm.split(me % 2, key=-me) as half:
            members = [q for q in self.ranks if q % 2 == me % 2][::-1]
            assert (half.size, half.rank) == (len(members), members.index(me))
            assert half.all_gather(np.array([me])).reshape(-1).tolist() == members
        assert (self.comm.split(0 if me == 0 else None) is None) == (me != 0)
        if n > 1:
            if me == n - 1:
                self.comm.barrier()
            else:
                with self.comm.shrink([n - 1]) as fewer:
                    assert fewer.size == n - 1 and fewer.all_reduce(np.ones(1))[0] == n - 1
                self.comm.barrier()

    def check_one_sided(self):
        n, mine = self.comm.size, tutti.zeros(self.comm.size, "int64")
        with self.comm.window(mine) as window:
            for q in self.ranks:
                window.put(np.array([self.me + 1]), q, offset=8 * self.me)
            for q in self.ranks:
                self.comm.wait_signal(q)
            same(mine, np.arange(1, n + 1))
            self.comm.barrier()
            for q in self.ranks:
                got = np.zeros(n - 1, "int64")
                assert window.get(got, q, offset=8) is got
                same(got, np.arange(2, n + 1))
            self.comm.barrier()
            self.comm.signal((self.me + 1) % n, signal=3)
            self.comm.wait_signal((self.me - 1) % n, signal=3)

    def check_objects(self):
        objects = [{"rank": q, "more": "x" * q} for q in self.ranks]
        assert self.comm.all_gather_object(objects[self.me], unsafe=True) == objects
        assert self.comm.all_reduce_object(str(self.me), operator.add, unsafe=True) == "".join(map(str, self.ranks))
        assert self.comm.broadcast_object(objects[self.me], self.comm.size - 1, unsafe=True) == objects[-1]

    def check_suspend(self):
        self.comm.suspend()
        assert self.comm.memory == 0
        self.comm.resume()
        assert self.comm.all_reduce(np.ones(1))[0] == self.comm.size


def main():
    with tutti.init(timeout=60, name="cases") as comm:
        cases = Cases(comm)
        names = [name for name in dir(cases) if name.startswith("check_")]
        for name in names:
            try:
                getattr(cases, name)()
            except BaseException:
                print(f"rank {comm.rank}: {name}", file=sys.stderr, flush=True)
                raise
    print(f"rank {comm.rank} of {comm.size}: {len(names)} cases")


main()
