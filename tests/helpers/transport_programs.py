"""Programs on all ranks of a transport that use table 1's nine primitives, for its conformance suite.

They are functions of a module, and their arguments plain values, so that they can be sent to other processes,
which import nothing of pytest's.
"""

import numpy as np

from umm import Interval, Layout
from umm_hw.matrix import DistributedMatrix
from umm_hw.transport import Block


def whole(shape, dtype, seed=0):
    """The matrix: whole numbers, different for each seed."""
    return np.random.default_rng(seed).integers(-100, 100, shape).astype(dtype)


def tiles(matrix):
    rows, cols = matrix.grid_shape()
    return [(i, j) for i in range(rows) for j in range(cols)]


def scattered(transport, text, shape, dtype):
    """Each replica filled with a matrix of its own: seed = replica."""
    matrix = DistributedMatrix(transport, Layout.parse(text, shape, transport.size), dtype)
    matrix.scatter(whole(shape, dtype, matrix.replica))
    transport.barrier()
    return matrix


def copies(transport, text, shape, dtype):
    """Every tile of every replica and of the default one, at once and by future."""
    matrix = scattered(transport, text, shape, dtype)
    results = {}
    for replica in (None, *range(matrix.layout.replicas)):
        futures = {tile: matrix.get_tile_async(tile, replica) for tile in tiles(matrix)}
        for tile in tiles(matrix):
            results[tile, replica] = (matrix.get_tile(tile, replica), futures[tile].result())
    return matrix.replica, results


def marked(transport, text, shape, dtype):
    """Every rank writes its number into its own tiles through views; then the matrix of every replica."""
    matrix = DistributedMatrix(transport, Layout.parse(text, shape, transport.size), dtype)
    for tile in matrix.layout.tiles_of(transport.rank):
        matrix.tile(tile)[...] = transport.rank
    transport.barrier()
    return [matrix.gather(replica) for replica in range(matrix.layout.replicas)]


def accumulated(transport, text, shape, dtype, parts):
    """Every rank adds its number + 1 to every tile of every replica, then to parts of them."""
    matrix = DistributedMatrix(transport, Layout.parse(text, shape, transport.size), dtype)
    value = transport.rank + 1
    for replica in range(matrix.layout.replicas):
        for tile in tiles(matrix):
            matrix.accumulate_tile(tile, np.full(matrix.layout.tile_shape(tile), value, dtype), replica)
        for tile, rows, cols in parts:
            matrix.accumulate_tile(tile, np.full((rows.size, cols.size), value, dtype), replica, rows, cols)
    transport.quiet()
    transport.barrier()
    return [matrix.gather(replica) for replica in range(matrix.layout.replicas)]


def brought_together(transport, text, shape, dtype, method, origin):
    """Every replica after a broadcast or a reduce."""
    matrix = scattered(transport, text, shape, dtype)
    getattr(matrix, method)(origin)
    return [matrix.gather(replica) for replica in range(matrix.layout.replicas)]


def indices(transport, text, shape, rows, cols):
    matrix = DistributedMatrix(transport, Layout.parse(text, shape, transport.size), "float32")
    bounds = {tile: matrix.tile_bounds(tile) for tile in tiles(matrix)}
    return matrix.grid_shape(), bounds, matrix.overlapping_tiles(rows, cols)


def hammered(transport, times):
    """Every rank adds 1 to the same 64 numbers of the last rank, many times."""
    heap = transport.allocate([0] * (transport.size - 1) + [512])
    target = Block(transport.size - 1, heap, 0, 8, 8, 8, np.dtype(np.int64))
    one = np.ones((8, 8), dtype=np.int64)
    for _ in range(times):
        transport.accumulate(one, target)
    transport.quiet()
    transport.barrier()
    sums = np.empty_like(one)
    transport.get(target, sums)
    return sums


def passed_on(transport):
    """Every rank puts its number into the middle of the next rank's 4x4 block, its last two columns."""
    heap = transport.allocate([64] * transport.size)
    neighbour = (transport.rank + 1) % transport.size
    block = Block(neighbour, heap, 0, 4, 4, 4, np.dtype(np.int32))
    array = np.full((2, 2), transport.rank + 1, dtype=np.int32)
    transport.put(array, block.cut(Interval(1, 3), Interval(2, 4)))
    transport.quiet()
    transport.barrier()
    return held(transport, block._replace(rank=transport.rank))


def held(transport, block):
    """The content of a block of memory, as an array of the host's."""
    into = np.empty((block.rows, block.cols), block.dtype)
    transport.get(block, into)
    return into


def cleared(transport):
    """Every rank fills its parts of two heaps with 7; rank 1 alone clears its part of the first."""
    heaps = [transport.allocate([8] * transport.size) for _ in range(2)]
    blocks = [Block(transport.rank, heap, 0, 1, 2, 2, np.dtype(np.int32)) for heap in heaps]
    for block in blocks:
        transport.put(np.full((1, 2), 7, dtype=np.int32), block)
    transport.barrier()
    if transport.rank == 1:
        transport.clear(heaps[0])
    transport.barrier()
    return [held(transport, block).tolist() for block in blocks]


def another_s_tile(transport):
    matrix = DistributedMatrix(transport, Layout.parse("row", (4, 4), 2), "float32")
    matrix.tile((1 - transport.rank, 0))
