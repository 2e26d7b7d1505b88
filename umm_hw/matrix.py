"""Distributed matrices: tiles in the memory of many ranks, and the primitives that move them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import umm_hw
from umm import dtypes
from umm.errors import InputError, LayoutError
from umm.files import shown
from umm.interval import Interval
from umm.layouts.edges import Tile
from umm.layouts.layout import Layout
from umm_hw.bfloat16 import BFLOAT16, dtype_name, numpy_bfloat16, to_float32
from umm_hw.float8 import float8_dtype
from umm_hw.transport import Block, Transport

SHOWN = 4  # tiles of a rank that are printed
DTYPES = ("float64", "float32", "float16", "complex128", "complex64", "int64", "int32")  # of NumPy itself


def array_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's type of this name.

    InputError for another type. ExecutorUnavailableError for bfloat16 without ml_dtypes.
    """
    if name == "bfloat16":
        return numpy_bfloat16()
    if dtypes.is_float8(name):
        return float8_dtype(name)
    if name not in DTYPES:
        known = ", ".join((*dtypes.DTYPES, "int64", "int32"))
        raise InputError(f"a distributed matrix cannot hold {shown(name)}; choose from {known}")
    return np.dtype(name)


class DistributedMatrix:
    """One rank's handle on a distributed matrix: zeros in symmetric memory, or the caller's by :meth:`wrap`.

    Making one is collective. Reading and changing tiles is one-sided: the owner does nothing. A rank that
    wants another's changes must wait for them (a quiet there, then a barrier). Indices are global.

    Args:
        transport: Access to the other ranks' memory.
        layout: Who owns which tile; as many ranks as the transport.
        dtype: float64, float32, float16, bfloat16, int64 or int32, or a NumPy type, such as one that only the
            transport knows.

    Raises:
        LayoutError: if the layout is for another number of ranks.
        InputError: for another name.

    Source: Brock & Golin (2025), table 1.
    """

    def __init__(self, transport: Transport, layout: Layout, dtype: str | np.dtype[Any]) -> None:
        if layout.ranks != transport.size:
            raise LayoutError(
                f"the layout {layout} is for {layout.ranks} ranks, but the transport joins {transport.size}"
            )
        self._transport = transport
        self.layout = layout
        self.dtype = array_dtype(dtype) if isinstance(dtype, str) else dtype
        self.heap = transport.allocate((layout.elements_of_rank * self.dtype.itemsize).tolist())

    @staticmethod
    def wrap(
        comm: Any,
        layout: str | Layout | Sequence[int],
        shape: Sequence[int],
        local: NDArray[Any],
        *,
        order: str | None = None,
        ld: int | None = None,
        grid: tuple[int, int] | None = None,
        copy: bool = False,
    ) -> Any:
        """Return a :class:`~umm_hw.arrays.matrix.WrappedMatrix` of local matrices; no copy, collective.

        Args:
            comm: An mpi4py communicator, whose ranks are those of the layout.
            layout: A layout's text (``row``, ``2d:2x2``, ``cyclic:64x64:2x2``, ``scalapack:…``, …), a
                ``Layout``, or the nine numbers of a ScaLAPACK descriptor.
            shape: Rows and columns of the complete matrix; with a third, first, number a batch of matrices.
            local: This rank's part, with adjacent rows or columns and any leading dimension; or a flat
                buffer, with ``order`` and ``ld``.
            order: Order of a flat buffer: ``F`` (columns adjacent, as Fortran) or ``C``.
            ld: Leading dimension of a flat buffer, in elements; the least if None.
            grid: Rows and columns of processes of a descriptor; the most square one if None.
            copy: Whether to keep a copy of a local matrix that is strided both ways; ``copied`` is then true,
                and the caller does not see later writes.

        Raises:
            LayoutError: on every rank, if ranks give different layouts, shapes or types, or the local matrix
                of one does not fit.
            InputError: on every rank, for memory that cannot be used.
        """
        # Arrays stand above this module: the package imports them at first use.
        return umm_hw.wrap(comm, (layout, shape, local, order, ld, grid, copy))

    @property
    def transport(self) -> Transport:
        """Access to the other ranks' memory."""
        return self._transport

    @property
    def rank(self) -> int:
        """This rank's number."""
        return self.transport.rank

    # Indices --------------------------------------------------------------------------------------

    def grid_shape(self) -> tuple[int, int]:
        """Return the rows and columns of the tile grid, empty tiles included."""
        return self.layout.grid_shape()

    def tile_bounds(self, tile: Tile) -> tuple[Interval, Interval]:
        """Return the rows and columns a tile covers."""
        return self.layout.tile_bounds(tile)

    def overlapping_tiles(self, rows: Interval, cols: Interval) -> list[Tile]:
        """Return the tiles that share at least one element with a submatrix, in row-major order."""
        return self.layout.overlapping_tiles(rows, cols)

    @property
    def replica(self) -> int:
        """The replica this rank belongs to."""
        return self.layout.replica(self.rank)

    def block(self, tile: Tile, replica: int | None = None) -> Block:
        """Return where a tile lies: rank and memory; in this rank's own replica if None."""
        replica = self._checked_replica(replica)
        rows, cols = self.layout.tile_shape(tile)
        offset = int(self.layout.tile_starts[replica, *tile]) * self.dtype.itemsize
        return Block(self.layout.owner(tile, replica), self.heap, offset, rows, cols, cols, self.dtype)

    # Tiles ----------------------------------------------------------------------------------------

    def tile(self, tile: Tile, replica: int | None = None) -> Any:
        """Return one of this rank's own tiles without copying; writing to it changes the matrix.

        Raises:
            InputError: if another rank holds it.
        """
        block = self.block(tile, replica)
        if block.rank != self.transport.rank:
            raise InputError(
                f"tile {tile} of replica {self._checked_replica(replica)} is held by rank {block.rank}, "
                f"not by rank {self.transport.rank}; get_tile copies it"
            )
        return self.transport.view(block)

    def get_tile(self, tile: Tile, replica: int | None = None) -> NDArray[Any]:
        """Return a copy of any tile, bit for bit; from this rank's own replica if None."""
        block = self.block(tile, replica)
        copy = np.empty((block.rows, block.cols), self.dtype)
        self.transport.get(block, copy)
        return copy

    def get_tile_async(self, tile: Tile, replica: int | None = None) -> Future[NDArray[Any]]:
        """Start copying a tile; the future's result equals that of ``get_tile``."""
        block = self.block(tile, replica)
        copy = np.empty((block.rows, block.cols), self.dtype)
        future: Future[NDArray[Any]] = Future()

        def finish(done: Future[None]) -> None:
            error = done.exception()
            if error is None:
                future.set_result(copy)
            else:
                future.set_exception(error)

        self.transport.get_async(block, copy).add_done_callback(finish)
        return future

    def accumulate_tile(
        self,
        tile: Tile,
        view: Any,
        replica: int | None = None,
        rows: Interval | None = None,
        cols: Interval | None = None,
    ) -> None:
        """Add an array to any tile, or to a part of one; sums of concurrent calls are complete.

        Args:
            tile: The tile to add to.
            view: What to add, in the shape of the tile or the part.
            replica: Whose tile; that of this rank's own replica if None.
            rows: Rows of the matrix to add to, inside the tile; all of the tile's if None.
            cols: The same for columns.

        Raises:
            LayoutError: if the part leaves the tile or the array has another shape.
        """
        all_rows, all_cols = self.layout.tile_bounds(tile)
        rows, cols = rows or all_rows, cols or all_cols
        if rows.intersect(all_rows) != rows or cols.intersect(all_cols) != cols:
            raise LayoutError(
                f"rows {rows.start}:{rows.stop} and columns {cols.start}:{cols.stop} leave tile {tile}: "
                f"rows {all_rows.start}:{all_rows.stop} and columns {all_cols.start}:{all_cols.stop}"
            )
        if view.shape != (rows.size, cols.size):
            raise LayoutError(f"an array of shape {view.shape} cannot be added to {rows.size}x{cols.size}")
        part = self.block(tile, replica).cut(rows.shift(-all_rows.start), cols.shift(-all_cols.start))
        self.transport.accumulate(view, part)

    # Replicas -------------------------------------------------------------------------------------

    def broadcast_replica(self, origin: int) -> None:
        """Make every replica equal to one; collective, complete everywhere on return."""
        self._checked_replica(origin)
        self.transport.barrier()
        if self.replica != origin:
            for tile in self.layout.tiles_of(self.transport.rank):
                self.transport.get(self.block(tile, origin), self.tile(tile))
        self.transport.barrier()

    def reduce_replicas(self, origin: int) -> None:
        """Add all other replicas to one, which then holds the sum; collective, complete on return."""
        self._checked_replica(origin)
        self.transport.barrier()
        if self.replica != origin:
            for tile in self.layout.tiles_of(self.transport.rank):
                self.transport.accumulate(self.tile(tile), self.block(tile, origin))
        self.transport.barrier()

    # Complete matrices -------------------------------------------------------------------------------

    def scatter(self, array: NDArray[Any]) -> None:
        """Fill this rank's own tiles from a whole array; called by every rank it fills every replica.

        Raises:
            LayoutError: if the array has another shape.
        """
        self._check_shape(array)
        for tile in self.layout.tiles_of(self.transport.rank):
            rows, cols = self.layout.tile_bounds(tile)
            self.transport.put(array[rows.slice, cols.slice], self.block(tile))

    def hand_out(self, array: NDArray[Any]) -> None:
        """Fill every tile of every replica from a whole array that this rank alone has.

        The tiles are there for other ranks after the transport's ``quiet``.

        Args:
            array: What all replicas get, or with a third, first, dimension a slice for each.

        Raises:
            LayoutError: if the array has another shape.
        """
        replicas = self.layout.replicas
        if array.shape != (replicas, *self.layout.shape):
            self._check_shape(array)
            array = np.broadcast_to(array, (replicas, *array.shape))
        for tile in self._tiles():
            rows, cols = self.layout.tile_bounds(tile)
            for replica in range(replicas):
                self.transport.put(array[replica, rows.slice, cols.slice], self.block(tile, replica))

    def redistributed(self, layout: str | Layout) -> "DistributedMatrix":
        """Return a matrix of the same elements in another layout, complete in every replica; collective.

        Each rank gets its new tiles from this rank's replica of the old ones.

        Raises:
            LayoutError: if the layout has another shape.
        """
        if isinstance(layout, str):
            layout = Layout.parse(layout, self.layout.shape, self.transport.size)
        if layout.shape != self.layout.shape:
            raise LayoutError(
                f"a {self.layout.shape} matrix cannot be redistributed into one of {layout.shape}"
            )
        result = DistributedMatrix(self.transport, layout, self.dtype)
        self.transport.barrier()
        for tile in layout.tiles_of(self.rank):
            rows, cols = layout.tile_bounds(tile)
            for source in self.layout.overlapping_tiles(rows, cols):
                all_rows, all_cols = self.layout.tile_bounds(source)
                shared = rows.intersect(all_rows), cols.intersect(all_cols)
                block = self.block(source).cut(
                    shared[0].shift(-all_rows.start), shared[1].shift(-all_cols.start)
                )
                view = result.tile(tile)[
                    shared[0].shift(-rows.start).slice, shared[1].shift(-cols.start).slice
                ]
                self.transport.get(block, view)
        self.transport.barrier()
        return result

    def gather(self, replica: int | None = None) -> NDArray[Any]:
        """Return a copy of the complete matrix; from this rank's replica if None."""
        result = np.empty(self.layout.shape, self.dtype)
        for tile in self._tiles():
            rows, cols = self.layout.tile_bounds(tile)
            self.transport.get(self.block(tile, replica), result[rows.slice, cols.slice])
        return result

    def gather_parts(self) -> NDArray[Any]:
        """Return a copy of the complete matrix, where replica r has part r of each tile's rows."""
        result, parts = np.empty(self.layout.shape, self.dtype), self.layout.replicas
        for tile in self._tiles():
            rows, cols = self.layout.tile_bounds(tile)
            for replica in range(parts):
                part = rows.part(replica, parts)
                block = self.block(tile, replica).cut(part.shift(-rows.start), cols.shift(-cols.start))
                self.transport.get(block, result[part.slice, cols.slice])
        return result

    def __str__(self) -> str:
        """Its type and layout, and the tiles that this rank holds with their elements, large ones cut short.

        >>> from umm_hw.numpy.transport import NumpyTransport
        >>> x = DistributedMatrix(NumpyTransport(2), Layout.parse("col", (2, 4), ranks=2), "float32")
        >>> x.hand_out(np.arange(8.0).reshape(2, 4))
        >>> print(x)
        float32, 2x4 in col over 2 ranks; rank 0 holds 2x2: rows 0:2, columns 0:2
        [[0., 1.],
         [4., 5.]]
        """
        rank = self.transport.rank
        lines = [f"{dtype_name(self.dtype)}, {self.layout.describe(rank)}"]
        tiles = [x for x in self.layout.tiles_of(rank) if all(self.layout.tile_shape(x))]
        for tile in tiles[:SHOWN]:
            rows, cols = self.tile_bounds(tile)
            if len(tiles) > 1:
                lines.append(f"rows {rows.start}:{rows.stop}, columns {cols.start}:{cols.stop}")
            lines.append(_in_brackets(self.tile(tile)))
        if len(tiles) > SHOWN:
            lines.append(f"… and {len(tiles) - SHOWN} more tiles")
        return "\n".join(lines)

    def _tiles(self) -> Iterator[Tile]:
        rows, cols = self.layout.grid_shape()
        return product(range(rows), range(cols))

    def _check_shape(self, array: NDArray[Any]) -> None:
        if array.shape != self.layout.shape:
            raise LayoutError(f"an array of shape {array.shape} cannot fill a {self.layout.shape} matrix")

    def _checked_replica(self, replica: int | None) -> int:
        if replica is None:
            return self.replica
        if not 0 <= replica < self.layout.replicas:
            raise LayoutError(f"replica {replica} is outside {self.layout}, which has {self.layout.replicas}")
        return replica


def _in_brackets(tile: Any) -> str:
    """Return the elements of a tile, rows in brackets; of one on a GPU as its library prints them."""
    if not isinstance(tile, np.ndarray):
        return str(tile)
    values = to_float32(np.ascontiguousarray(tile)) if tile.dtype == BFLOAT16 else tile
    return np.array2string(values, separator=", ", threshold=100, edgeitems=3)
