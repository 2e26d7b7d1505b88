"""The maps of a chain: each tile of the output by its owner, which gets the operands it lacks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from umm.interval import Interval
from umm.plans.movement.blocks import Needed, held
from umm.plans.movement.gathers import many_nodes
from umm.plans.movement.sums import add_up, sums_to
from umm.plans.statements.lowering import Context, write
from umm.plans.statements.pieces import (
    clear,
    gather_together,
    gathered,
    pieces_by_owner,
    pieces_in,
    sum_in_place,
    tiles_of,
)
from umm.program import Map
from umm.program.functions import Function, function
from umm.schedules.table.buffers import Slice, Slices
from umm.schedules.table.details import ACCUMULATE, PUT
from umm.schedules.writer.builder import Builder, How


@write.register
def _(statement: Map, build: Builder, context: Context) -> str:
    """Write a map."""
    # Only the kernel right before this one can go on; in between another statement has run.
    if context.before is None or context.before.outs != (statement.beside,):
        statement = replace(statement, beside="")
    _write_map(build, statement, statement.out in context.written)
    return ""


def _write_map(build: Builder, statement: Map, written: bool) -> None:
    """Write a map, each part of it where its output is."""
    # statement: the map. written: whether an earlier statement has written to its output, so that it is not
    # zero.
    # Cheapest first: a tile of the output by its owner, unless the function needs elements that the output
    # has no letter for (sums over rows or columns, lines of a table), or reads in place across tiles.
    known = function(statement.fn)
    if known.inner:
        _over_lines(build, statement, known, written)
        return
    if known.adds_over and statement.out not in statement.reads:
        # Unit 0 marks functions of whole rows, such as a softmax: parts of a row do not add up.
        if known.unit(statement.parameters) == 0 and "c" in known.adds_over:
            # The result has no columns: each tile of it comes from whole rows.
            cols = Interval(0, build.layout(statement.reads[0]).shape[1])
            for target in tiles_of(build, statement.out):
                reads = _reads(build, statement, target.rank, known.ranges(target.rows, cols)[1:])
                build.map(statement.fn, target, *reads, **statement.parameters)
        else:
            _add_parts(build, statement, known, written)
        return
    if statement.out in statement.reads:
        # In place, where a tile is cut and the function cannot be, a rank would overwrite what another reads.
        spans = (Interval(*x) for x in pairwise(build.layout(statement.out).col_edges.tolist()))
        if any(x.size and _cut(build, statement, known, x) != x for x in spans):
            _through_temporaries(build, statement, known)
            return
    begun: set[int] = set()
    for target in tiles_of(build, statement.out):
        _piece(build, statement, known, target, begun)


def _cut(build: Builder, statement: Map, known: Function, cols: Interval) -> Interval:
    """Return the smallest range of columns around some that the map can work on."""
    width, unit = build.layout(statement.out).shape[1], known.unit(statement.parameters)
    if unit == 0:
        return Interval(0, width)
    # Units are columns that belong together, such as a head; round outwards to whole ones.
    return Interval(cols.start // unit * unit, min(-(-cols.stop // unit) * unit, width))


def _reads(
    build: Builder,
    statement: Map,
    rank: int,
    ranges: Sequence[tuple[Interval, Interval]],
    first: Slice | None = None,
) -> list[Slice]:
    """Return some rows and columns of each read in a rank's memory; the first may be there."""
    return [
        first if number == 0 and first is not None
        else gathered(build, name, rank, *spans, slot=("map", number))
        for number, (name, spans) in enumerate(zip(statement.reads, ranges, strict=True))
    ]  # fmt: skip


def _piece(build: Builder, statement: Map, known: Function, target: Slice, begun: set[int]) -> None:
    """Write the map of one tile; whole rows beside it if the function cannot split them."""
    rows, cols = target.rows, _cut(build, statement, known, target.cols)
    reads = _reads(build, statement, target.rank, known.ranges(rows, cols)[1:])
    # A softmax or a norm over columns cannot work on a tile that has some of a row's: its owner gets whole
    # rows, and does again what the owners of the other tiles do.
    if cols == target.cols:
        _write(build, statement, target, reads, begun)
        return
    lines = build.temporary(target.rank, statement.out, rows, cols, slot=("map", "out"))
    build.map(statement.fn, lines, *reads, **statement.parameters)
    build.get(lines.cut(target.rows, target.cols), target)


