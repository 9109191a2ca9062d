"""Data-parallel training in JAX: the step is compiled as a whole, its all-reduce included. The loss is that of one
process, whatever the number of ranks:    tutti-run -n 4 python jax_training.py"""
import jax
import jax.numpy as jnp
import tutti
import tutti.jax

Layers = list[tuple[jax.Array, jax.Array]]

comm = tutti.init()


def predict(layers: Layers, x: jax.Array) -> jax.Array:
    for weights, offset in layers[:-1]:
        x = jnp.tanh(x @ weights + offset)
    weights, offset = layers[-1]
    return x @ weights + offset


def loss(layers: Layers, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((predict(layers, x) - y) ** 2)


def mean_of_ranks(x: jax.Array) -> jax.Array:
    return tutti.jax.all_reduce(x, comm, op="avg")


@jax.jit
def step(layers: Layers, x: jax.Array, y: jax.Array) -> tuple[Layers, jax.Array]:
    value, slopes = jax.value_and_grad(loss)(layers, x, y)
    slopes = jax.tree.map(mean_of_ranks, slopes)
    return jax.tree.map(lambda weight, slope: weight - 0.05 * slope, layers, slopes), mean_of_ranks(value)


keys = jax.random.split(jax.random.key(0), 4)
sizes = [4, 32, 32, 1]
layers = [(jax.random.normal(key, (m, n)) / m ** 0.5, jnp.zeros(n)) for key, m, n in zip(keys, sizes, sizes[1:])]
data = jax.random.uniform(keys[3], (960, 4), minval=-1)
goal = jnp.sin(3 * data[:, :1]) * data[:, 1:2] + data[:, 2:3] ** 2
mine = slice(comm.rank, None, comm.size)  # this rank's part of the data
for _ in range(200):
    layers, value = step(layers, data[mine], goal[mine])
print(f"rank {comm.rank} of {comm.size}: loss {value:.4f}")
comm.close()
