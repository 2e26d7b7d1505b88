"""The words in which frameworks describe layouts, and helpers that several frameworks share."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from umm.arrays import Ints
from umm.errors import LayoutError
from umm.layouts.frameworks.mesh import Laid, Meshed, counted_mesh, meshed, on_mesh
from umm.numbers import parse_whole

_SIZES = re.compile(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8})*")


def ranks_of(mesh: Any) -> Ints:
    """Return the rank at each place of a mesh; LayoutError if the ranks are not those from 0 on, each once.

    Args:
        mesh: Lengths of its axes, as a tuple; or its ranks, as nested lists, an array or a tensor.

    >>> ranks_of((2, 2)).tolist(), ranks_of([[0, 2], [1, 3]]).shape
    ([[0, 1], [2, 3]], (2, 2))
    """
    if isinstance(mesh, tuple) and mesh and all(isinstance(n, int) for n in mesh):
        return np.arange(prod(mesh), dtype=np.int64).reshape(mesh)
    try:
        ranks = np.array(mesh.tolist() if hasattr(mesh, "tolist") else mesh, dtype=np.int64)
    except (TypeError, ValueError):
        raise LayoutError(f"{mesh!r} is no mesh; give lengths of its axes or the ranks of it") from None
    if not np.array_equal(np.sort(ranks, axis=None), np.arange(ranks.size)):
        shown = "-".join(map(str, ranks.reshape(-1)[:8].tolist())) + ("-…" if ranks.size > 8 else "")
        raise LayoutError(f"a mesh of ranks {shown} is not all of them; it must have each of 0 to p − 1 once")
    return ranks


def mesh_text(ranks: Ints) -> str:
    """Return a mesh as text: its shape, and its ranks one by one if they are not counted along it.

    >>> mesh_text(np.array([[0, 2], [1, 3]])), mesh_text(np.array([[0, 1]]))
    ('2x2:0-2-1-3', '1x2')
    """
    flat = ranks.reshape(-1)
    text = "x".join(map(str, ranks.shape))
    return (
        text if np.array_equal(flat, np.arange(flat.size)) else f"{text}:{'-'.join(map(str, flat.tolist()))}"
    )


def read_mesh(text: str, ranks: int, all_of: str) -> Ints:
    """Return the ranks of a mesh from its text; LayoutError if it is none, or has more or fewer ranks."""
    sizes, colon, listed = text.partition(":")
    if not _SIZES.fullmatch(sizes) or (colon and not re.fullmatch(r"[0-9]{1,9}(-[0-9]{1,9})*", listed)):
        raise LayoutError(f"{all_of!r}: {text!r} is no mesh; write 2x4, or 2x2:0-2-1-3 with its ranks")
    shape = tuple(parse_whole(size) for size in sizes.split("x"))
    if prod(shape) != ranks:
        raise LayoutError(f"{all_of!r}: a mesh of {prod(shape)} ranks cannot be laid over {ranks}")
    mesh = ranks_of([parse_whole(rank) for rank in listed.split("-")] if colon else (ranks,))
    if mesh.size != ranks:
        raise LayoutError(f"{all_of!r} lists {mesh.size} ranks for a mesh of {ranks}")
    return mesh.reshape(shape)


def edges_text(layout: Laid, dim: int) -> str:
    """Return at which edges a dimension is cut, in words; at most eight of them.

    >>> from umm.layouts.layout import Layout
    >>> edges_text(Layout.parse("cyclic:2x3:2x1", (5, 3), ranks=2), 0)
    'row edges 0-2-4-5 dealt out to 2'
    """
    cuts = np.unique((layout.row_edges, layout.col_edges)[dim]).tolist()
    shown = "-".join(map(str, cuts[:8])) + ("-…" if len(cuts) > 8 else "")
    return f"{('row', 'column')[dim]} edges {shown} dealt out to {layout.process_grid[dim]}"


def matrix_shape(shape: Any) -> tuple[int, int]:
    """Return a shape as two whole numbers; LayoutError if it is none of a matrix."""
    sizes = tuple(int(size) for size in shape) if shape is not None else ()
    if len(sizes) != 2:
        raise LayoutError(f"a layout needs the shape of a matrix, such as (8, 6), not {shape}")
    return sizes[0], sizes[1]


def shared_mesh(layouts: Sequence[Laid]) -> list[Meshed] | None:
    """Return each layout's uses of the axes of one mesh, none in strides; None if there is none.

    >>> from umm import Layout
    >>> meshes = shared_mesh([Layout.parse(text, (8, 8), 8) for text in ("row", "2d")])
    >>> meshes[0].ranks.shape, [[use and use.dim for use in x.uses] for x in meshes]
    ((2, 4), [[0, 0], [0, 1]])
    """
    for ranks in _meshes(layouts):
        # Of each layout the first uses of the mesh's axes that need no strides.
        plain = (
            (x for x in on_mesh(layout, ranks) if all(use is None or use.split == 1 for use in x.uses))
            for layout in layouts
        )
        uses = [next(x, None) for x in plain]
        if all(uses):
            return [x for x in uses if x]
    return None


def _meshes(layouts: Sequence[Laid]) -> Iterator[Ints]:
    """Yield meshes: the one that ranks are counted along in all layouts, then those of each layout."""
    counted = [counted_mesh(layout.places) for layout in layouts]
    total = layouts[0].places.size
    strides = {1, total} | {prod(x.shape[i:]) for x in counted if x for i in range(1, len(x.shape))}
    steps = sorted(strides)
    if all(counted) and all(b % a == 0 for a, b in pairwise(steps)):
        shape = [b // a for a, b in pairwise(steps)][::-1]
        yield np.arange(total, dtype=np.int64).reshape(shape or (1,))
    yield from (mesh.ranks for layout in layouts if (mesh := meshed(layout)))
