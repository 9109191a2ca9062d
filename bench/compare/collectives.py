"""The collectives that are compared: one row each, with all that distinguishes them here. Their results are in
loop.c."""
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Collective:
    name: str
    sums: bool
    moved: Callable       # how often n ranks read or write the bytes of a row at least: inputs once and outputs once
    meets: bool           # no rank can be done before all have begun
    mpi: str              # in the names of MPIs' parameters
    tuned: dict           # algorithms of Open MPI's coll/tuned; those called segmented get segments of 128 KiB
    components: tuple     # of Open MPI, beside coll/tuned
    mpich: tuple          # algorithms of MPICH
    device: tuple         # and of its device
    intel: tuple          # numbers of Intel MPI
    gloo: tuple           # its classes, and "function": a function that sleeps

    def title(self):
        return self.name.replace("_", "-")


COLLECTIVES = {row.name: row for row in (
    Collective(
        "all_reduce", True, lambda n: 2 * n, True, "allreduce",
        {"non-overlapping": 2, "recursive doubling": 3, "ring": 4, "segmented ring": 5, "Rabenseifner": 6},
        ("sm", "han"), ("auto", "reduce_scatter_allgather", "recursive_doubling"), ("release_gather",),
        (1, 2, 5, 9, 10, 12, 20, 22, 23, 24), ("halving_doubling", "ring_chunked", "function")),
    Collective(
        "all_gather", False, lambda n: n + 1, True, "allgather",
        {"linear": 1, "Bruck": 2, "recursive doubling": 3, "ring": 4, "neighbor exchange": 5},
        ("han",), ("auto", "recursive_doubling", "ring", "brucks"), ("ipc_read",),
        (1, 2, 3, 4, 5, 6), ("ring", "function")),
    Collective(
        "reduce_scatter", True, lambda n: n + 1, True, "reduce_scatter_block",
        {"linear": 1, "recursive doubling": 2, "recursive halving": 3, "butterfly": 4},
        (), ("auto", "recursive_halving", "pairwise", "recursive_doubling"), (),
        (1, 2, 3, 4), ("halving_doubling",)),
    Collective(
        "broadcast", False, lambda n: n, False, "bcast",
        {"linear": 1, "segmented pipeline": 3, "binary tree": 5, "binomial": 6, "scatter and ring": 9},
        ("sm", "han"), ("auto", "binomial", "scatter_ring_allgather"), ("release_gather", "ipc_read"),
        (1, 2, 3, 7, 9, 10, 12, 13, 14, 15), ("one_to_all", "function")),
    Collective(
        "all_to_all", False, lambda n: 2 * n, True, "alltoall",
        {"linear": 1, "pairwise": 2, "Bruck": 3, "linear, in step": 4},
        (), ("auto", "scattered", "pairwise", "brucks"), ("ipc_read",),
        (1, 2, 3, 4, 5, 6, 9, 14, 16), ("function",)),
)}
