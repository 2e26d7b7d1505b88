"""What a layout's text form means, written a second time: plain integers and loops.

Everything follows from the words of the text form; nothing is taken from `umm.layouts.layout`.
"""

from dataclasses import dataclass
from itertools import pairwise

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
    """Edges of the tile grid, the process grid of one replica, and who is in which replica."""

    row_edges: list[int]
    col_edges: list[int]
    grid: tuple[int, int]
    ranks: int
    replicas: int
    interleaved: bool

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
        place = tile[0] % self.grid[0] * self.grid[1] + tile[1] % self.grid[1]
        if self.interleaved:
            return place * self.replicas + replica  # the rank whose place is rank // c
        return replica * (self.ranks // self.replicas) + place

    def replica(self, rank: int) -> int:
        """The replica a rank belongs to."""
        return rank % self.replicas if self.interleaved else rank // (self.ranks // self.replicas)


def plain_layout(text: str, shape: tuple[int, int], ranks: int) -> PlainLayout:
    """Read a valid text form: a partition, then maybe `:balanced`, then maybe `@c` or `@c:interleaved`."""
    partition, _, replication = text.partition("@")
    count, _, order = replication.partition(":")
    replicas = int(count or 1)
    places = ranks // replicas
    kind, *parts = [part for part in partition.split(":") if part != "balanced"]
    cut = balanced_edges if partition.endswith(":balanced") else ceil_edges

    if kind in ("row", "col") or kind == "2d":
        grid = {"row": (places, 1), "col": (1, places), "2d": most_square(places)}[kind]
        if parts:
            grid = pair(parts[0])
        edges = [cut(size, pieces) for size, pieces in zip(shape, grid, strict=True)]
    elif kind == "cyclic":
        tile, grid = pair(parts[0]), pair(parts[1])
        edges = [[*range(0, size, step), size] for size, step in zip(shape, tile, strict=True)]
    else:
        assert kind == "edges"
        grid = pair(parts[1])
        edges = [[int(edge) for edge in side.split("-")] for side in parts[0].split("x")]
    assert grid[0] * grid[1] == places
    return PlainLayout(edges[0], edges[1], grid, ranks, replicas, order == "interleaved")


def pair(text: str) -> tuple[int, int]:
    """3x4 → (3, 4)."""
    rows, cols = text.split("x")
    return int(rows), int(cols)
