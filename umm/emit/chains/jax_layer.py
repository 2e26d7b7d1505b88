"""A chain in JAX: a mesh, a PartitionSpec for each tensor, and jit; XLA finds the communication."""

from collections.abc import Callable
from textwrap import indent, wrap
from typing import Any

from umm.emit.chains.forward import Forward, form_of
from umm.emit.chains.spread import mesh_of
from umm.emit.described import WIDTH, listed
from umm.errors import InputError
from umm.program import Map, Multiply
from umm.program.statements.attention import Attention
from umm.quoting import python

PROGRAM = '''"""<what>

python FILE runs it on the accelerators of this host, or on <ranks> devices made of its CPUs. With --check
the result is compared with the whole chain on one device.
"""

import os
import sys

RANKS = <ranks>
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={RANKS}"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

if jax.device_count() < RANKS:
    raise SystemExit(f"{jax.device_count()} devices are fewer than {RANKS}")
<mesh>
MESH = Mesh(np.array(jax.devices())[np.array(RANK_AT)], <axes>)
<x64>DTYPE = jnp.<dtype>
# How each tensor is cut: its rows, its columns.
SPECS = {
<specs>
}
SHAPES = {
<shapes>
}


def cut(name: str, x: jax.Array) -> jax.Array:
    """Return a tensor cut as planned."""
    return jax.lax.with_sharding_constraint(x, NamedSharding(MESH, SPECS[name]))
<helpers>

def layer(tensors: dict, cut=lambda name, x: x) -> dict:
    """Return the results; with `cut` each tensor is cut as planned."""
    t = dict(tensors)
<statements>
    return {name: t[name] for name in <results>}


@jax.jit
def sharded(tensors: dict) -> dict:
    """Return the results, all tensors cut as planned."""
    return layer({name: cut(name, x) for name, x in tensors.items()}, cut)


def main() -> None:
    rng = np.random.default_rng(0)
    whole = {
        name: (rng.uniform(-1, 1, SHAPES[name]) / np.sqrt(SHAPES[name][0])).astype(DTYPE) for name in <inputs>
    }
    placed = {name: jax.device_put(x, NamedSharding(MESH, SPECS[name])) for name, x in whole.items()}
    results = sharded(placed)
    for name, x in results.items():
        assert x.sharding.is_equivalent_to(NamedSharding(MESH, SPECS[name]), 2), name
    if "--check" in sys.argv:
        true = layer({name: jnp.asarray(x) for name, x in whole.items()})
        for name, x in results.items():
            x, y = (np.asarray(z, np.float32) for z in (x, true[name]))
            error = np.abs(x - y).max() / np.abs(y).max()
            if not error <= 64 * jnp.finfo(<precision>).eps:
                raise SystemExit(f"{name} is wrong: largest error {error:.1e} of its largest element")
            print(f"{name} is right: largest error {error:.1e} of its largest element")


if __name__ == "__main__":
    main()
'''
HELPERS = {
    "rms_norm": '''

def rms_norm(x, scale, epsilon):
    """Return rows over their root mean square, times a scale."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    over = jax.lax.rsqrt((wide * wide).mean(axis=1, keepdims=True) + epsilon)
    return (wide * over).astype(x.dtype) * scale
''',
    "rope": '''

def rope(x, head, base, positions, first):
    """Turn each pair of columns of a head by its position."""
    position = first + jnp.arange(x.shape[0])[:, None] % (positions or x.shape[0])
    pair = jnp.arange(0, x.shape[1], 2) % head
    angle = position * base ** (-pair / head)
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    even, odd = x[:, ::2], x[:, 1::2]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=2).reshape(x.shape)
''',
    "rope_halves": '''

def rope_halves(x, head, base, positions, first, turned):
    """Turn columns of a head's first half with those of its second."""
    position = first + jnp.arange(x.shape[0])[:, None] % (positions or x.shape[0])
    angle = position * base ** (-jnp.arange(0, turned, 2) / turned)
    cos, sin = (y[:, None].astype(x.dtype) for y in (jnp.cos(angle), jnp.sin(angle)))
    one, other, rest = jnp.split(x.reshape(x.shape[0], -1, head), (turned // 2, turned), axis=2)
    return jnp.concatenate([one * cos - other * sin, one * sin + other * cos, rest], axis=2).reshape(x.shape)
''',
    "attention": '''

def attention(q, k, v, head, length, causal, window):
    """Return attention within sequences of so many rows; heads lie in columns."""
    q, k, v = (x.reshape(-1, length, x.shape[1] // head, head) for x in (q, k, v))
    if window:
        at = jnp.arange(length)
        mask = (at[:, None] >= at) & (at[:, None] - at < window)
        return jax.nn.dot_product_attention(q, k, v, mask=mask[None, None]).reshape(-1, q.shape[2] * head)
    return jax.nn.dot_product_attention(q, k, v, is_causal=causal).reshape(-1, q.shape[2] * head)
''',
}
MAPS = {
    "add": "{0} + {1}", "mul": "{0} * {1}", "gelu": "jax.nn.gelu({0}, approximate=False)",
    "silu": "jax.nn.silu({0})", "relu": "jax.nn.relu({0})", "silu_mul": "jax.nn.silu({0}) * {1}",
}  # fmt: skip
LETTERS = "xyzwvuts"


