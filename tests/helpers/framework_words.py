"""Placements on meshes, drawn and read a second time: lists of indices, by the rules of torch.chunk."""

from itertools import product
from math import prod

from hypothesis import strategies as st
from strategies import SIZES

MESHES = st.sampled_from([(1,), (2,), (3,), (6,), (2, 2), (2, 3), (3, 2), (4, 2), (2, 2, 2), (2, 1, 3)])


def chunks(indices, parts):
    """The pieces of torch.chunk of a list: parts as long as the first, a shorter one, then empty ones."""
    length = -(-len(indices) // parts)
    return [indices[i * length : (i + 1) * length] for i in range(parts)]


def plain_dtensor(mesh, placements, shape):
    """Rows and columns that each rank holds, by the rules of DTensor and lists of indices."""
    result = []
    for at in product(*map(range, mesh)):
        indices = [list(range(size)) for size in shape]
        for i, parts, placement in zip(at, mesh, placements, strict=True):
            if placement == "Replicate":
                continue
            dim, split = (*[int(x) for x in placement[placement.index("(") + 1 : -1].split(",")], 1)[:2]
            indices[dim] = [x for piece in chunks(indices[dim], split) for x in chunks(piece, parts)[i]]
        result.append(indices if all(indices) else [[], []])
    return result


def held(layout):
    """The same of a layout."""
    result = []
    for rank in range(layout.ranks):
        bounds = [layout.tile_bounds(tile) for tile in layout.tiles_of(rank)]
        sides = [sorted({i for b in bounds for i in range(*b[dim])}) for dim in (0, 1)]
        result.append(sides if all(sides) else [[], []])
    return result


@st.composite
def dtensors(draw):
    """A mesh, placements and a shape; strides only as an order of axes needs them."""
    mesh, shape = draw(MESHES), (draw(SIZES), draw(SIZES))
    dims = [draw(st.sampled_from([None, 0, 1])) for _ in mesh]
    placements = ["Replicate"] * len(mesh)
    for dim in (0, 1):
        order = draw(st.permutations([axis for axis, cut in enumerate(dims) if cut == dim]))
        for place, axis in enumerate(order):
            split = prod(mesh[outer] for outer in order[:place] if outer > axis)
            placements[axis] = f"Shard({dim})" if split == 1 else f"_StridedShard({dim},{split})"
    return mesh, placements, shape
