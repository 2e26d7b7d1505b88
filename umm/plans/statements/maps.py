"""The maps of a chain: each tile of the output by its owner, which gets the operands it lacks."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.plans.movement.blocks import Needed, held
from umm.plans.movement.gathers import many_nodes
from umm.plans.movement.sums import Sums, add_up, sums_to
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
from umm.program.functions import function
from umm.program.functions.signature import ONE
from umm.schedules.table.buffers import Slice, Slices
from umm.schedules.table.details import ACCUMULATE, PUT
from umm.schedules.writer.builder import Builder, How


@write.register
def _(statement: Map, build: Builder, context: Context) -> None:
    """Write a map."""
    # Only the kernel right before this one can go on; in between another statement has run.
    if context.before is None or context.before.outs != (statement.beside,):
        statement = replace(statement, beside="")
    _Writing(build, statement).write(statement.out in context.written)


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


class _Writing:
    """A map on the ranks of a builder, each part of it where its output is."""

    def __init__(self, build: Builder, statement: Map) -> None:
        self.build, self.statement, self.known = build, statement, function(statement.fn)
        self.unit = self.known.unit(statement.parameters)
        self.out = build.layout(statement.out)
        self.begun = set[int]()  # ranks that have written a piece of it

    @property
    def read(self) -> Layout:
        """The layout of the first operand."""
        return self.build.layout(self.statement.reads[0])

    @property
    def targets(self) -> Iterator[Slice]:
        """The tiles of the output."""
        return tiles_of(self.build, self.statement.out)

    def write(self, written: bool) -> None:
        """Write it; an output that an earlier statement has written to is not zero."""
        # Cheapest first: a tile of the output by its owner, unless the function needs elements that the
        # output has no letter for (sums over rows or columns, lines of a table), or reads in place across
        # tiles.
        statement, known = self.statement, self.known
        if known.inner:
            self._over_lines(written)
        elif known.adds_over and statement.out not in statement.reads:
            # Unit 0 marks functions of whole rows, such as a softmax: parts of a row do not add up.
            if self.unit == 0 and "c" in known.adds_over:
                # The result has no columns: each tile of it comes from whole rows.
                cols = Interval(0, max(self.build.layout(x).shape[1] for x in self.statement.reads))
                for target in self.targets:
                    self._map(target, self._reads(target.rank, target.rows, cols))
            else:
                self._add_parts(written)
        elif statement.out in statement.reads and self._cuts():
            self._through_temporaries()
        else:
            for target in self.targets:
                self._piece(target)

    def _cuts(self) -> bool:
        """Whether a tile is cut where the function cannot be: in place one overwrites others' reads."""
        spans = (Interval(*x) for x in pairwise(self.out.col_edges.tolist()))
        return any(x.size and self._cut(x) != x for x in spans)

    def _cut(self, cols: Interval) -> Interval:
        """Return the smallest range of columns around some that the map can work on."""
        width = self.out.shape[1]
        # Units are columns that belong together, such as a head, or a row; round outwards to whole ones.
        unit = self.unit or width
        return Interval(cols.start // unit * unit, min(-(-cols.stop // unit) * unit, width))

    def _begun_in(self, cols: Interval) -> Interval:
        """Return the units of columns of the first operand whose first column is in some columns."""
        width = self.read.shape[1]
        unit = self.unit or width
        start, stop = (-(-x // unit) * unit for x in cols)
        return Interval(min(start, width), min(stop, width))

    def _reads(
        self, rank: int, rows: Interval, cols: Interval, inner: Interval = ONE, first: Slice | None = None
    ) -> list[Slice]:
        """Return some r, c and inner of each operand in a rank's memory; the first may be there."""
        ranges = self.known.ranges(rows, cols, inner)[1:]
        return [
            first if number == 0 and first is not None
            else gathered(self.build, name, rank, *spans, slot=("map", number))
            for number, (name, spans) in enumerate(zip(self.statement.reads, ranges, strict=True))
        ]  # fmt: skip

    def _map(self, out: Slice, reads: Sequence[Slice], seconds: float | None = None) -> None:
        """Write the map of one piece, in its own time if None."""
        one = self.statement
        self.build.map(one.fn, out, *reads, seconds=seconds, **one.parameters)

    def _piece(self, target: Slice) -> None:
        """Write the map of one tile; whole rows beside it if the function cannot split them."""
        rows, cols = target.rows, self._cut(target.cols)
        reads = self._reads(target.rank, rows, cols)
        # A softmax or a norm over columns cannot work on a tile that has some of a row's: its owner gets
        # whole rows, and does again what the owners of the other tiles do.
        if cols == target.cols:
            self._write(target, reads)
            return
        lines = self.build.temporary(target.rank, self.statement.out, rows, cols, slot=("map", "out"))
        self._map(lines, reads)
        self.build.get(lines.cut(target.rows, target.cols), target)

    def _write(self, out: Slice, reads: Sequence[Slice]) -> None:
        """Write the map of one piece, in registers where a fused read has just been computed there.

        A rank keeps its tiles as one array, so one kernel does all its pieces: just the first has a launch.
        """
        build, one, machine = self.build, self.statement, self.build.machine
        goes_on = out.rank in self.begun or self._goes_on(out.rank, reads)
        self.begun.add(out.rank)
        named = zip(one.reads, reads, strict=True)
        at_hand = [x for name, x in named if name in one.fused and build.computed(x)]
        alone = bool(machine.passes)  # NumPy goes over all operands of each map again
        seconds, launch = None, 0.0 if goes_on else machine.launch_s
        passed: Iterable[Slice] | None = None
        if at_hand and not alone:
            # No separate launch, and what it holds already is neither read again nor, in place, written.
            passed, launch = {x for x in (out, *reads) if x not in at_hand}, 0.0
        elif self.known.looks_up:
            passed = out, out, *reads[1:]
        elif goes_on and not alone:
            passed = out, *reads
        if passed is not None:
            nbytes = sum(x.elements * build.tensors[x.tensor].itemsize for x in passed)
            seconds = nbytes / machine.pass_bandwidth + launch
        self._map(out, reads, seconds)

    def _goes_on(self, rank: int, reads: Sequence[Slice]) -> bool:
        """Whether the kernel of the map before also does a piece of this one: its rank owns all operands."""
        beside = self.statement.beside
        works = beside and self.build.layout(beside).elements_of_rank[rank] > 0
        return bool(works) and all(map(self.build.computed, reads))

    def _through_temporaries(self) -> None:
        """Write a map in place whose tiles need each other's elements: all is read before any is written."""
        done: list[tuple[Slice, Slice]] = []
        for target in self.targets:
            rows, cols = target.rows, self._cut(target.cols)
            reads = self._reads(target.rank, rows, cols)
            lines = self.build.temporary(target.rank, self.statement.out, rows, cols)
            self._map(lines, reads)
            done.append((lines.cut(rows, target.cols), target))
        for result, target in done:
            self.build.get(result, target)

    def _add_parts(self, written: bool) -> None:
        """Write a map whose result lacks a letter: parts of the first read, added up at the owners."""
        # A replica of the result gets its parts from the replica of the read that its first owner is in. A
        # part that spans all of the letter is put where it belongs, and computed there if its rank owns that.
        build, out, read = self.build, self.statement.out, self.read
        letters = self.known.operands[1]
        # For each replica of the read those of the result that it gives parts to: one serves each replica of
        # the result, or its parts would count twice.
        served: list[list[int]] = [[] for _ in range(read.replicas)]
        for number, owners in enumerate(self.out.replica_owners):
            served[read.replica(int(owners[0]))].append(number)
        pieces = [x for x in tiles_of(build, self.statement.reads[0]) if served[read.replica(x.rank)]]
        if self.unit != 1:  # columns that belong together, by who owns the first of them
            pieces = [piece for x in pieces if (piece := x._replace(cols=self._begun_in(x.cols))).elements]
        # Whether a piece of the first read has all of the letters that the result lacks.
        spans = [
            all(
                span.size == size
                for letter, span, size in zip(letters, (x.rows, x.cols), read.shape, strict=True)
                if letter in self.known.adds_over
            )
            for x in pieces
        ]
        # Parts are accumulated, so old values have to go; a part that spans all is put over them.
        if written and not all(spans):
            clear(build, out)
        known_targets: dict[tuple[int, Interval, Interval], tuple[list[Slice], Slices]] = {}
        for piece, spans_all in zip(pieces, spans, strict=True):
            rank, replica = piece.rank, read.replica(piece.rank)
            rows = piece.rows if letters[0] == "r" else ONE
            cols = piece.cols if letters[1] == "c" else ONE
            region = self.known.ranges(rows, cols)[0]
            if (replica, *region) not in known_targets:
                made = [x for to in served[replica] for x in pieces_in(build, out, to, *region)]
                known_targets[replica, *region] = made, Slices.of(made)
            targets, into = known_targets[replica, *region]
            owned = (x for x in targets if spans_all and x.rank == rank and (x.rows, x.cols) == region)
            reads = self._reads(rank, rows, cols)
            part = next(owned, None) or build.temporary(rank, out, *region, slot=("map", "part"))
            self._write(part, reads)
            into = into.taken(into.buffer != part.buffer)
            one = np.zeros(len(into), dtype=np.int64)
            kind, parts = PUT if spans_all else ACCUMULATE, Slices.of([part]).taken(one).cut(into.spans)
            build.transfers(one + kind, parts, into, [How()], one)

    def _over_lines(self, written: bool) -> None:
        """Write a map that adds over the lines of its first read, where fewer elements move."""
        # Either the owner of each tile of the result gets all lines, or the owners of lines make parts of the
        # result, which are added up: lookups in a table cut by vocabulary.
        parts = list(self._parts())
        # A table cut by vocabulary is far larger than its result: parts of the result move instead of lines.
        added = max((x.piece.cols.size * x.rows.size for x in parts if not x.local), default=0)
        if added < self._lacked():
            self._sum_parts(parts, written)
            return
        lines = Interval(0, self.read.shape[0])
        rooms = self._gathered_lines(lines)
        for target in self.targets:
            rank = target.rank
            self._write(target, self._reads(rank, target.rows, target.cols, lines, rooms.get(rank)))

    def _parts(self) -> Iterator[_Part]:
        """Yield the part of each owner of lines for the tiles of its replica."""
        read, served = self.read, dict[int, list[Slice]]()
        for target in self.targets:
            served.setdefault(read.replica(target.rank), []).append(target)
        for piece in tiles_of(self.build, self.statement.reads[0]):
            cut = (x.cut(x.rows, piece.cols) for x in served.get(read.replica(piece.rank), ()))
            targets = [x for x in cut if x.elements]
            if targets:
                rows = Interval(min(x.rows.start for x in targets), max(x.rows.stop for x in targets))
                yield _Part(piece, rows, targets, piece.rows.size == read.shape[0])

    def _lacked(self) -> int:
        """Return the most elements of the first read that the owner of a tile of the result has not."""
        read, most = self.read, 0
        for target in self.targets:
            cols, near = target.cols, read.replica(target.rank)
            owned = (self.build.tile(self.statement.reads[0], *x, near) for x in read.tiles_of(target.rank))
            most = max(most, read.shape[0] * cols.size - sum(x.cut(x.rows, cols).elements for x in owned))
        return most

    def _gathered_lines(self, lines: Interval) -> dict[int, Slice]:
        """Write gathers of all lines of the first read by ranks that need the same; return them by rank."""
        # None where ranks hold several tiles, which get them one by one.
        build, name, read = self.build, self.statement.reads[0], self.read
        made, rooms = held(self.out), dict[int, Slice]()
        if held(read) is None or made is None:
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

    def _sum_parts(self, parts: list[_Part], written: bool) -> None:
        """Write the parts of a result that the owners of lines make, and their sums."""
        build, out, all_whole = self.build, self.statement.out, all(x.whole for x in parts)
        sums, made = None if all_whole else self._sums(parts), dict[int, Slice]()
        if sums is None and written and not all_whole:
            clear(build, out)
        for piece, rows, targets, is_whole in parts:
            rank, region = piece.rank, (rows, piece.cols)
            in_place = is_whole or (sums is not None and sums.in_place)
            mine = (x for x in targets if in_place and x.rank == rank and (x.rows, x.cols) == region)
            result = next(mine, None) or build.temporary(rank, out, *region, slot=("map", "part"))
            self._write(result, self._reads(rank, *region, piece.rows, piece))
            made[rank] = result
            for target in targets if sums is None else ():
                if target != result:
                    (build.put if is_whole else build.accumulate)(
                        result.cut(target.rows, target.cols), target
                    )
        groups = sums.groups if sums is not None else ()
        everywhere = sums is not None and sums.in_place and sum(len(x.ranks) for x in groups) == build.ranks
        if everywhere and not many_nodes(build.machine, range(build.ranks), build.ranks):
            clear(build, out, set(range(build.ranks)) - set(made))
            sum_in_place(build, out)  # by the fastest all-reduce, as products of multiplies are
            return
        for group in groups:
            # Ranks without lines take part in the collective all the same and add zero.
            clear(build, out, [rank for rank in group.ranks if rank not in made])
            owned = {rank: build.own(out, rank) for rank in group.ranks}
            product = {rank: made.get(rank, owned[rank]) for rank in group.ranks}
            first = product[group.ranks[0]]
            targets_of = {rank: owned[rank].cut(first.rows, first.cols) for rank in group.ranks}
            add_up(build, group, product, targets_of, adds=False)

    def _sums(self, parts: list[_Part]) -> Sums | None:
        """Return how parts are summed by collectives; None where they are added one by one."""
        rects = np.zeros((self.build.ranks, 4), dtype=np.int64)
        works = np.zeros(self.build.ranks, dtype=np.bool_)
        for part in parts:
            rects[part.piece.rank] = (*part.rows, *part.piece.cols)
            works[part.piece.rank] = True
        if len(parts) != works.sum() or held(self.out) is None:
            return None
        sums, copy = sums_to(Needed.of(self.out, rects, works)), self.read.replica_of_rank
        if sums is not None and any(len({*copy[[r for r in x.ranks if works[r]]]}) > 1 for x in sums.groups):
            return None  # copies of the lines have made the same, which is not to be added twice
        return sums