def program(forward: Forward, note: str) -> str:
    """Return the program; InputError for layouts of no one mesh, or sizes that do not divide.

    Args:
        forward: A chain's forward part.
        note: What is known of it, in a line or several.
    """
    meshes = dict(zip((x.name for x in forward.used()), mesh_of(forward), strict=True))
    ranks = next(iter(meshes.values())).ranks
    axes = LETTERS[: ranks.ndim]
    specs, shapes = [], []
    for tensor in forward.used():
        cuts: list[list[str]] = [[], []]
        parts = [1, 1]
        for axis, use in zip(axes, meshes[tensor.name].uses, strict=True):
            if use is not None:
                cuts[use.dim].append(axis)
                parts[use.dim] *= ranks.shape[axes.index(axis)]
        for size, dim, kind in zip(tensor.shape, parts, ("rows", "columns"), strict=True):
            if size % dim:
                raise InputError(
                    f"{size} {kind} of {tensor.name} cannot be split evenly over {dim} devices, as JAX's "
                    "shardings need; choose sizes that divide"
                )
        spec = ", ".join("None" if not x else repr(x[0]) if len(x) == 1 else repr(tuple(x)) for x in cuts)
        specs.append(f"{tensor.name!r}: P({spec}),")
        if tensor.is_input:
            shapes.append(f"{tensor.name!r}: {tensor.shape},")
    lines = []
    for x in forward.statements:
        value = VALUES[type(x)](forward, x)
        lines.append(f"t[{x.outs[0]!r}] = cut({x.outs[0]!r}, {value})")
    text = "\n".join(lines)
    parameters = [x.name for x in forward.used() if x.is_input]
    wide = forward.dtype == "float64" and " attention(" in text  # JAX's own takes its softmax in float32
    reasons = (
        "XLA chooses collectives, overlap and the matrix that stays in place",
        "umm moves tensors one-sided, in slices beside multiplies",
        *forward.left_out,
    )
    left_out = f"Not expressed: {'; '.join(reasons)}."
    words = wrap(f"{forward.chain.name} on {forward.chain.ranks} ranks. {note} {left_out}", WIDTH)
    return python.filled(
        PROGRAM,
        {
            "what": python.docstring("\n".join(words)),
            "ranks": forward.chain.ranks,
            "dtype": forward.dtype,
            "x64": 'jax.config.update("jax_enable_x64", True)\n' if forward.dtype == "float64" else "",
            "precision": "jnp.float32" if wide else "DTYPE",
            "mesh": listed(ranks.tolist(), "RANK_AT"),
            "axes": repr(tuple(axes)),
            "specs": indent("\n".join(specs), "    "),
            "shapes": indent("\n".join(shapes), "    "),
            "helpers": "".join(code for name, code in HELPERS.items() if f" {name}(" in text),
            "statements": indent(text, "    "),
            "inputs": repr(parameters),
            "results": repr(list(forward.outputs)),
        },
    )


def _t(name: str) -> str:
    return f"t[{name!r}]"


def _multiply(_: Forward, statement: Multiply) -> str:
    sides = ((statement.a, "a"), (statement.b, "b"))
    return " @ ".join(_t(x) + (".T" if side in statement.trans else "") for x, side in sides)


def _attention(forward: Forward, statement: Attention) -> str:
    q, k, v = _t(statement.q), _t(statement.k), _t(statement.v)
    size = f"{statement.head}, {forward.length(statement)}"
    return f"attention({q}, {k}, {v}, {size}, {statement.causal}, {statement.window})"


def _map(_: Forward, statement: Map) -> str:
    reads, p = [_t(x) for x in statement.reads], statement.parameters
    if statement.fn == "rms_norm":
        return f"rms_norm({reads[0]}, {reads[1]}, {p.get('epsilon', 1e-5)!r})"
    if statement.fn == "rope":
        return f"rope({reads[0]}, {p['head']}, {p['base']}, {p.get('positions', 0)}, {p.get('first', 0)})"
    if statement.fn == "rope_halves":
        sizes = f"{p['head']}, {p['base']}, {p.get('positions', 0)}, {p.get('first', 0)}"
        return f"rope_halves({reads[0]}, {sizes}, {p.get('turned') or p['head']})"
    if statement.fn == "scale":
        return f"{float(next(iter(p.values())))!r} * {reads[0]}"
    return form_of(statement, MAPS).format(*reads)


VALUES: dict[type, Callable[[Forward, Any], str]] = {Multiply: _multiply, Attention: _attention, Map: _map}
"""How a statement's result is written, by its kind."""
