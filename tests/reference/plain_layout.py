"""The meaning of a layout's text form, written a second time: plain integers and loops.

Everything follows from the words of the text form; nothing is taken from `umm.layouts`.
"""

from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

Range = tuple[int, int]
Tile = tuple[int, int]


def ceil_edges(size: int, parts: int) -> list[int]:
    """Every part is ⌈size / parts⌉ long until the indices run out (torch.chunk, ScaLAPACK)."""
    length = -(-size // parts)
    edges = [0]
    for _ in range(parts):
        edges.append(min(edges[-1] + length, size))
    return edges


def balanced_edges(size: int, parts: int) -> list[int]:
    """Parts differ by one at most; the first ones get the indices that are left over."""
    edges = [0]
    for part in range(parts):
        edges.append(edges[-1] + size // parts + (1 if part < size % parts else 0))
    return edges


def most_square(places: int) -> tuple[int, int]:
    """Rows = the largest divisor of the places that is not above their square root."""
    rows = max(d for d in range(1, places + 1) if places % d == 0 and d * d <= places)
    return rows, places // rows


def common(one: Range, other: Range) -> Range:
    """The indices in both ranges, as a range; (0, 0) where there are none."""
    start, stop = max(one[0], other[0]), min(one[1], other[1])
    return (start, stop) if start < stop else (0, 0)


def length(span: Range) -> int:
    """Number of indices in a range."""
    return span[1] - span[0]


@dataclass
class PlainLayout:
    """Edges of the tile grid, the process grid of one replica, the rank at each (replica, row, column)."""

    row_edges: list[int]
    col_edges: list[int]
    grid: tuple[int, int]
    ranks: int
    replicas: int
    rank_at: dict[tuple[int, int, int], int]

    def tiles(self) -> list[Tile]:
        """All tiles, row-major, empty ones included."""
        return [(i, j) for i in range(len(self.row_edges) - 1) for j in range(len(self.col_edges) - 1)]

    def bounds(self, tile: Tile) -> tuple[Range, Range]:
        """Rows and columns of a tile."""
        i, j = tile
        return (self.row_edges[i], self.row_edges[i + 1]), (self.col_edges[j], self.col_edges[j + 1])

    def overlapping(self, rows: Range, cols: Range) -> list[Tile]:
        """Tiles that share an element with a submatrix, row-major."""
        across = [i for i, part in enumerate(pairwise(self.row_edges)) if length(common(part, rows))]
        along = [j for j, part in enumerate(pairwise(self.col_edges)) if length(common(part, cols))]
        return [(i, j) for i in across for j in along]

    def owner(self, tile: Tile, replica: int) -> int:
        """The rank that holds a tile of a replica."""
        return self.rank_at[replica, tile[0] % self.grid[0], tile[1] % self.grid[1]]

    def replica(self, rank: int) -> int:
        """The replica a rank belongs to."""
        return next(replica for (replica, _, _), owner in self.rank_at.items() if owner == rank)


def plain_layout(text: str, shape: tuple[int, int], ranks: int) -> PlainLayout:
    """Read a valid text form: a partition, then maybe flags, then maybe `@` and where the places lie."""
    partition, _, where = text.partition("@")
    sizes, _, word = where.partition(":")
    mesh = [int(size) for size in sizes.split("x")] if word and set(word) <= set("-rc") else []
    replicas = along(mesh, word, "-") if mesh else int(sizes or 1)
    places = ranks // replicas
    kind, *parts = [part for part in partition.split(":") if part not in ("balanced", "colmajor")]
    cut = balanced_edges if ":balanced" in partition else ceil_edges
    if mesh:
        grid = along(mesh, word, "r"), along(mesh, word, "c")
    elif kind in ("row", "col", "2d") and not parts:
        grid = {"row": (places, 1), "col": (1, places), "2d": most_square(places)}[kind]
    else:
        grid = pair(parts[-1])
    assert grid[0] * grid[1] == places

    if kind in ("row", "col", "2d"):
        edges = [cut(size, pieces) for size, pieces in zip(shape, grid, strict=True)]
    elif kind == "cyclic":
        edges = [[*range(0, size, step), size] for size, step in zip(shape, pair(parts[0]), strict=True)]
    else:
        assert kind == "edges"
        edges = [[int(edge) for edge in side.split("-")] for side in parts[0].split("x")]
    if mesh:
        rank_at = {place_on_mesh(rank, mesh, word): rank for rank in range(ranks)}
    else:
        listed = [int(rank) for rank in word.split("-")] if word[:1].isdigit() else []
        colmajor = ":colmajor" in partition
        rank_at = {}
        for replica, row, col in product(range(replicas), range(grid[0]), range(grid[1])):
            number = col * grid[0] + row if colmajor else row * grid[1] + col
            if listed:
                rank_at[replica, row, col] = listed[replica * places + number]
            elif word == "interleaved":
                rank_at[replica, row, col] = number * replicas + replica  # the rank whose place is rank // c
            else:
                rank_at[replica, row, col] = replica * places + number
    return PlainLayout(edges[0], edges[1], grid, ranks, replicas, rank_at)


def along(mesh: list[int], axes: str, use: str) -> int:
    """How many places the axes of one use make together."""
    return prod(size for size, axis in zip(mesh, axes, strict=True) if axis == use)


def place_on_mesh(rank: int, mesh: list[int], axes: str) -> tuple[int, int, int]:
    """Replica, row and column of a rank: its digits on the mesh, those of one use read as one number."""
    place = {"-": 0, "r": 0, "c": 0}
    for number, (size, axis) in enumerate(zip(mesh, axes, strict=True)):
        digit = rank // prod(mesh[number + 1 :]) % size
        place[axis] = place[axis] * size + digit
    return place["-"], place["r"], place["c"]


def pair(text: str) -> tuple[int, int]:
    """3x4 → (3, 4)."""
    rows, cols = text.split("x")
    return int(rows), int(cols)
