"""The maps of a chain: each tile of the output by its owner, with what it needs of others brought there."""

from umm.algorithms.chains.pieces import gathered, tiles_by_rank
from umm.interval import Interval
from umm.program import Map
from umm.program.functions import Function, function
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder


def map_tiles(build: Builder, statement: Map, written: bool) -> None:
    """Write a map of a chain; every replica of what it writes is complete afterwards.

    Args:
        build: Where the actions go.
        statement: The map.
        written: Whether an earlier statement has written to its output, so that it is not zero.
    """
    known = function(statement.fn)
    if known.adds_over and statement.out not in statement.reads:
        if known.unit(statement.parameters) == 0 and "c" in known.adds_over:
            _of_whole_rows(build, statement, known)
        else:
            _add_parts(build, statement, known, written)
        return
    if statement.out in statement.reads and _splits_units(build, statement, known):
        _through_temporaries(build, statement, known)
        return
    for rank, tile, replica in tiles_by_rank(build.layout(statement.out)):
        target = build.tile(statement.out, *tile, replica)
        _piece(build, statement, known, rank, target)


def _cut(build: Builder, statement: Map, known: Function, cols: Interval) -> Interval:
    """Return the smallest range of columns around some that the map can work on."""
    width, unit = build.layout(statement.out).shape[1], known.unit(statement.parameters)
    if unit == 0:
        return Interval(0, width)
    return Interval(cols.start // unit * unit, min(-(-cols.stop // unit) * unit, width))


def _splits_units(build: Builder, statement: Map, known: Function) -> bool:
    """Whether a tile of the output is cut where the function cannot cut."""
    layout = build.layout(statement.out)
    spans = [
        Interval(*x) for x in zip(layout.col_edges[:-1].tolist(), layout.col_edges[1:].tolist(), strict=True)
    ]
    return any(span.size and _cut(build, statement, known, span) != span for span in spans)


def _reads(
    build: Builder, statement: Map, known: Function, rank: int, rows: Interval, cols: Interval
) -> list[Slice]:
    ranges = known.ranges(rows, cols)[1:]
    if known.uncut:
        ranges = [
            (Interval(0, build.layout(name).shape[0]), spans[1]) if letters[0] == known.uncut else spans
            for name, letters, spans in zip(statement.reads, known.operands[1:], ranges, strict=True)
        ]
    return [
        gathered(build, name, rank, *spans, slot=("map", number))
        for number, (name, spans) in enumerate(zip(statement.reads, ranges, strict=True))
    ]


def _piece(build: Builder, statement: Map, known: Function, rank: int, target: Slice) -> None:
    """Write the map of one tile; whole rows beside it if the function cannot split them."""
    rows, cols = target.rows, _cut(build, statement, known, target.cols)
    reads = _reads(build, statement, known, rank, rows, cols)
    if cols == target.cols:
        _write(build, statement, target, reads)
        return
    whole = build.temporary(rank, statement.out, rows, cols, slot=("map", "out"))
    build.map(statement.fn, whole, *reads, **statement.parameters)
    build.get(whole.cut(target.rows, target.cols), target)


def _write(build: Builder, statement: Map, out: Slice, reads: list[Slice]) -> None:
    """Write the map of one piece, in registers where a fused read has just been computed there."""
    at_hand = [
        piece
        for name, piece in zip(statement.reads, reads, strict=True)
        if name in statement.fused and build.computed(piece)
    ]
    seconds = None
    if at_hand:  # no separate launch, and what it holds already is neither read again nor, in place, written
        more = {piece for piece in (out, *reads) if piece not in at_hand}
        nbytes = sum(x.elements * build.tensors[x.tensor].itemsize for x in more)
        seconds = nbytes / build.machine.work_bandwidth
    elif function(statement.fn).looks_up:
        nbytes = sum(x.elements * build.tensors[x.tensor].itemsize for x in (out, out, *reads[1:]))
        seconds = build.machine.launch_s + nbytes / build.machine.work_bandwidth
    build.map(statement.fn, out, *reads, seconds=seconds, **statement.parameters)


def _through_temporaries(build: Builder, statement: Map, known: Function) -> None:
    """Write a map in place whose tiles need each other's elements: all is read before any is written."""
    done: list[tuple[Slice, Slice]] = []
    for rank, tile, replica in tiles_by_rank(build.layout(statement.out)):
        target = build.tile(statement.out, *tile, replica)
        rows, cols = target.rows, _cut(build, statement, known, target.cols)
        reads = _reads(build, statement, known, rank, rows, cols)
        whole = build.temporary(rank, statement.out, rows, cols)
        build.map(statement.fn, whole, *reads, **statement.parameters)
        done.append((whole.cut(target.rows, target.cols), target))
    for result, target in done:
        build.get(result, target)


def _of_whole_rows(build: Builder, statement: Map, known: Function) -> None:
    """Write a map whose result has no columns and whose parts do not add up: each tile from whole rows."""
    cols = Interval(0, build.layout(statement.reads[0]).shape[1])
    for rank, tile, replica in tiles_by_rank(build.layout(statement.out)):
        target = build.tile(statement.out, *tile, replica)
        reads = _reads(build, statement, known, rank, target.rows, cols)
        build.map(statement.fn, target, *reads, **statement.parameters)


def _add_parts(build: Builder, statement: Map, known: Function, written: bool) -> None:
    """Write a map whose result lacks a letter: each rank's part of the first read, added up at the owners.

    A replica of the result gets its parts from the replica of the read that its first owner is in. A part
    that spans all of the letter is put where it belongs, and computed there if its rank owns that.
    """
    read, out = statement.reads[0], build.layout(statement.out)
    served = _served(build, read, statement.out)
    tiles = [x for x in tiles_by_rank(build.layout(read)) if served[x[2]]]
    pieces = [build.tile(read, *tile, replica) for _, tile, replica in tiles]
    if known.unit(statement.parameters) == 0:  # of whole rows, by who owns their first columns
        whole_rows = Interval(0, build.layout(read).shape[1])
        kept = [i for i, piece in enumerate(pieces) if piece.cols.start == 0]
        tiles, pieces = [tiles[i] for i in kept], [pieces[i]._replace(cols=whole_rows) for i in kept]
    spans = [_spans(build, known, piece, read) for piece in pieces]
    if written and not all(spans):
        for _, tile, replica in tiles_by_rank(build.layout(statement.out)):
            build.map("zero", build.tile(statement.out, *tile, replica))
    for (rank, _, replica), piece, whole in zip(tiles, pieces, spans, strict=True):
        first = known.operands[1]
        rows = piece.rows if first[0] == "r" else Interval(0, 1)
        cols = piece.cols if first[1] == "c" else Interval(0, 1)
        out_rows, out_cols = known.ranges(rows, cols)[0]
        targets = [
            build.tile(statement.out, *tile, to).cut(out_rows, out_cols)
            for to in served[replica]
            for tile in out.overlapping_tiles(out_rows, out_cols)
        ]
        own = [x for x in targets if whole and x.rank == rank and (x.rows, x.cols) == (out_rows, out_cols)]
        reads = _reads(build, statement, known, rank, rows, cols)
        part = (
            own[0] if own else build.temporary(rank, statement.out, out_rows, out_cols, slot=("map", "part"))
        )
        _write(build, statement, part, reads)
        for target in targets:
            if target != part:
                (build.put if whole else build.accumulate)(part.cut(target.rows, target.cols), target)


def _served(build: Builder, read: str, out: str) -> list[list[int]]:
    """Return for each replica of a tensor the replicas of another that it gives parts to, being near."""
    served: list[list[int]] = [[] for _ in range(build.layout(read).replicas)]
    for replica, owners in enumerate(build.layout(out).replica_owners):
        served[build.layout(read).replica(int(owners[0]))].append(replica)
    return served


def _spans(build: Builder, known: Function, piece: Slice, tensor: str) -> bool:
    """Whether a piece of the first read has all of the letters that the result lacks."""
    both = zip(known.operands[1], (piece.rows, piece.cols), build.layout(tensor).shape, strict=True)
    return all(span.size == size for letter, span, size in both if letter in known.adds_over)