def _write(build: Builder, statement: Map, out: Slice, reads: list[Slice], begun: set[int]) -> None:
    """Write the map of one piece, in registers where a fused read has just been computed there.

    A rank keeps its tiles as one array, so one kernel does all its pieces: just the first has a launch.

    Args:
        begun: Ranks that have written a piece of it; gets that of this one.
    """
    goes_on = out.rank in begun or _goes_on(build, statement, out.rank, reads)
    begun.add(out.rank)
    at_hand = [
        piece
        for name, piece in zip(statement.reads, reads, strict=True)
        if name in statement.fused and build.computed(piece)
    ]
    seconds = None
    alone = bool(build.machine.passes)  # NumPy goes over all operands of each map again
    if (
        at_hand and not alone
    ):  # no separate launch, and what it holds already is neither read again nor, in place, written
        more = {piece for piece in (out, *reads) if piece not in at_hand}
        nbytes = sum(x.elements * build.tensors[x.tensor].itemsize for x in more)
        seconds = nbytes / build.machine.pass_bandwidth
    elif (goes_on and not alone) or function(statement.fn).looks_up:
        passed = (out, out, *reads[1:]) if function(statement.fn).looks_up else (out, *reads)
        nbytes = sum(x.elements * build.tensors[x.tensor].itemsize for x in passed)
        seconds = nbytes / build.machine.pass_bandwidth + (0.0 if goes_on else build.machine.launch_s)
    build.map(statement.fn, out, *reads, seconds=seconds, **statement.parameters)


def _goes_on(build: Builder, statement: Map, rank: int, reads: list[Slice]) -> bool:
    """Whether the kernel of the map before also does a piece of this one: its rank owns all operands."""
    if not statement.beside:
        return False
    works = build.layout(statement.beside).elements_of_rank[rank] > 0
    return bool(works) and all(build.computed(piece) for piece in reads)


def _through_temporaries(build: Builder, statement: Map, known: Function) -> None:
    """Write a map in place whose tiles need each other's elements: all is read before any is written."""
    done: list[tuple[Slice, Slice]] = []
    for target in tiles_of(build, statement.out):
        rank, rows, cols = target.rank, target.rows, _cut(build, statement, known, target.cols)
        reads = _reads(build, statement, rank, known.ranges(rows, cols)[1:])
        lines = build.temporary(rank, statement.out, rows, cols)
        build.map(statement.fn, lines, *reads, **statement.parameters)
        done.append((lines.cut(target.rows, target.cols), target))
    for result, target in done:
        build.get(result, target)


