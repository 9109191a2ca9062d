"""jax_ranks.py: JAX's collectives by shard_map, over all GPUs of all processes. Prints "jax ok" on rank 0. Started by
tools/gpu-check."""
import os

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map


def main():
    rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 7}", n, rank,
                               local_device_ids=[int(os.environ.get("LOCAL_RANK", 0)) % int(os.environ["TUTTI_GPUS"])])
    mesh = Mesh(numpy.array(jax.devices()), ("ranks",))
    rows = NamedSharding(mesh, PartitionSpec("ranks"))
    mine = jnp.full((1, 1000), float(rank))
    all_rows = jax.make_array_from_single_device_arrays((n, 1000), rows, [jax.device_put(mine, jax.local_devices()[0])])
    for what, body, wanted in (
            ("psum", lambda x: jax.lax.psum(x, "ranks"), n * (n - 1) / 2),
            ("pmax", lambda x: jax.lax.pmax(x, "ranks"), n - 1),
            ("ppermute", lambda x: jax.lax.ppermute(x, "ranks", [(q, (q + 1) % n) for q in range(n)]), (rank - 1) % n)):
        out = jax.jit(shard_map(body, mesh=mesh, in_specs=PartitionSpec("ranks"), out_specs=PartitionSpec("ranks")))(
            all_rows)
        got = numpy.asarray(out.addressable_shards[0].data)
        if not (got == wanted).all():
            raise SystemExit(f"rank {rank}: {what} is {got.ravel()[0]} instead of {wanted}")
    if rank == 0:
        print("jax ok", flush=True)


main()
