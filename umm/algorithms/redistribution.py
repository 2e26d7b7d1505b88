"""From one layout of a matrix to another, as gets: every rank gets what it shall own from whoever has it."""

from umm.schedules.builder import Builder


def redistribute(build: Builder, source: str, target: str) -> None:
    """Copy a tensor into another of the same shape and type but another layout.

    A rank that holds a piece already copies it; else it gets it from the replica it belongs to. The gets of a
    rank start with those from the ranks after it, so that not all of them read one rank at once.

    Args:
        build: Where the actions go.
        source: Name of the tensor that is there, complete in every replica.
        target: Name of the tensor that is written, every replica of it.
    """
    here, there = build.layout(source), build.layout(target)
    for replica in range(there.replicas):
        for rank in range(there.ranks):
            if there.replica(rank) != replica:
                continue
            pieces = []
            for tile in there.tiles_of(rank):
                rows, cols = there.tile_bounds(tile)
                for i, j in here.overlapping_tiles(rows, cols):
                    origins = [r for r in range(here.replicas) if here.owner((i, j), r) == rank]
                    origin = origins[0] if origins else here.replica(rank)
                    piece = build.tile(source, i, j, origin).cut(rows, cols)
                    pieces.append((piece, build.tile(target, *tile, replica).cut(piece.rows, piece.cols)))
            pieces.sort(key=lambda pair: (pair[0].rank - rank) % there.ranks)
            for piece, into in pieces:
                build.get(piece, into)