def _add_parts(build: Builder, statement: Map, known: Function, written: bool) -> None:
    """Write a map whose result lacks a letter: each rank's part of the first read, added up at the owners."""
    # A replica of the result gets its parts from the replica of the read that its first owner is in. A part
    # that spans all of the letter is put where it belongs, and computed there if its rank owns that.
    read, out = statement.reads[0], build.layout(statement.out)
    # For each replica of the read those of the result that it gives parts to: one serves each replica of the
    # result, or its parts would count twice.
    served: list[list[int]] = [[] for _ in range(build.layout(read).replicas)]
    for number, owners in enumerate(out.replica_owners):
        served[build.layout(read).replica(int(owners[0]))].append(number)
    tiles = [x for x in build.layout(read).filled() if served[x[2]]]
    pieces = [build.tile(read, *tile, replica) for _, tile, replica in tiles]
    if known.unit(statement.parameters) == 0:  # of whole rows, by who owns their first columns
        whole_rows = Interval(0, build.layout(read).shape[1])
        kept = [i for i, piece in enumerate(pieces) if piece.cols.start == 0]
        tiles, pieces = [tiles[i] for i in kept], [pieces[i]._replace(cols=whole_rows) for i in kept]
    shape = build.layout(read).shape
    # Whether a piece of the first read has all of the letters that the result lacks.
    spans = [
        all(
            span.size == size
            for letter, span, size in zip(known.operands[1], (x.rows, x.cols), shape, strict=True)
            if letter in known.adds_over
        )
        for x in pieces
    ]
    # Parts are accumulated, so old values have to go; a part that spans all is put over them.
    if written and not all(spans):
        clear(build, statement.out)
    begun: set[int] = set()
    known_targets: dict[tuple[int, Interval, Interval], list[Slice]] = {}
    for (rank, _, replica), piece, spans_all in zip(tiles, pieces, spans, strict=True):
        first = known.operands[1]
        rows = piece.rows if first[0] == "r" else Interval(0, 1)
        cols = piece.cols if first[1] == "c" else Interval(0, 1)
        out_rows, out_cols = known.ranges(rows, cols)[0]
        targets = known_targets.get((replica, out_rows, out_cols))
        if targets is None:
            targets = known_targets[replica, out_rows, out_cols] = [
                piece
                for to in served[replica]
                for piece in pieces_in(build, statement.out, to, out_rows, out_cols)
            ]
        owned = [
            x for x in targets if spans_all and x.rank == rank and (x.rows, x.cols) == (out_rows, out_cols)
        ]
        reads = _reads(build, statement, rank, known.ranges(rows, cols)[1:])
        part = (
            owned[0]
            if owned
            else build.temporary(rank, statement.out, out_rows, out_cols, slot=("map", "part"))
        )
        _write(build, statement, part, reads, begun)
        others = [x for x in targets if x != part]
        kind, parts = PUT if spans_all else ACCUMULATE, [part.cut(x.rows, x.cols) for x in others]
        one = np.zeros(len(others), dtype=np.int64)
        build.transfers(one + kind, Slices.of(parts), Slices.of(others), [How()], one)


class _Part(NamedTuple):
    """Part of the output that the owner of a piece of the first operand computes."""

    piece: Slice  # some lines of the first read
    rows: Interval  # the rows of the result
    targets: list[Slice]  # tiles of the result, cut to what is made of them
    whole: bool  # whether the piece has all lines, so that nothing is added

    @property
    def local(self) -> bool:
        """Whether its owner alone gets all of it."""
        return self.whole and {x.rank for x in self.targets} == {self.piece.rank}


def _over_lines(build: Builder, statement: Map, known: Function, written: bool) -> None:
    """Write a map that adds over the lines of its first read, where fewer elements move."""
    # Either the owner of each tile of the result gets all lines, or the owners of lines make parts of the
    # result, which are added up: lookups in a table cut by vocabulary.
    parts = list(_parts(build, statement))
    # A table cut by vocabulary is far larger than its result: parts of the result move instead of lines.
    added = max((x.piece.cols.size * x.rows.size for x in parts if not x.local), default=0)
    if added < _lacked(build, statement):
        _sum_parts(build, statement, known, parts, written)
        return
    lines = Interval(0, build.layout(statement.reads[0]).shape[0])
    rooms = _gathered_lines(build, statement, lines)
    begun: set[int] = set()
    for target in tiles_of(build, statement.out):
        rank, spans = target.rank, known.ranges(target.rows, target.cols, lines)[1:]
        reads = _reads(build, statement, rank, spans, rooms.get(rank))
        _write(build, statement, target, reads, begun)


def _parts(build: Builder, statement: Map) -> Iterator[_Part]:
    """Yield the part of each owner of lines for the tiles of its replica."""
    name = statement.reads[0]
    read = build.layout(name)
    served: dict[int, list[Slice]] = {}
    for target in tiles_of(build, statement.out):
        served.setdefault(read.replica(target.rank), []).append(target)
    for _, tile, replica in read.filled():
        piece = build.tile(name, *tile, replica)
        targets = [x.cut(x.rows, piece.cols) for x in served.get(replica, ())]
        targets = [x for x in targets if x.elements]
        if targets:
            rows = Interval(min(x.rows.start for x in targets), max(x.rows.stop for x in targets))
            yield _Part(piece, rows, targets, piece.rows.size == read.shape[0])


