"""Operands where ranks multiply them: their own tiles, or copies that they gather, whole or in parts."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

from umm.arrays import Bools
from umm.interval import Interval
from umm.machines.curves import COPY_ENGINE
from umm.plans.collectives.way import OWN
from umm.plans.movement.blocks import SIDES, Blocks
from umm.plans.movement.gathers import Operand, gather_among, manner_of, sharers
from umm.plans.movement.multiply import Gathered
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder, How

STREAMS = 2  # how many parts a rank gets at once, in turn


def at_ranks(
    build: Builder, blocks: Blocks, operand: Operand, copies: Mapping[int, Slice]
) -> dict[int, Slice]:
    """Return an operand where each rank multiplies it: its own tile, or a gathered copy.

    Args:
        operand: Which matrix; if it is split it is multiplied where it lies, and nothing comes back.
        copies: Those gathered, at the ranks that lack some; they may have more than is needed.
    """
    if blocks.split and blocks.split in SIDES[operand.matrix]:
        return {}
    tile_of, lacks = build.placed(operand.tensor), blocks.lacks[operand.matrix]
    spans = _spans(blocks, operand, blocks.works)
    return {rank: (copies[rank] if lacks[rank] else tile_of(rank)).cut(*x) for rank, x in spans.items()}


def _spans(blocks: Blocks, operand: Operand, among: Bools) -> dict[int, tuple[Interval, Interval]]:
    """Return the rows and columns of an operand, as stored, that some ranks need."""
    need = blocks.of(operand.matrix).tolist()
    return {
        rank: operand.stored(Interval(*need[rank][:2]), Interval(*need[rank][2:]))
        for rank in among.nonzero()[0].tolist()
    }


def gather(build: Builder, how: Gathered, operand: Operand, slot: int) -> Mapping[int, Slice]:
    """Write the gather of an operand, and return the copy at each rank that lacks some of it."""
    blocks, matrix = how.blocks, operand.matrix
    tile_of = build.placed(operand.tensor)
    copies = build.room(operand.tensor, _spans(blocks, operand, blocks.lacks[matrix]), ("gathered", slot))
    if how.turns:
        _gather_in_turn(build, tile_of, copies, how.turns)
        return copies
    # The axis as stored: transposing swaps rows and columns.
    cut = (SIDES[matrix].index(how.along) if how.along in SIDES[matrix] else 0) ^ operand.transposed
    chunks, itemsize = how.chunks if how.along in SIDES[matrix] else 1, blocks.problem.itemsize(matrix)
    for number in range(chunks):
        with nullcontext() if how.library else build.collective():
            for ranks, owners in sharers(blocks.needed(matrix)):
                piece = copies[ranks[0]]
                most = max(tile_of(x).cut(piece.rows, piece.cols).elements for x in owners)
                manner = manner_of(build.machine, ranks, build.ranks, most * itemsize)
                piece = piece.part(number, chunks, cut)
                pieces = {rank: tile_of(rank).cut(piece.rows, piece.cols) for rank in owners}
                gather_among(build, ranks, pieces, copies, manner, how.library)
    return copies


def _gather_in_turn(
    build: Builder,
    tile_of: Callable[[int], Slice],
    copies: Mapping[int, Slice],
    turns: Mapping[int, Sequence[int]],
) -> None:
    """Write a gather in which each rank gets one rank's part after another's, by its copy engines."""
    # Copy engines leave the multiprocessors to the multiply that these parts hide behind.
    means = COPY_ENGINE if COPY_ENGINE in build.machine.means else None
    with build.collective():
        for number in range(max(map(len, turns.values()))):
            for rank, origins in turns.items():
                piece = tile_of(origins[number]).cut(copies[rank].rows, copies[rank].cols)
                how: How = (
                    {"lane": OWN} if origins[number] == rank else {"lane": f"copy_in.{number % STREAMS}"}
                )
                if means is not None and origins[number] != rank:
                    how["means"] = means
                build.get(piece, copies[rank].cut(piece.rows, piece.cols), **how)
