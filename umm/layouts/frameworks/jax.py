"""JAX: a mesh of named axes, and for each dimension of an array the axes that cut it.

Axes of one dimension count in the order of the PartitionSpec, the last fastest, whatever their order in the
mesh. JAX shards only sizes that divide.

Source: JAX 0.10, jax.sharding.NamedSharding.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from typing import Any

import numpy as np

from umm.arrays import Ints
from umm.errors import LayoutError
from umm.layouts.frameworks.held import held_by
from umm.layouts.frameworks.mesh import Cut, Laid, Meshed, Parts, counted_mesh, held_along, holdings, parts_of
from umm.layouts.frameworks.words import edges_text, mesh_text, ranks_of, read_mesh

HOW = "jax:mesh=x:2,y:4;P(x,y)"
Axes = tuple[str, ...]
NAMES = "xyzuvw"


@dataclass(frozen=True)
class JaxLayout:
    """A layout as JAX says it; ``str`` is the text that ``--a`` takes."""

    mesh: Any  # number of the device at each place of the mesh, as nested lists
    axes: tuple[tuple[str, int], ...]  # names and lengths of its axes
    spec: tuple[Axes, Axes]  # the axes that cut rows, and those that cut columns: what `PartitionSpec` takes

    def __str__(self) -> str:
        shape = tuple(length for _, length in self.axes)
        listed = mesh_text(np.array(self.mesh).reshape(shape)).partition(":")[2]
        names = ",".join(f"{name}:{length}" for name, length in self.axes)
        return f"jax:mesh={names}{'@' + listed if listed else ''};P({','.join(map(_entry, self.spec))})"

    @property
    def partition_spec(self) -> str:
        """The PartitionSpec as it is typed.

        >>> JaxLayout([0, 1], (("x", 2),), (("x",), ())).partition_spec
        "P('x', None)"
        """
        entries = [repr(axes if len(axes) > 1 else axes[0] if axes else None) for axes in self.spec]
        return f"P({', '.join(entries)})"


def parts(mesh: Any, spec: Any, shape: tuple[int, int]) -> Parts:
    """Return how a matrix lies with a PartitionSpec on a mesh.

    LayoutError for what JAX would not shard, or that is no layout.

    Args:
        mesh: A ``jax.sharding.Mesh``, or names and lengths of its axes as a dict; devices count along it.
        spec: A ``PartitionSpec``, or what one takes.
    """
    names, ranks = mesh_of(mesh)
    return _parts(names, ranks, _axes(spec, names), shape)


def _parts(names: Sequence[str], ranks: Ints, cuts: tuple[Axes, Axes], shape: tuple[int, int]) -> Parts:
    order = [names.index(name) for name in (*cuts[0], *cuts[1])]
    rest = [i for i in range(len(names)) if i not in order]
    for dim, (size, axes) in enumerate(zip(shape, cuts, strict=True)):
        _check_divides(size, prod(ranks.shape[names.index(name)] for name in axes), dim)
    uses = [None] * len(rest) + [Cut(dim) for dim in (0, 1) for _ in cuts[dim]]
    return parts_of(shape, Meshed(ranks.transpose([*rest, *order]), tuple(uses)))


def _check_divides(size: int, ways: int, dim: int, words: str = "") -> None:
    if size % ways:
        raise LayoutError(
            f"{words}JAX shards only sizes that divide: {size} {('rows', 'columns')[dim]} in {ways}; "
            f"pad to {size + -size % ways}"
        )


def read(text: str, shape: tuple[int, int], ranks: int) -> Parts:
    """Parse the text after ``jax:``: ``mesh=x:2,y:4;P(x,y)``, with ``@0-2-1-3`` for other devices.

    LayoutError if it means nothing, or not on so many ranks.

    >>> read("mesh=x:2,y:2;P((y,x),None)", (8, 4), 4).places.tolist()
    [[[0], [2], [1], [3]]]
    """
    words = re.sub(r"[\s'\"]", "", text)
    match = re.fullmatch(r"mesh=([^;@]+)(?:@([0-9-]+))?;(?:P|PartitionSpec)\((.*)\)", words)
    if match is None:
        raise LayoutError(f"{text!r} says no sharding; write {HOW}")
    pairs = [re.fullmatch(r"([A-Za-z_]\w*):([1-9][0-9]{0,8})", axis) for axis in match[1].split(",")]
    if not all(pairs):
        raise LayoutError(f"{text!r}: {match[1]!r} names no axes; write {HOW}")
    names = tuple(pair[1] for pair in pairs if pair)
    sizes = "x".join(pair[2] for pair in pairs if pair)
    mesh = read_mesh(f"{sizes}:{match[2]}" if match[2] else sizes, ranks, text)
    entries = re.findall(r"\([^()]*\)|[^,()]+", match[3])
    spec = [None if e == "None" else tuple(filter(None, e.strip("()").split(","))) for e in entries]
    return _parts(names, mesh, _axes(spec, names), shape)


def written(layout: Laid, text: str) -> JaxLayout:
    """Return a layout in JAX's words, on a mesh along which devices are counted if there is one.

    LayoutError naming what JAX cannot say.
    """
    _refuse_uneven(layout, text)
    copies, rows, cols = layout.places.shape
    counted = counted_mesh(layout.places)
    if counted is not None:
        shape, order = counted.shape or (1,), counted.order
        ranks = np.arange(layout.places.size).reshape(shape)
    else:
        lengths = [(n, dim) for n, dim in ((copies, -1), (rows, 0), (cols, 1)) if n > 1]
        shape = tuple(n for n, _ in lengths)
        of_rows, of_cols = ([i for i, (_, use) in enumerate(lengths) if use == dim] for dim in (0, 1))
        order, ranks = (of_rows, of_cols), layout.places.reshape(shape)
    names = tuple(NAMES if len(shape) <= len(NAMES) else (f"axis{i}" for i in range(len(shape))))
    spec = tuple(names[i] for i in order[0]), tuple(names[i] for i in order[1])
    return JaxLayout(ranks.tolist(), tuple(zip(names, shape, strict=False)), spec)


def written_on(layout: Laid, text: str, mesh: Any) -> Any:
    """Return the ``NamedSharding`` of a layout on a ``jax.sharding.Mesh``.

    LayoutError if the layout cannot be had on this mesh.
    """
    from jax.sharding import NamedSharding, PartitionSpec

    _refuse_uneven(layout, text)
    names, ranks = mesh_of(mesh)
    wanted = holdings(layout)
    for dims in product((-1, 0, 1), repeat=len(names)):
        theirs = [[name for name, use in zip(names, dims, strict=True) if use == dim] for dim in (0, 1)]
        for rows, cols in product(permutations(theirs[0]), permutations(theirs[1])):
            divides = all(
                size % prod(ranks.shape[names.index(name)] for name in axes) == 0
                for size, axes in zip(layout.shape, (rows, cols), strict=True)
            )
            if divides and holdings(_parts(names, ranks, (rows, cols), layout.shape)) == wanted:
                return NamedSharding(mesh, PartitionSpec(rows or None, cols or None))
    axes = ",".join(f"{name}:{n}" for name, n in zip(names, ranks.shape, strict=True))
    raise LayoutError(
        f"{text} cannot be had on a mesh of {axes}; to_jax() without a mesh says on which it can"
    )


def _refuse_uneven(layout: Laid, text: str) -> None:
    """Refuse a layout that JAX shards on no mesh at all."""
    for dim, (size, places) in enumerate(zip(layout.shape, layout.process_grid, strict=True)):
        _check_divides(size, places, dim, f"{text}: ")
        if held_by((layout.row_edges, layout.col_edges)[dim], places) != held_along(size, [(places, 1)]):
            raise LayoutError(
                f"{text}: JAX cannot have {edges_text(layout, dim)}: a shard is one of equal parts"
            )


def mesh_of(mesh: Any) -> tuple[tuple[str, ...], Ints]:
    """Return the names of a mesh's axes and the number of the device at each of its places."""
    if isinstance(mesh, dict):
        return tuple(mesh), ranks_of(tuple(mesh.values()))
    names = tuple(str(name) for name in mesh.axis_names)
    devices = np.array([device.id for device in mesh.devices.flat])
    return names, ranks_of(devices.argsort().argsort().reshape(mesh.devices.shape))


