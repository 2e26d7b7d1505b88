"""JAX on host devices, each a thread: jit of A @ B with the layouts as shardings of arguments and result."""

import os
import sys

from problems import LAYOUTS, RANKS, SHAPES, best, say

os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={RANKS}"

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices()), ("rank",))
SHARDING = {
    "row": NamedSharding(mesh, PartitionSpec("rank", None)),
    "col": NamedSharding(mesh, PartitionSpec(None, "rank")),
}
for shape in sys.argv[2:]:
    m, n, k = SHAPES[shape]
    for layouts in LAYOUTS:
        a, b, c = (SHARDING[name] for name in layouts.split(","))
        left = jax.device_put(np.full((m, k), 1e-3, np.float32), a)
        right = jax.device_put(np.full((k, n), 1e-3, np.float32), b)
        multiply = jax.jit(lambda x, y: x @ y, in_shardings=(a, b), out_shardings=c)
        seconds = best(lambda: multiply(left, right).block_until_ready(), int(sys.argv[1]))  # noqa: B023
        say("JAX", shape, layouts, seconds)
