"""Collectives of Python objects. They are pickled: whoever can send to a rank can run code in it."""
import pickle


def _trusted(unsafe):
    if unsafe is not True:
        raise TypeError("objects are pickled, and unpickling runs what the sender likes: pass unsafe=True if all ranks "
                        "are trusted")


def _gathered(comm, data):
    """The bytes of all ranks."""
    own = bytearray(len(data).to_bytes(8, "little"))
    lengths = comm.all_gather(own, bytearray(8 * comm.size))
    counts = [int.from_bytes(lengths[8 * q:8 * q + 8], "little") for q in range(comm.size)]
    rows = memoryview(comm.all_gatherv(data, counts, bytearray(sum(counts))))
    starts = [sum(counts[:q]) for q in range(comm.size)]
    return [rows[start:start + count] for start, count in zip(starts, counts)]


def all_gather_object(self, obj, *, unsafe):
    """The objects of all ranks, as a list. They are pickled: unsafe=True says that all ranks are trusted."""
    _trusted(unsafe)
    return [pickle.loads(row) for row in _gathered(self, pickle.dumps(obj))]


def all_reduce_object(self, obj, op, *, unsafe):
    """op(...op(op(a, b), c)...) over the objects of all ranks, in the order of ranks, the same on all of them.

    op: a function of two objects, as operator.add. The objects are pickled: unsafe=True says that all ranks are
    trusted.
    """
    first, *others = all_gather_object(self, obj, unsafe=unsafe)
    for other in others:
        first = op(first, other)
    return first


def broadcast_object(self, obj=None, root=0, *, unsafe):
    """obj of rank root, on all ranks. It is pickled: unsafe=True says that root is trusted."""
    _trusted(unsafe)
    data = pickle.dumps(obj) if self.rank == root else b""
    length = self.broadcast(bytearray(len(data).to_bytes(8, "little")), root)
    return pickle.loads(self.broadcast(bytearray(data or int.from_bytes(length, "little")), root))
