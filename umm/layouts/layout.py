"""How one matrix is cut into tiles, who owns each tile, and how often the whole is replicated."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from umm.arrays import Ints, summed_before
from umm.errors import LayoutError, expect
from umm.files import shown
from umm.layouts import frameworks
from umm.layouts.edges import MOST_TILES, RULES, Tile
from umm.layouts.frameworks.mesh import Parts, counted_mesh
from umm.layouts.places import USES, arranged, check_replicas, listed, on_mesh, usual
from umm.layouts.spoken import Spoken
from umm.layouts.text import Form, Where, read_form
from umm.notebook import Shown
from umm.numbers import as_int


class Layout(Spoken, Shown):
    """A shape, a partition of it (row and column edges, an owner for each tile), and replicas.

    Tile grids are row-major; tile (i, j) belongs to place (i mod rows, j mod columns) of the process
    grid. Each of the c replicas holds the whole matrix on p / c ranks. Which rank has which place of
    which replica is an array, ``places``; unless given, places are counted row-major, and replica r has
    ranks r·p/c … (r + 1)·p/c − 1 (``blocked``) or the ranks ≡ r mod c (``interleaved``).

    Two layouts are equal when they cut the matrix into the same tiles with the same owners, and every rank is
    in the same replica. How they were written and what empty tiles they have does not count. Empty tiles
    count in the numbers of tiles, so what is kept by layout and holds such numbers must be kept by ``cuts``
    too.

    Attributes:
        shape: Rows and columns of the matrix.
        row_edges: Global row index where each tile row starts, and the end. Empty tiles are legal.
        col_edges: The same for columns.
        process_grid: Rows and columns of the process grid of one replica.
        places: The rank at each place, shape (replicas, process grid rows, process grid columns).
        ranks: p, the ranks of all replicas together.
        replicas: c, which divides p.
        text: The text form, without the shape and the ranks; ``str`` of the layout.

    Source: Brock & Golin (2025), section 3.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        row_edges: Sequence[int] | Ints,
        col_edges: Sequence[int] | Ints,
        process_grid: tuple[int, int],
        *,
        ranks: int | None = None,
        replicas: int = 1,
        order: str = "blocked",
        places: Ints | None = None,
        text: str | None = None,
    ) -> None:
        """Take the edges, and where the tiles lie; LayoutError if these do not fit together.

        Args:
            ranks: p, where it shall be checked.
            order: ``blocked`` or ``interleaved``.
            places: The rank at each place, instead of an order; shape (replicas, *process_grid).
            text: The text form, if it is not to be ``edges:…``.
        """
        super().__init__(shape, row_edges, col_edges)
        self.process_grid = process_grid
        self.ranks = prod(process_grid) * replicas if ranks is None else ranks
        self.replicas = replicas
        check_replicas(self.ranks, replicas)
        if prod(process_grid) != self.ranks // replicas:
            raise LayoutError(
                f"process grid {process_grid[0]}x{process_grid[1]} has {prod(process_grid)} places, but a "
                f"replica has {self.ranks // replicas} ranks ({self.ranks} ranks / {replicas} replicas)"
            )
        rows, cols = self.grid_shape()
        if rows * cols * replicas > MOST_TILES:
            raise LayoutError(
                f"{rows} x {cols} tiles in {replicas} replicas are more than {MOST_TILES:,} in all"
            )
        self.places = _placed(process_grid, replicas, order, places)
        if text is None:
            edges = tuple(self.row_edges.tolist()), tuple(self.col_edges.tolist())
            text = _text(Form("edges", process_grid, edges=edges), self.places)
        self.text = text

    # Constructors ---------------------------------------------------------------------------------

    @classmethod
    def block(
        cls,
        shape: tuple[int, int],
        process_grid: tuple[int, int],
        *,
        replicas: int = 1,
        rule: str = "ceil",
        order: str = "blocked",
        places: Ints | None = None,
    ) -> "Layout":
        """One tile for each place of the process grid.

        >>> Layout.block((10, 6), (3, 1), rule="balanced").tile_bounds((1, 0))[0]
        Interval(start=4, stop=7)
        """
        if min(process_grid) < 1:
            raise LayoutError(f"a process grid needs at least one row and one column, not {process_grid}")
        if rule not in RULES:
            raise LayoutError(f"rule {rule!r} is unknown; choose from {', '.join(RULES)}")
        form = Form("2d", process_grid, balanced=rule == "balanced")
        return cls._of(form, shape, process_grid, _placed(process_grid, replicas, order, places))

    @classmethod
    def block_cyclic(
        cls,
        shape: tuple[int, int],
        tile_shape: tuple[int, int],
        process_grid: tuple[int, int],
        *,
        replicas: int = 1,
        order: str = "blocked",
        places: Ints | None = None,
    ) -> "Layout":
        """Tiles of one shape dealt out cyclically over a process grid, as in ScaLAPACK."""
        if min(tile_shape) < 1 or min(process_grid) < 1:
            raise LayoutError(f"tile shape {tile_shape} and process grid {process_grid} must be at least 1x1")
        form = Form("cyclic", process_grid, tile_shape)
        return cls._of(form, shape, process_grid, _placed(process_grid, replicas, order, places))

    @classmethod
    def _of(
        cls,
        form: Form,
        shape: tuple[int, int],
        process_grid: tuple[int, int],
        places: Ints,
        text: str | None = None,
    ) -> "Layout":
        rows, cols = form.cut(shape, process_grid)
        text = text or _text(form, places)
        return cls(shape, rows, cols, process_grid, replicas=len(places), places=places, text=text)

    @classmethod
    def of_parts(cls, parts: Parts, shape: tuple[int, int]) -> "Layout":
        """Return the layout of a shape that is cut so, with the plainest text that means it."""
        rows, cols, grid, places = parts
        exact = cls(shape, rows, cols, grid, replicas=len(places), places=places)
        for form in _plain_forms(exact):
            named = cls._of(form, shape, grid, places, str(form))
            if named == exact:
                return named
        return exact

    @classmethod
    def parse(cls, text: str, shape: tuple[int, int], ranks: int) -> "Layout":
        """Return the layout that a text form means for a matrix of this shape on this many ranks.

        The forms are ``row``, ``col``, ``2d``, ``2d:3x4``, ``cyclic:256x128:3x4`` and
        ``edges:0-3-8x0-5-9:1x2``, then optionally ``:balanced`` and ``:colmajor``. Last come, optionally,
        ``@c``, ``@c:interleaved``, a mesh of ranks and what its axes are for (``@2x3x4:r-c``), or the ranks
        in the order of their places (``@c:0-3-1-2``). The words of frameworks are taken too, and mean one of
        these: ``shard(0)``, ``dtensor:mesh=2x4;Shard(0),Replicate``, ``jax:mesh=x:2,y:4;P(x,y)``,
        ``hpf:(BLOCK,*)``, a ScaLAPACK descriptor. Equal arguments give the same object.

        LayoutError for a text of another form, or one that does not fit the shape or the ranks.

        >>> layout = Layout.parse("2d:3x2:balanced@2:interleaved", (8, 5), ranks=12)
        >>> str(layout), layout.replicas, layout.owner((2, 1), replica=1)
        ('2d:3x2:balanced@2:interleaved', 2, 11)
        >>> Layout.parse("2d@2x2x2:r-c", (4, 4), ranks=8).owners.tolist()
        [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
        """
        if not (type(shape) is tuple and tuple(map(type, (text, *shape, ranks))) == (str, int, int, int)):
            shape, ranks = _arguments(text, shape, ranks)
        return _parsed(text, shape, ranks)

    @staticmethod
    def check_text(text: str) -> None:
        """Refuse a text that is no layout of any matrix on any ranks.

        LayoutError for a text of another form.
        """
        if not frameworks.is_foreign(text):
            read_form(text)

    # Owners and replicas --------------------------------------------------------------------------

    @cached_property
    def transposed(self) -> "Layout":
        """The layout of the transposed matrix if nothing moves: rows and columns change places.

        >>> str(Layout.parse("2d:2x4", (6, 8), ranks=8).transposed)
        'edges:0-2-4-6-8x0-3-6:4x2:colmajor'
        """
        rows, cols = self.shape
        return Layout(
            (cols, rows),
            self.col_edges,
            self.row_edges,
            (self.process_grid[1], self.process_grid[0]),
            replicas=self.replicas,
            places=self.places.transpose(0, 2, 1),
        )

    @cached_property
    def owners(self) -> Ints:
        """Owner rank of every tile: an array of shape (replicas, grid rows, grid columns)."""
        grid_rows, grid_cols = self.grid_shape()
        row = np.arange(grid_rows) % self.process_grid[0]
        col = np.arange(grid_cols) % self.process_grid[1]
        return np.ascontiguousarray(self.places[:, row[:, None], col])

    @cached_property
    def replica_owners(self) -> Ints:
        """The same with tiles numbered row-major: shape (replicas, tiles)."""
        return self.owners.reshape(self.replicas, -1)

    @cached_property
    def place_of_rank(self) -> tuple[Ints, Ints, Ints]:
        """Replica, and row and column of the process grid, of each rank, for all ranks.

        >>> [x.tolist() for x in Layout.parse("2d:1x3@2:interleaved", (3, 3), ranks=6).place_of_rank]
        [[0, 1, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 2, 2]]
        """
        places = np.unravel_index(self.places.reshape(-1).argsort(), self.places.shape)
        replica, row, col = map(np.ascontiguousarray, places)
        return replica, row, col

    @property
    def replica_of_rank(self) -> Ints:
        """Replica that each rank belongs to, for all ranks."""
        return self.place_of_rank[0]

    def owner(self, tile: Tile, replica: int = 0) -> int:
        """Return the rank that holds a tile of a replica."""
        i, j = self.checked_tile(tile)
        return int(self.owners[replica, i, j])

    def replica(self, rank: int) -> int:
        """Return the replica that a rank belongs to."""
        return int(self.replica_of_rank[rank])

    def tiles_of(self, rank: int) -> list[Tile]:
        """Return the tiles a rank holds, in row-major order, empty ones included."""
        owner, _, i, j = self.tiles_by_owner
        return _of_owner(owner, i, j, rank)

    def filled_of(self, rank: int) -> list[Tile]:
        """Return the tiles a rank holds that are not empty, in row-major order.

        >>> layout = Layout.parse("zigzag:2", (8, 3), ranks=4)
        >>> layout.tiles_of(1), layout.filled_of(1)
        ([(1, 0), (5, 0), (9, 0), (13, 0), (17, 0)], [(1, 0), (5, 0)])
        """
        owner, _, i, j = self.filled_by_owner
        return _of_owner(owner, i, j, rank)

    def filled(self) -> Iterator[tuple[int, Tile, int]]:
        """Yield owner, place in the grid and replica of every tile that is not empty, replica by replica."""
        tiles = self.tile_elements.nonzero()[0]
        i, j = (x.tolist() for x in np.divmod(tiles, self.grid_shape()[1]))
        for replica, owners in enumerate(self.replica_owners):
            for owner, row, col in zip(owners[tiles].tolist(), i, j, strict=True):
                yield owner, (row, col), replica

    @cached_property
    def tiles_by_owner(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Owner, replica, row and column of all tiles of all replicas, by owner, then in row-major order."""
        owner = self.owners.reshape(-1)
        by_owner = owner.argsort(kind="stable")
        replica, i, j = map(np.ascontiguousarray, np.unravel_index(by_owner, self.owners.shape))
        return owner[by_owner], replica, i, j

    @cached_property
    def filled_by_owner(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Owner, replica, row and column of the tiles that are not empty, in the same order."""
        owner, replica, i, j = self.tiles_by_owner
        full = self.tile_elements.reshape(self.grid_shape())[i, j] > 0
        return owner[full], replica[full], i[full], j[full]

    @cached_property
    def tile_starts(self) -> Ints:
        """Elements that lie before each tile in its owner's memory, shape (replicas, rows, columns).

        A rank's tiles follow each other in row-major order of the tile grid, each stored row by row.

        >>> Layout.parse("cyclic:2x2:1x2", (4, 4), ranks=2).tile_starts.tolist()
        [[[0, 0], [4, 4]]]
        """
        size = np.broadcast_to(self.tile_elements, self.replica_owners.shape).reshape(-1)
        return summed_before(self.owners.reshape(-1), size).reshape(self.owners.shape)

    @cached_property
    def elements_of_rank(self) -> Ints:
        """Number of elements each rank holds.

        >>> Layout.parse("row@3", (8, 6), ranks=9).elements_of_rank.tolist()
        [18, 18, 12, 18, 18, 12, 18, 18, 12]
        """
        elements = np.zeros(self.ranks, dtype=np.int64)
        owners = self.replica_owners
        # Written out, because add.at reads past the end of values that it should broadcast (NumPy 2.4).
        np.add.at(elements, owners, np.broadcast_to(self.tile_elements, owners.shape))
        return elements

    # Identity -------------------------------------------------------------------------------------

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Equal for layouts with the same shape, edges and owners (without empty tiles), and replicas."""
        rows, cols = ((x[1:] > x[:-1]).nonzero()[0] for x in (self.row_edges, self.col_edges))
        return (
            self.shape,
            self.row_edges[rows].tobytes(),
            self.col_edges[cols].tobytes(),
            self.owners[:, rows[:, None], cols].tobytes(),
            self.replica_of_rank.tobytes(),
        )

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, object]:
        # Another process hashes the same bytes to another number.
        return {name: value for name, value in vars(self).items() if name != "_hash"}

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Layout) and self.key == other.key)

    def describe(self, rank: int | None = None) -> str:
        """Describe in words the matrix and its layout, and a rank's part of it.

        >>> print(Layout.parse("row", (10, 6), ranks=3).describe(rank=2))
        10x6 in row over 3 ranks; rank 2 holds 2x6: rows 8:10, columns 0:6
        >>> print(Layout.parse("cyclic:2x3:1x2@2", (8, 6), ranks=4).describe(rank=3))
        8x6 in cyclic:2x3:1x2@2 over 4 ranks, 2 replicas; rank 3 of replica 1 holds 4 tiles, 24 elements
        """
        rows, cols = self.shape
        copies = f", {self.replicas} replicas" if self.replicas > 1 else ""
        words = f"{rows}x{cols} in {self} over {self.ranks} rank{'s' * (self.ranks > 1)}{copies}"
        if rank is None:
            return words
        tiles = self.filled_of(rank)
        part = f"{len(tiles)} tiles, {self.elements_of_rank[rank]} elements" if tiles else "nothing"
        if len(tiles) == 1:
            (first, last), (left, right) = self.tile_bounds(tiles[0])
            part = f"{last - first}x{right - left}: rows {first}:{last}, columns {left}:{right}"
        return f"{words}; rank {rank}{f' of replica {self.replica(rank)}' if copies else ''} holds {part}"

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Layout({self.text!r}, shape={self.shape}, ranks={self.ranks})"


def _of_owner(owner: Ints, i: Ints, j: Ints, rank: int) -> list[Tile]:
    """Return one rank's tiles of some that are sorted by owner."""
    first, last = owner.searchsorted((rank, rank + 1))
    return list(zip(i[first:last].tolist(), j[first:last].tolist(), strict=True))


def _arguments(text: Any, shape: Any, ranks: Any) -> tuple[tuple[int, int], int]:
    """Return a shape and ranks of other types, such as NumPy's, as ints; LayoutError for others."""
    # 64.0 equals 64, so parsed once it would be the layout of the whole number too.
    sizes = [as_int(x) for x in shape] if isinstance(shape, Iterable) else []
    if [*map(type, sizes)] != [int, int] or type(as_int(ranks)) is not int:
        raise LayoutError(
            f"a layout needs a shape and ranks such as (64, 48) and 8, not {shown(shape)} and {shown(ranks)}"
        )
    expect(text, str, "a layout", "a text such as col@2")
    return (sizes[0], sizes[1]), as_int(ranks)


@lru_cache(maxsize=8192)
def _parsed(text: str, shape: tuple[int, int], ranks: int) -> Layout:
    if frameworks.is_foreign(text):
        return Layout.of_parts(frameworks.read(text, shape, ranks), shape)
    form = read_form(text)
    where, replicas = form.where, form.where.replicas
    if where.mesh and prod(where.mesh) != ranks:
        raise LayoutError(f"{text}: a mesh of {prod(where.mesh)} ranks cannot be laid over {ranks}")
    check_replicas(ranks, replicas)
    grid = form.process_grid(ranks // replicas)
    form = form.unshared(shape, grid)
    if where.mesh:
        places = on_mesh(where.mesh, where.axes)
    elif where.ranks:
        places = listed(where.ranks, replicas, grid)
    else:
        places = arranged(grid, replicas, where.order, form.colmajor)
    return Layout._of(form, shape, grid, places, str(form))


def _placed(process_grid: tuple[int, int], replicas: int, order: str, places: Ints | None) -> Ints:
    """Return the places as given, checked, or in an order."""
    check_replicas(prod(process_grid) * replicas, replicas)
    if places is None:
        return arranged(process_grid, replicas, order)
    return listed(places, replicas, process_grid)


def _text(form: Form, places: Ints) -> str:
    """Return the text of a partition with these places, one by one if not in a usual order."""
    where, colmajor = _where(places, meshes=False)
    return str(replace(form, colmajor=colmajor, where=where))


def _plain_forms(layout: Layout) -> Iterator[Form]:
    """Yield forms that may mean a layout and are shorter than its edges, the plainest first."""
    grid, places = layout.process_grid, layout.places
    where, colmajor = _where(places)
    rule = "row" if grid[1] == 1 else "col" if grid[0] == 1 else "2d"
    named = grid if rule == "2d" and not where.mesh else None
    yield Form(rule, named, colmajor=colmajor, where=where)
    yield Form(rule, named, balanced=True, colmajor=colmajor, where=where)
    edges = (np.unique(layout.row_edges), np.unique(layout.col_edges))
    if all(len(cuts) > 1 for cuts in edges):
        rows, cols = (int(cuts[1]) for cuts in edges)
        yield Form("cyclic", None if where.mesh else grid, (rows, cols), colmajor=colmajor, where=where)


def _where(places: Ints, meshes: bool = True) -> tuple[Where, bool]:
    """Return the ``@`` part of a text for places, and whether they are column-major."""
    common = usual(places)
    if common is not None:
        return Where(len(places), common[0]), common[1]
    counted = counted_mesh(places) if meshes else None
    if counted is not None and all(order == sorted(order) for order in counted.order):
        letters = (USES[1] if i in counted.order[0] else USES[2] if i in counted.order[1] else USES[0]
                   for i in range(len(counted.shape)))  # fmt: skip
        return Where(len(places), mesh=counted.shape, axes="".join(letters)), False
    return Where(len(places), ranks=tuple(places.reshape(-1).tolist())), False
