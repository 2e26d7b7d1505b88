"""The seam to one-sided libraries: memory that every rank has a part of and all ranks can reach."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

import numpy as np

from umm.interval import Interval


class Block(NamedTuple):
    """A 2-D block in one rank's memory, rows one stride apart."""

    rank: int  # whose memory
    heap: int  # which allocation; the number that `allocate` returned
    offset: int  # bytes from the start of the rank's part of the heap to the first element
    rows: int  # number of rows
    cols: int  # number of columns; the elements of a row are adjacent
    stride: int  # elements from one row to the next
    dtype: np.dtype[Any]  # type of the elements

    def cut(self, rows: Interval, cols: Interval) -> "Block":
        """Return a sub-block; rows and columns count from this block's own first. An empty one starts at it.

        >>> tile = Block(0, 0, offset=80, rows=4, cols=5, stride=5, dtype=np.dtype("float32"))
        >>> tile.cut(Interval(2, 4), Interval(1, 3))[2:6]
        (124, 2, 2, 5)
        """
        before = rows.start * self.stride + cols.start if rows.size and cols.size else 0
        offset = self.offset + before * self.dtype.itemsize
        return self._replace(offset=offset, rows=rows.size, cols=cols.size)


class Transport(Protocol):
    """One rank's access to memory that every rank has a part of and all ranks can get, put and add to.

    The promise: ``allocate``, ``barrier`` and ``free`` are collective, called by all ranks in the same
    order. get, put and accumulate need nothing of the target's rank. A get is done when it returns; a put
    or accumulate leaves its array free for other use when it returns and is visible to others after
    ``quiet``. Accumulates are atomic element by element, so concurrent ones sum. Arrays are 2-D and of the
    transport's own kind: NumPy on CPUs, CuPy on GPUs; the type of an array is that of its block.
    """

    @property
    def rank(self) -> int:
        """This rank's number."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    def allocate(self, nbytes: Sequence[int]) -> int:
        """Reserve this many bytes of each rank, all zero, and return the number of the new heap."""

    def clear(self, heap: int) -> None:
        """Set this rank's part of a heap to zero, while nobody uses it."""

    def view(self, block: Block) -> Any:
        """Return an array that is a block of this rank's own memory, without copying."""

    def get(self, source: Block, into: Any) -> None:
        """Copy any rank's block into a local array of the same shape."""

    def get_async(self, source: Block, into: Any) -> Future[None]:
        """Start a get; it is done when the future is."""

    def put(self, array: Any, target: Block) -> None:
        """Copy a local array into any rank's block."""

    def accumulate(self, array: Any, target: Block) -> None:
        """Add a local array to any rank's block."""

    def quiet(self) -> None:
        """Wait until every put and accumulate of this rank is visible to all ranks."""

    def barrier(self) -> None:
        """Wait until every rank has come here, each after a quiet."""

    def free(self) -> None:
        """Give all heaps back; views of them are invalid afterwards."""
