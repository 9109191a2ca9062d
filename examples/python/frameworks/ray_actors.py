"""Ray's actors as ranks: the unique id goes through Ray, a dead actor is replaced.    python ray_actors.py

Ray starts them on any host that it has; nothing of Tutti has to run there before."""
import os
from typing import Any

import numpy as np
import ray
import tutti

RANKS = 3


class Rank:
    def join(self, unique: bytes, rank: int) -> None:
        self.comm = tutti.Communicator(RANKS, unique, rank, timeout=30)

    def sum(self) -> float | str:
        try:
            return float(self.comm.all_reduce(np.array([self.comm.rank + 1.0]))[0])
        except tutti.RemoteError as error:
            return f"rank {error.failed_rank} is lost"

    def die(self) -> None:
        os._exit(1)

    def shrink(self) -> bytes | None:
        """With those who are left. Rank 0 returns the id that a new rank joins with."""
        self.comm = self.comm.shrink(abort=True)
        return self.comm.grow_id() if self.comm.rank == 0 else None

    def grow(self) -> None:
        self.comm = self.comm.grow(RANKS)

    def join_grown(self, unique: bytes) -> None:
        self.comm = tutti.join(RANKS, unique, RANKS - 1, timeout=30)


def main() -> None:
    ray.init(num_cpus=RANKS + 1, include_dashboard=False, log_to_driver=False)
    unique = tutti.unique_id()
    actor: Any = ray.remote(Rank)
    ranks = [actor.remote() for _ in range(RANKS)]
    ray.get([rank.join.remote(unique, i) for i, rank in enumerate(ranks)])
    print("sums:", ray.get([rank.sum.remote() for rank in ranks]))
    ranks.pop().die.remote()
    print("then:", ray.get([rank.sum.remote() for rank in ranks]))
    ids = ray.get([rank.shrink.remote() for rank in ranks])
    print("shrunk:", ray.get([rank.sum.remote() for rank in ranks]))
    new = actor.remote()
    ray.get([rank.grow.remote() for rank in ranks] + [new.join_grown.remote(ids[0])])
    print("grown:", ray.get([rank.sum.remote() for rank in [*ranks, new]]))
    ray.shutdown()


main()