def _lacked(build: Builder, statement: Map) -> int:
    """Return the most elements of the first read that the owner of a tile of the result has not."""
    name = statement.reads[0]
    read, most = build.layout(name), 0
    for target in tiles_of(build, statement.out):
        cols, near = target.cols, read.replica(target.rank)
        owned = (build.tile(name, *x, near) for x in read.tiles_of(target.rank))
        most = max(most, read.shape[0] * cols.size - sum(x.cut(x.rows, cols).elements for x in owned))
    return most


def _gathered_lines(build: Builder, statement: Map, lines: Interval) -> Mapping[int, Slice]:
    """Write gathers of all lines of the first read by ranks that need the same; return them by rank."""
    # None where ranks hold several tiles, which get them one by one.
    name = statement.reads[0]
    read, out = build.layout(name), build.layout(statement.out)
    owned, made = held(read), held(out)
    rooms: dict[int, Slice] = {}
    if owned is None or made is None:
        return rooms
    together: dict[tuple[int, Interval], list[int]] = {}
    for rank, (top, bottom, left, right) in enumerate(made.tolist()):
        if top < bottom and left < right:
            together.setdefault((read.replica(rank), Interval(left, right)), []).append(rank)
    with build.collective():
        for (replica, cols), ranks in together.items():
            pieces = pieces_by_owner(build, name, replica, lines, cols)
            if len(pieces) == 1:
                ranks = [x for x in ranks if x not in pieces]
            for rank in ranks:
                rooms[rank] = build.temporary(rank, name, lines, cols, slot=("map", 0))
            gather_together(build, ranks, pieces, rooms)
    return rooms


def _sum_parts(build: Builder, statement: Map, known: Function, parts: list[_Part], written: bool) -> None:
    """Write the parts of a result that the owners of lines make, and their sums."""
    out = build.layout(statement.out)
    rects, works = np.zeros((build.ranks, 4), dtype=np.int64), np.zeros(build.ranks, dtype=np.bool_)
    for part in parts:
        rects[part.piece.rank] = (*part.rows, *part.piece.cols)
        works[part.piece.rank] = True
    alone = len(parts) == works.sum() and held(out) is not None
    sums = sums_to(Needed.of(out, rects, works)) if alone and not all(x.whole for x in parts) else None
    copy = build.layout(statement.reads[0]).replica_of_rank
    if sums is not None and any(len({*copy[[r for r in x.ranks if works[r]]]}) > 1 for x in sums.groups):
        sums = None  # copies of the lines have made the same, which is not to be added twice
    if sums is None and written and not all(x.whole for x in parts):
        clear(build, statement.out)
    made: dict[int, Slice] = {}
    begun: set[int] = set()
    for piece, rows, targets, is_whole in parts:
        rank, spans = piece.rank, known.ranges(rows, piece.cols, piece.rows)[1:]
        mine = [x for x in targets if x.rank == rank and (x.rows, x.cols) == (rows, piece.cols)]
        result = (
            mine[0]
            if mine and (is_whole or (sums is not None and sums.in_place))
            else build.temporary(rank, statement.out, rows, piece.cols, slot=("map", "part"))
        )
        reads = _reads(build, statement, rank, spans, piece)
        _write(build, statement, result, reads, begun)
        made[rank] = result
        for target in targets if sums is None else ():
            if target != result:
                (build.put if is_whole else build.accumulate)(result.cut(target.rows, target.cols), target)
    everywhere = sums is not None and sums.in_place and sum(len(x.ranks) for x in sums.groups) == build.ranks
    if everywhere and not many_nodes(build.machine, range(build.ranks), build.ranks):
        clear(build, statement.out, set(range(build.ranks)) - set(made))
        sum_in_place(build, statement.out)  # by the fastest all-reduce, as products of multiplies are
        return
    for group in sums.groups if sums is not None else ():
        # Ranks without lines take part in the collective all the same and add zero.
        idle = [rank for rank in group.ranks if rank not in made]
        clear(build, statement.out, idle)
        owned = {rank: build.own(statement.out, rank) for rank in group.ranks}
        product = {rank: made.get(rank, owned[rank]) for rank in group.ranks}
        first = product[group.ranks[0]]
        held_there = {rank: owned[rank].cut(first.rows, first.cols) for rank in group.ranks}
        add_up(build, group, product, held_there, adds=False)
