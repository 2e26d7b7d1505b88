"""A tensor on a device mesh as DTensor says it: a matrix, and what each axis of the mesh does to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from umm.arrays import Ints
from umm.errors import LayoutError
from umm.layouts.frameworks.mesh import Cut, Meshed, Use, parts_of
from umm.layouts.layout import Layout

PARTIAL = "Partial"
State = tuple[Use | str, ...]
"""What each axis of a mesh does: cut, replicate (None), or hold a part of a sum."""
DTYPES = {8: "float64", 4: "float32", 2: "float16"}


@dataclass(frozen=True)
class Matter:
    """A tensor folded to a matrix: the dimensions that are cut are its rows and columns.

    Attributes:
        mesh: Shape of the device mesh.
        ranks: The rank at each place of it, row-major.
        shape: Rows and columns.
        width: Elements that each of them stands for.
        dtype: Of umm's types one with elements as large.
    """

    mesh: tuple[int, ...]
    ranks: tuple[int, ...]
    shape: tuple[int, int]
    width: int
    dtype: str

    def layout(self, state: State) -> Layout:
        """Return the layout of a state; what is Partial counts as held by everyone."""
        uses = tuple(None if isinstance(use, str) else use for use in state)
        parts = parts_of(self.shape, Meshed(np.array(self.ranks).reshape(self.mesh), uses))
        wide = parts._replace(col_edges=parts.col_edges * self.width)
        return Layout(
            (self.shape[0], self.shape[1] * self.width),
            wide.row_edges,
            wide.col_edges,
            wide.process_grid,
            replicas=len(wide.places),
            places=wide.places,
        )

    def groups(self, axis: int) -> list[list[int]]:
        """Return the ranks that are joined along an axis."""
        ranks: Ints = np.moveaxis(np.array(self.ranks).reshape(self.mesh), axis, -1)
        lines: list[list[int]] = ranks.reshape(-1, self.mesh[axis]).tolist()
        return lines


def matter(now: Any, then: Any) -> tuple[Matter, State, State]:
    """Return the tensor of two specs, and what each axis of its mesh does to it before and after.

    Args:
        now: A ``DTensorSpec``.
        then: Another, of the same tensor on the same mesh.

    Raises:
        LayoutError: for three dimensions that are cut, where a layout has two.
    """
    sizes, itemsize = tuple(int(n) for n in now.shape), int(now.tensor_meta.dtype.itemsize)
    cut = sorted(
        {_dim(x) % len(sizes) for spec in (now, then) for x in spec.placements if _dim(x) is not None}
    )
    if len(cut) > 2:
        raise LayoutError(f"dimensions {', '.join(map(str, cut))} are cut; a layout cuts two of them")
    over = [dim for dim in range(len(sizes)) if dim not in cut]
    dims = (cut + over)[:2]  # a dimension that is not cut may be rows or columns as well
    folded = [sizes[dim] for dim in dims] + [1, 1]
    width = prod(sizes) // max(1, prod(folded[:2]))
    if itemsize not in DTYPES:
        width, itemsize = -(-width * itemsize // 2), 2
    ids = np.array(now.mesh.mesh.tolist())
    ranks = tuple(ids.reshape(-1).argsort().argsort().tolist())
    found = Matter(ids.shape, ranks, (folded[0], folded[1]), width, DTYPES[itemsize])
    return found, _state(now.placements, dims, len(sizes)), _state(then.placements, dims, len(sizes))


def _dim(placement: Any) -> Any:
    """Return which dimension a placement cuts, by what it says of itself; None if none."""
    return getattr(placement, "dim", None)


def _state(placements: Sequence[Any], dims: Sequence[int], count: int) -> State:
    state: list[Use | str] = []
    for placement in placements:
        if _dim(placement) is not None:
            state.append(Cut(dims.index(_dim(placement) % count), int(getattr(placement, "split_factor", 1))))
        else:
            state.append(PARTIAL if "Partial" in type(placement).__name__ else None)
    return tuple(state)