def of_object(x: Any) -> tuple[Any, Any, Any]:
    """Return the mesh, the spec and the shape of a JAX array; of a NamedSharding, which has no shape, None.

    LayoutError if it is neither.
    """
    sharding = getattr(x, "sharding", x)
    mesh, spec = getattr(sharding, "mesh", None), getattr(sharding, "spec", None)
    if mesh is None or spec is None:
        raise LayoutError(
            f"{type(sharding).__name__} is no NamedSharding; give one, or an array that has one"
        )
    return mesh, spec, getattr(x, "shape", None)


def _axes(spec: Any, names: Sequence[str]) -> tuple[Axes, Axes]:
    """Return the axes that cut rows and those that cut columns."""
    if getattr(spec, "unreduced", None):
        raise LayoutError(f"{spec} is a sum that is not done, not a layout; reduce it first")
    entries: list[Axes] = []
    for entry in spec:
        if entry is not None and not isinstance(entry, str | tuple | list):
            raise LayoutError(f"{spec} leaves a dimension open; name its axes, or None")
        entries.append((entry,) if isinstance(entry, str) else tuple(entry or ()))
    if len(entries) > 2:
        raise LayoutError(
            f"P({', '.join(map(_entry, entries))}) is for {len(entries)} dimensions; a matrix has two"
        )
    rows, cols = (*entries, (), ())[:2]
    used = [*rows, *cols]
    wrong = [name for name in used if name not in names or used.count(name) > 1]
    if wrong:
        raise LayoutError(f"axis {wrong[0]!r} is not one of {', '.join(names)}, or cuts twice")
    return rows, cols


def _entry(axes: Axes) -> str:
    return f"({','.join(axes)})" if len(axes) > 1 else axes[0] if axes else "None"
