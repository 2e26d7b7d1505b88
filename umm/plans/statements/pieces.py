"""Pieces of tensors in a rank's memory, and sums over replicas that hold partial sums."""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.plans.collectives.hierarchical import OF_MANY
from umm.plans.collectives.replicas import SUMMED, summed
from umm.plans.collectives.rings import node_of_ranks
from umm.plans.movement.gathers import gather_among, manner_of
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder, How

Ends = tuple[Slice, Slice]  # of a move: from where, to where
BACK = replace(OF_MANY, card="copies", lane="back")
"""How sums are gathered on lanes of their own: those still added up need not wait, nor other partners."""


def gathered(
    build: Builder, tensor: str, rank: int, rows: Interval, cols: Interval, slot: Hashable, across: str = ""
) -> Slice:
    """Return some rows and columns of a tensor in a rank's memory.

    Args:
        tensor: Complete in every replica.
        slot: Pool slot for what does not lie in one of the rank's own tiles.
        across: Lane of what other nodes have, if not that of all gets: cards need no copy engine.
    """
    # Fast path for the usual layout with one tile a rank; it avoids the search for overlapping tiles.
    of_rank = build.of_ranks(build.number(tensor))
    if of_rank is not None and of_rank[rank].contains(rows, cols):
        return of_rank[rank].inner(rows, cols)
    owned = own_part(build, tensor, rank, rows, cols)
    if owned is not None:
        return owned
    room = build.temporary(rank, tensor, rows, cols, slot=slot)
    node = node_of_ranks(build.machine, build.ranks)
    for piece in pieces_in(build, tensor, build.layout(tensor).replica(rank), rows, cols):
        far = node[piece.rank] != node[rank] and build.machine.fabric.cards
        how: How = {"lane": across} if far and across else {}
        build.get(piece, room.cut(piece.rows, piece.cols), **how)
    return room


def tiles_of(build: Builder, tensor: str) -> Iterator[Slice]:
    """Yield the tiles of a tensor, in all its replicas, in the memory of their owners."""
    for _, tile, replica in build.layout(tensor).filled():
        yield build.tile(tensor, *tile, replica)


def clear(build: Builder, tensor: str, ranks: Collection[int] | None = None) -> None:
    """Write zeros to the tiles of a tensor at some ranks; at all if None."""
    for tile in tiles_of(build, tensor):
        if ranks is None or tile.rank in ranks:
            build.map("zero", tile)


def to_owners(build: Builder, made: Layout, replica: int, tensor: str, part: Slice) -> Iterator[Ends]:
    """Yield pieces of a part and their places in each replica of a tensor that takes it from some replica.

    Args:
        made: Layout by whose tiles the parts are made.
        replica: The one of its replicas that this part is of.
    """
    layout = build.layout(tensor)
    for number, owners in enumerate(layout.replica_owners):
        # Each replica of a sum takes its parts from one replica, or they would count twice.
        if made.replica(int(owners[0])) == replica:
            for tile in layout.overlapping_tiles(part.rows, part.cols):
                target = build.tile(tensor, *tile, number).cut(part.rows, part.cols)
                yield part.cut(target.rows, target.cols), target


def add_at_owners(build: Builder, made: Layout, replica: int, tensor: str, part: Slice) -> None:
    """Add a part of a sum at its owners; see :func:`to_owners`."""
    for piece, target in to_owners(build, made, replica, tensor, part):
        build.accumulate(piece, target)


def own_part(build: Builder, tensor: str, rank: int, rows: Interval, cols: Interval) -> Slice | None:
    """Return some rows and columns of a tensor in one of a rank's own tiles, if that has all of them."""
    layout = build.layout(tensor)
    tiles, replica = layout.overlapping_tiles(rows, cols), layout.replica(rank)
    tile = build.tile(tensor, *tiles[0], replica) if len(tiles) == 1 else None
    return tile.cut(rows, cols) if tile is not None and tile.rank == rank else None


def pieces_in(build: Builder, tensor: str, replica: int, rows: Interval, cols: Interval) -> Iterator[Slice]:
    """Yield slices of some rows and columns of a replica of a tensor, at their owners."""
    for tile in build.layout(tensor).overlapping_tiles(rows, cols):
        yield build.tile(tensor, *tile, replica).cut(rows, cols)


def pieces_by_owner(
    build: Builder, tensor: str, replica: int, rows: Interval, cols: Interval
) -> dict[int, list[Slice]]:
    """Slices of some rows and columns of a replica of a tensor, by owner."""
    by_owner: dict[int, list[Slice]] = {}
    for piece in pieces_in(build, tensor, replica, rows, cols):
        by_owner.setdefault(piece.rank, []).append(piece)
    return by_owner


def gather_together(
    build: Builder,
    ranks: Sequence[int],
    pieces: Mapping[int, Sequence[Slice]],
    into: Mapping[int, Slice],
    sums: bool = False,
) -> None:
    """Write that ranks get the same pieces of a tensor, by level where they are in several nodes.

    Args:
        pieces: By owner; all of them give one at a time.
        sums: Whether they are sums of which some are still added up.
    """
    for room in into.values():
        build.claim(room, f"claim.{build.tensors[room.tensor].name}")
    with build.collective():
        for number in range(max(map(len, pieces.values()), default=0)):
            some = {x: pieces_of[number] for x, pieces_of in pieces.items() if number < len(pieces_of)}
            item = build.tensors[next(iter(some.values())).tensor].itemsize
            most = max(x.elements for x in some.values()) * item
            manner = BACK if sums else manner_of(build.machine, ranks, build.ranks, most)
            gather_among(build, [*ranks], some, into, manner)


def sum_in_place(build: Builder, tensor: str) -> None:
    """Let every replica of a tensor hold the sum, by the all-reduce that takes least."""
    x = build.tensors[build.number(tensor)]
    if x.layout.replicas == 1:
        return
    fastest = summed("all-reduce", x.layout, x.dtype, build.machine, build.lanes["accumulate"])
    build.append(fastest.schedule, {SUMMED: tensor}, slots="sum")
