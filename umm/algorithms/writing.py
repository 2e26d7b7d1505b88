"""Helpers that algorithms share: gathers, sums, tiles spread over a mesh, operands moved in and out."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from umm.algorithms.algorithm import Algorithm, Names
from umm.arrays import Ints
from umm.host.collector import without_collector
from umm.interval import Interval
from umm.layouts.edges import ceil_edges
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.collectives.collective import ways
from umm.plans.collectives.way import Exchange, Shares, room_for
from umm.plans.movement.gathers import by_level
from umm.plans.option import Option
from umm.plans.redistribution import redistribute
from umm.plans.redistribution.fastest import moves
from umm.plans.redistribution.ways import GETS
from umm.program.problem import MATRICES, Problem
from umm.program.tensors import Tensor
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Slice
from umm.schedules.table.details import TRANSFERS, is_one_of
from umm.schedules.table.table import Table
from umm.schedules.writer.builder import Builder


class Counted(NamedTuple):
    """Words and messages that each rank sends and receives; a word is an element, a message a transfer.

    It does not matter which of the two ranks acts: a get is received by the one and sent by the other.
    """

    words_sent: Ints  # words that leave each rank, shape (ranks,)
    words_received: Ints  # words that arrive there
    messages_sent: Ints  # transfers that leave it
    messages_received: Ints  # transfers that arrive there

    @property
    def words(self) -> int:
        """Most words that a rank sends or that a rank receives, whichever is more."""
        return int(max(self.words_sent.max(), self.words_received.max()))

    @property
    def messages(self) -> int:
        """Most messages that a rank sends or that a rank receives, whichever is more."""
        return int(max(self.messages_sent.max(), self.messages_received.max()))


def counted(schedule: Table) -> Counted:
    """Count the words and messages of each rank of a schedule; copies within a rank do not count.

    >>> import umm
    >>> problem = umm.Problem(m=12, n=12, k=12, a="2d", b="2d", c="2d", ranks=9)
    >>> moved = counted(umm.schedule(problem, "pvc-12", algorithm="cannon"))
    >>> moved.words, moved.messages  # 2n²/√p words, 2√p messages
    (96, 6)
    """
    moving = (is_one_of(schedule.kind, TRANSFERS) & (schedule.src != schedule.dst)).nonzero()[0]
    words = np.prod(schedule.details.shape[moving, 0], axis=1)

    def per_rank(ranks: Ints, amounts: Ints) -> Ints:
        totals = np.zeros(schedule.ranks, dtype=np.int64)
        # A rank occurs many times: totals[ranks] += amounts would count each rank once.
        np.add.at(totals, ranks, amounts)
        return totals

    src, dst, each = schedule.src[moving], schedule.dst[moving], np.ones_like(words)
    return Counted(per_rank(src, words), per_rank(dst, words), per_rank(src, each), per_rank(dst, each))


def brought(build: Builder, piece: Slice, rank: int, slot: Hashable) -> Slice:
    """Return a piece at a rank: as it lies there, or got into a slot of its pool."""
    if piece.rank == rank or not piece.elements:
        return piece
    into = room_for(build, piece, rank, slot)
    build.get(piece, into)
    return into


def near_or_by_level(build: Builder, collective: str, ranks: Sequence[int]) -> str:
    """Return how a library does a collective among these ranks: by level if they are in several nodes."""
    # NCCL's rings between nodes are one for each card, so that all cards are busy as they are by level.
    way = by_level(build.machine, ranks, build.ranks)
    return collective if way is None else way.name


def gathered(build: Builder, pieces: dict[int, Slice], collective: str, slot: Hashable) -> dict[int, Slice]:
    """Gather the pieces of a matrix; return the slice in which each rank has all of them.

    Args:
        pieces: Piece of each rank; together they make a rectangle.
        collective: A way to do an all-gather.
    """
    if len(pieces) == 1:
        return pieces
    # The pieces are in the order of their line, so the first and the last give the rectangle's corners.
    first, *_, last = pieces.values()
    rows, cols = Interval(first.rows.start, last.rows.stop), Interval(first.cols.start, last.cols.stop)
    rectangle = first._replace(rows=rows, cols=cols)
    rooms = {rank: room_for(build, rectangle, rank, slot) for rank in pieces}
    gather = ways()[collective].writers["all-gather"]
    gather(Exchange(build, list(pieces), pieces.__getitem__, Shares(rooms, pieces)))
    return rooms


SUM = Option(
    "sum", "direct", "How partial sums of C are added up.", ("direct", "ring"), words="sum {}".format
)


def scatter_sum(build: Builder, way: str, partials: Mapping[int, Slice], owners: Mapping[int, Slice]) -> None:
    """Add the sum of some ranks' partial sums to the owners of its parts; the partial sums are spoilt.

    Args:
        way: A way to do a reduce-scatter.
        partials: Each rank's partial sum, all of the same rows and columns.
        owners: Each rank's target for its part of the sum, zero before.
    """
    given = Shares(partials, owners)
    # The partial sums serve as room for those of others (hence spoilt). C starts at zero, so the first term
    # is accumulated as the others are, and needs no order among them.
    scatter = ways()[way].writers["reduce-scatter"]
    scatter(Exchange(build, list(partials), given, owners.__getitem__, given, zeroed=True))


def sum_replicas(build: Builder, way: str, tensor: str) -> None:
    """Let every replica of a tensor hold the sum of all replicas, in place, tile by tile.

    Args:
        way: A way to do an all-reduce inside a node.
    """
    layout = build.layout(tensor)
    rows, cols = layout.grid_shape()
    for i in range(rows):
        for j in range(cols):
            # Tile by tile: the replicas of each tile are a group of ranks of their own, near or far.
            tiles = {x.rank: x for x in (build.tile(tensor, i, j, r) for r in range(layout.replicas))}
            name = near_or_by_level(build, way, sorted(tiles))
            at = tiles.__getitem__
            ways()[name].writers["all-reduce"](Exchange(build, list(tiles), at, at))


def spread(shape: tuple[int, int], owners: Ints, axis: int) -> Layout:
    """Return the layout in which each tile of a grid is cut once more, over ranks that share it.

    The parts of a tile lie inside it, so that a rank that gathers them has that tile and no more; for sizes
    that can be cut evenly this is a 2-D layout with more tiles.

    Args:
        owners: Rank of each part, shape (tile rows, tile columns, parts); each rank has one.
        axis: 0 cuts a tile by rows, 1 by columns.

    >>> str(spread((8, 8), np.arange(8).reshape(2, 2, 2), axis=1))
    '2d:2x4'
    >>> spread((10, 8), np.arange(8).reshape(2, 2, 2), axis=0).row_edges.tolist()
    [0, 3, 5, 8, 10]
    """
    rows, cols, parts = owners.shape
    if axis == 0:
        # The parts become the fast index of the rows: parts of a tile stay side by side.
        places = owners.transpose(0, 2, 1).reshape(rows * parts, cols)
        return laid(shape, cut_again(shape[0], rows, parts), cut_again(shape[1], cols), places)
    places = owners.reshape(rows, cols * parts)
    return laid(shape, cut_again(shape[0], rows), cut_again(shape[1], cols, parts), places)


def laid(shape: tuple[int, int], row_edges: Ints, col_edges: Ints, places: Ints) -> Layout:
    """Return the layout of one replica with these edges, by its shortest text.

    Args:
        row_edges: Where each tile row starts, and the end.
        col_edges: The same for columns.
        places: The rank at each place of the process grid.
    """
    grid = (len(places), len(places[0]))
    # A layout with a short name is shown and compared as users write it; explicit edges are the last resort.
    usual = [Layout.block(shape, grid, places=places[None])]
    tile = int(row_edges[1]), int(col_edges[1])
    if min(tile) > 0:
        usual.append(Layout.block_cyclic(shape, tile, grid, places=places[None]))
    for layout in usual:
        if np.array_equal(layout.row_edges, row_edges) and np.array_equal(layout.col_edges, col_edges):
            return layout
    return Layout(shape, row_edges, col_edges, grid, places=places[None])


def cut_again(size: int, *parts: int) -> Ints:
    """Return the edges of a dimension that is cut into parts, each of which is cut again, and so on.

    >>> cut_again(10, 2, 2).tolist(), cut_again(10, 4).tolist()
    ([0, 3, 5, 8, 10], [0, 3, 6, 9, 10])
    """
    edges = np.array([0, size])
    for number in parts:
        # Cut by cut, not all at once: 10 in 2 × 2 is 3, 2, 3, 2, whose parts lie inside the halves; in 4 not.
        starts = [start + ceil_edges(stop - start, number)[:-1] for start, stop in pairwise(edges)]
        edges = np.append(np.concatenate(starts), size)
    return edges


SLOTS = "multiply"


def joined(problem: Problem, machine: Machine, part: Schedule, ways: Mapping[str, str]) -> Schedule:
    """Return the schedule that redistributes given operands, multiplies, and redistributes C.

    Args:
        problem: The multiply, with the layouts in which its operands are given.
        machine: The machine that the part was lowered for.
        part: The multiply itself, of the same problem with nothing given.
        ways: For A, B and C the way to redistribute; one that is not named goes by gets.
    """
    inside = {x.name: Tensor(f"{x.name}.inside", x.layout, x.dtype) for x in part.tensors}
    moved = moves(problem)
    build = Builder(
        part.name,
        problem,
        machine,
        [inside[x] for x in moved],
        accumulate_lanes=part.options.get("max_accumulates", 2),
        options=dict(part.options) | {f"bring_{x.lower()}": ways.get(x, GETS) for x in moved},
    )
    # The part was lowered by itself: it knows nothing of the redistributions, so barriers separate them, and
    # its slots keep the sizes it was given.
    build.reserve(SLOTS, part.pools)
    for x in moved:
        if x != "C":
            redistribute(build, x, inside[x].name, ways.get(x, GETS))
            build.barrier()
    build.append(part, {x: inside[x].name if x in moved else x for x in MATRICES}, slots=SLOTS)
    if "C" in moved:
        build.barrier()
        redistribute(build, inside["C"].name, "C", ways.get("C", GETS), str(part.options["final"]))
    # A part's slots are as large as its rules say, even where less would do.
    return replace(build.schedule(), make_pools=lambda: part.pools)


def lowered(
    algorithm: Algorithm,
    problem: Problem,
    machine: Machine,
    given: Mapping[str, Any],
    way_of: Callable[[Layout, Layout, str], str] = lambda x, y, dtype: GETS,
) -> Schedule:
    """Return the schedule of a problem by an algorithm.

    What lies in the algorithm's own layout already is used where it is; anything else is copied into a work
    tensor first, and C out of one at the end. ProblemError if the algorithm cannot serve the problem.
    ScheduleError for an unknown option, or a value that means nothing.

    Args:
        problem: What is multiplied, in any layouts.
        way_of: Returns the way to move an operand of a type from one layout to another.
    """
    options = algorithm.chosen(given)
    algorithm.check(problem, machine, options)
    native = algorithm.native(problem, **options)
    suffix = algorithm.name.replace("-", "_")
    # A work tensor only where layouts differ: an operand in the native layout is read where it is. Its tiles
    # need the same numbers, empty ones included.
    work = [
        Tensor(f"{tensor.name}.{suffix}", layout, tensor.dtype)
        for tensor, layout in zip(problem.tensors, native, strict=True)
        if tensor.layout != layout or _numbered(tensor.layout) != _numbered(layout)
    ]
    moved = {tensor.name.partition(".")[0]: tensor.name for tensor in work}
    build = Builder(algorithm.name, problem, machine, work, options=options)
    with without_collector():
        for name in MATRICES[:2]:
            if name in moved:
                ends = problem.layout(name), build.layout(moved[name])
                redistribute(build, name, moved[name], way_of(*ends, problem.dtype))
        algorithm.write(build, Names(*(moved.get(name, name) for name in MATRICES)), **options)
        if "C" in moved:
            redistribute(build, moved["C"], "C")
        return build.schedule()


def _numbered(layout: Layout) -> object:
    return layout.process_grid, layout.cuts, layout.owners.tobytes()
