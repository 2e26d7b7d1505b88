"""One mesh of ranks on which several layouts can be had, as a multiply of frameworks needs it."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

import numpy as np

from umm.arrays import Ints
from umm.layouts.frameworks.mesh import Laid, Meshed, counted_mesh, meshed, on_mesh


def shared_mesh(layouts: Sequence[Laid]) -> list[Meshed] | None:
    """Return what the axes of one mesh are used for by each layout, none in strides; None if there is none.

    >>> from umm import Layout
    >>> found = shared_mesh([Layout.parse(text, (8, 8), 8) for text in ("row", "2d")])
    >>> found[0].ranks.shape, [[use and use.dim for use in x.uses] for x in found]
    ((2, 4), [[0, 0], [0, 1]])
    """
    for ranks in _meshes(layouts):
        found = [_plain(layout, ranks) for layout in layouts]
        if all(found):
            return [x for x in found if x]
    return None


def _plain(layout: Laid, ranks: Ints) -> Meshed | None:
    """Return the first uses of a mesh's axes for a layout that need no strides."""
    for found in on_mesh(layout, ranks):
        if all(use is None or use.split == 1 for use in found.uses):
            return found
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
    yield from (found.ranks for layout in layouts if (found := meshed(layout)))
