"""A multiply in JAX: a mesh and a sharding for each matrix, and jit.

JAX shards only sizes that divide, so a matrix whose sizes do not is padded with zeros to parts as large as
its first: its shards are then the tiles of the layout, and zeros.
"""

import numpy as np

from umm.emit.described import Described, listed
from umm.errors import InputError, LayoutError
from umm.layouts.edges import ceil_edges
from umm.layouts.frameworks.held import held_by
from umm.layouts.layout import Layout
from umm.program.problem import MATRICES

PROGRAM = '''"""<what>

python FILE runs it on the accelerators of this host, or on <ranks> devices made of its CPUs. With --check
the product is checked against the whole matrices.
"""

import os
import sys

RANKS, M, N, K = <ranks>, <m>, <n>, <k>
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={RANKS}"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

<x64>DTYPE, C_DTYPE = jnp.<dtype>, jnp.<c_dtype>
TOLERANCE = <tolerance>  # what rounding may be off, as a share of the largest element of C
if jax.device_count() < RANKS:
    raise SystemExit(f"{jax.device_count()} devices are fewer than {RANKS}")


def mesh(ranks: list, axes: tuple) -> Mesh:
    """Return a mesh with the devices of these numbers."""
    return Mesh(np.array(jax.devices())[np.array(ranks)], axes)


# Where each matrix lies<padding>.
<shardings>


@jax.jit(in_shardings=(A, B), out_shardings=C)
def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return C = AB where it shall lie; XLA finds the communication."""
    <product>


def placed(x: np.ndarray, sharding: NamedSharding, shape: tuple) -> jax.Array:
    """Return a whole matrix, padded to a shape, where it shall lie."""
    padded = np.zeros(shape, x.dtype)
    padded[: x.shape[0], : x.shape[1]] = x
    return jax.device_put(padded, sharding)


def main() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, shape).astype(DTYPE) for shape in ((M, K), (K, N)))
    c = multiply(placed(a, A, A_SHAPE), placed(b, B, B_SHAPE))
    assert c.sharding.is_equivalent_to(C, 2) and c.shape == C_SHAPE and c.dtype == C_DTYPE
    if "--check" in sys.argv:
        found = np.asarray(c, np.float64)[:M, :N]
        true = a.astype(np.float64) @ b.astype(np.float64)
        error = np.abs(found - true).max() / np.abs(true).max()
        said = f"largest error {error:.1e} of its largest element ({TOLERANCE:.0e} allowed)"
        if not error <= TOLERANCE:
            raise SystemExit(f"C is wrong: {said}")
        print(f"C is right: {said}")


if __name__ == "__main__":
    main()
'''


def program(asked: Described) -> str:
    """Return the program; InputError for layouts that JAX cannot have, even padded, naming the property."""
    problem = asked.problem
    padded = [padded_layout(x, name) for x, name in zip(problem.outside, MATRICES, strict=True)]
    # A layout's devices, one after another, are those of its mesh.
    if len({tuple(np.ravel(layout.to_jax().mesh).tolist()) for layout in padded}) > 1:
        raise InputError("JAX multiplies arrays on devices in one order, but these layouts need several")
    shardings = []
    for name, layout in zip(MATRICES, padded, strict=True):
        sharding = layout.to_jax()
        axes = ", ".join(repr(axis) for axis, _ in sharding.axes) + ("," if len(sharding.axes) == 1 else "")
        shardings += [
            listed(sharding.mesh, f"{name}_MESH"),
            f"{name} = NamedSharding(mesh({name}_MESH, ({axes})), {sharding.partition_spec})",
            f"{name}_SHAPE = {layout.shape}",
        ]
    uneven = [layout.shape != problem.shape(x) for x, layout in zip(MATRICES, padded, strict=True)]
    rows, cols = (a - b for a, b in zip(padded[2].shape, problem.shape("C"), strict=True))
    factors = [
        f"{x}[:{r}, :{c}]" if off else x for x, r, c, off in zip("ab", "MK", "KN", uneven, strict=False)
    ]
    product = f"jnp.matmul({', '.join(factors)}, preferred_element_type=C_DTYPE)"
    if uneven[2]:
        product = f"jnp.pad({product}, ((0, {rows}), (0, {cols})))"
    return asked.filled(
        PROGRAM,
        x64='jax.config.update("jax_enable_x64", True)\n'
        if "float64" in (problem.dtype, problem.c_dtype)
        else "",
        padding=", padded with zeros to parts as large as its first" if any(uneven) else "",
        shardings="\n".join(shardings),
        product=f"return {product}",
    )


def padded_layout(layout: Layout, name: str) -> Layout:
    """Return a layout of a matrix padded so that all its parts are as large as its first.

    LayoutError if its parts are others than those that padding fills up.

    >>> padded_layout(Layout.parse("row", (10, 4), ranks=4), "A").shape
    (12, 4)
    """
    shape = []
    for dim, (size, places) in enumerate(zip(layout.shape, layout.process_grid, strict=True)):
        edges = (layout.row_edges, layout.col_edges)[dim]
        if held_by(edges, places) != held_by(ceil_edges(size, places), places):
            raise LayoutError(
                f"JAX cannot have {name} in {layout}: a shard is one of equal parts, and padding at the end"
            )
        shape.append(-(-size // places) * places)
    return Layout.block(
        (shape[0], shape[1]), layout.process_grid, replicas=layout.replicas, places=layout.places
    )
