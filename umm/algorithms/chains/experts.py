"""A mixture of experts over ranks: rows to experts, each expert's multiply, and rows back to their tokens.

*Dispatch*: a rank that owns routed rows gets each of their tokens once from its owner, who packs those that
are needed of what it owns; then it writes a row for each expert of a token. *Combine*: a rank adds up its
routed rows of each token, and the owner of the tokens adds up what comes from several ranks. So a token with
two experts at one rank travels once either way.

A *grouped multiply* is done by the owners of the product, of its left or of its right operand, whichever is
estimated to take least; others get what they lack, and parts of sums are added where they belong.

Source: Lepikhin et al. (2020), GShard, on dispatch and combine; Gale et al. (2022), MegaBlocks, on rows
without padding.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from umm import cost
from umm.algorithms.chains.pieces import gathered, tiles_by_rank
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.program import Combine, Dispatch, Grouped
from umm.program.experts import Part
from umm.program.routing import routing
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

Region = tuple[Interval, Interval]
Of = dict[str, Any]
"""Parameters of a function that say which rows."""


def dispatch(build: Builder, statement: Dispatch) -> None:
    """Write a dispatch; every replica of what it writes is complete afterwards."""
    known, moved, moves = statement.routed, _Passes(build), _Moves(build.ranks)
    expanded: list[tuple[Slice, Slice, bool, Of]] = []
    for number, (rank, tile, replica) in enumerate(tiles_by_rank(build.layout(statement.out))):
        target = build.tile(statement.out, *tile, replica)
        cols = target.cols
        if statement.gates:
            experts = known.experts_of(target.rows)
            cols = Interval(experts.start, experts.stop)
        of: Of = {"routing": statement.routing, "first": target.rows.start, "last": target.rows.stop}
        held, packed = _tokens(build, moves, (statement.x, rank, number), cols, of, moved)
        expanded.append((target, held, packed, of))
    moves.write()
    fn = "pick_gates" if statement.gates else "expand_tokens"
    for target, held, packed, of in expanded:
        seconds = moved.seconds(target.rank, 2 * target.elements, target)
        build.map(fn, target, held, seconds=seconds, packed=int(packed), **of)


class _Moves:
    """What is written for pairs of ranks, in steps: at each a rank sends to one other and gets from one.

    If all sent to the same rank first, they would wait for its link one after another.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._steps: list[tuple[int, Callable[[], object]]] = []

    def add(self, src: int, dst: int, written: Callable[[], object]) -> None:
        """Add what a pair of ranks does."""
        self._steps.append(((dst - src) % self._ranks, written))

    def write(self) -> None:
        """Write all, pairs at the same distance after each other."""
        for _, written in sorted(self._steps, key=lambda x: x[0]):
            written()


class _Passes:
    """What passes over memory take; those of one statement at a rank are one kernel, launched once."""

    def __init__(self, build: Builder) -> None:
        self._build = build
        self._launched: set[int] = set()

    def seconds(self, rank: int, elements: int, like: Slice) -> float:
        """Return the seconds of reading and writing so many elements of a slice's type."""
        machine = self._build.machine
        pace = cost.pace_of(machine, np.array(rank), self._build.ranks).memory
        launch = 0.0 if rank in self._launched else machine.launch_s
        self._launched.add(rank)
        nbytes = elements * self._build.tensors[like.tensor].itemsize
        return launch + float(nbytes / machine.work_bandwidth / pace)


def _tokens(
    build: Builder, moves: _Moves, where: tuple[str, int, int], cols: Interval, of: Of, moved: _Passes
) -> tuple[Slice, bool]:
    """Return the tokens of some routed rows in a rank's memory, and whether they are packed.

    If all between the first and the last are needed, or the rank has them, they are read as they are.

    Args:
        build: Where the actions go.
        moves: Where moving them goes.
        where: The tensor of tokens, the rank, and a number for its room.
        cols: Their columns.
        of: Which routed rows.
        moved: What passes over memory take.
    """
    name, rank, number = where
    tokens = routing(of["routing"]).tokens_of(Interval(of["first"], of["last"]))
    hull = Interval(int(tokens[0]), int(tokens[-1]) + 1)
    layout = build.layout(name)
    replica = layout.replica(rank)
    tiles = layout.overlapping_tiles(hull, cols)
    if len(tiles) == 1 and layout.owner(tiles[0], replica) == rank:
        return build.tile(name, *tiles[0], replica).cut(hull, cols), False
    packed = len(tokens) < hull.size
    held = Interval(0, len(tokens)) if packed else hull
    whole = build.temporary(rank, name, held, cols, slot=("experts", name, number))
    for tile in tiles:
        source = build.tile(name, *tile, replica).cut(hull, cols)
        if not packed:
            moves.add(source.rank, rank, partial(build.get, source, whole.cut(source.rows, source.cols)))
            continue
        first, last = np.searchsorted(tokens, (source.rows.start, source.rows.stop)).tolist()
        if first < last:
            into = whole.cut(Interval(first, last), source.cols)
            key = ("packed", name, number, tile)
            moves.add(source.rank, rank, partial(_packed, build, source, into, key, of, moved))
    return whole, packed


def _packed(build: Builder, source: Slice, into: Slice, key: Hashable, of: Of, moved: _Passes) -> None:
    """Write that a rank packs what is needed of a tile and sends it."""
    piece = into
    if source.rank != into.rank:
        name = build.tensors[into.tensor].name
        piece = build.temporary(source.rank, name, into.rows, into.cols, slot=key)
    seconds = moved.seconds(source.rank, 2 * piece.elements, piece)
    build.map("pack_tokens", piece, source, seconds=seconds, **of)
    if piece != into:
        build.put(piece, into)


def combine(build: Builder, statement: Combine) -> None:
    """Write a combine; every replica of what it writes is complete afterwards."""
    moved, moves = _Passes(build), _Moves(build.ranks)
    added: list[tuple[Slice, Slice, str]] = []
    for number, (rank, tile, replica) in enumerate(tiles_by_rank(build.layout(statement.out))):
        target = build.tile(statement.out, *tile, replica)
        cols = Interval(0, 1) if statement.gates else target.cols
        of: Of = {"routing": statement.routing, "first": target.rows.start, "last": target.rows.stop}
        sources = [
            (source, _rows_for(statement, source.rows, target.rows))
            for source in _sources(build, statement.x, rank, cols)
        ]
        sources = [(source, count) for source, count in sources if count]
        spans = sorted({source.rows for source, _ in sources})
        if not sources:
            build.map("zero", target)
            continue
        total = {rows: _rows_for(statement, rows, target.rows) for rows in spans}
        alone = len(spans) == 1 and total[spans[0]] == target.rows.size and not statement.gates
        starts, base = dict[Interval, int](), 0
        for rows in spans:
            starts[rows] = base
            base += total[rows]
        if alone:
            starts, whole = {spans[0]: target.rows.start}, target
        else:
            whole = build.temporary(rank, statement.x, Interval(0, base), cols, slot=("combine", number))
        for source, count in sources:
            first = starts[source.rows]
            into = whole.cut(Interval(first, first + count), source.cols)
            key = ("combine", "sent", number, source.rows, source.cols)
            sent = partial(_sent, build, statement, source, into, key, of | {"base": first}, moved)
            moves.add(source.rank, rank, sent)
        if not alone:
            added.append((target, whole, "-".join(str(x) for rows in spans for x in rows)))
    moves.write()
    fn = "spread_gates" if statement.gates else "add_parts"
    for target, whole, edges in added:
        seconds = moved.seconds(target.rank, whole.elements + target.elements, target)
        build.map(fn, target, whole, seconds=seconds, routing=statement.routing, cuts=edges)


def _sent(
    build: Builder, statement: Combine, source: Slice, into: Slice, key: Hashable, of: Of, moved: _Passes
) -> None:
    """Write that a rank adds up its rows of a tile for some tokens and sends the sums."""
    piece = into
    if source.rank != into.rank:
        name = build.tensors[into.tensor].name
        piece = build.temporary(source.rank, name, into.rows, into.cols, slot=key)
    _add_up(build, statement, piece, source, of, moved)
    if piece != into:
        build.put(piece, into)


def _rows_for(statement: Combine, rows: Interval, tokens: Interval) -> int:
    """Return how many rows some tokens get from some routed rows."""
    known = statement.routed
    return len(known.rows_for(rows, tokens) if statement.gates else known.tokens_of(rows, tokens))


def _sources(build: Builder, name: str, rank: int, cols: Interval) -> Iterator[Slice]:
    """Yield the tiles of a tensor in some columns, of the replica that a rank is in."""
    layout = build.layout(name)
    replica = layout.replica(rank)
    for tile in layout.overlapping_tiles(Interval(0, layout.shape[0]), cols):
        piece = build.tile(name, *tile, replica)
        piece = piece.cut(piece.rows, cols)
        if piece.elements:
            yield piece


def _add_up(build: Builder, statement: Combine, piece: Slice, source: Slice, of: Of, moved: _Passes) -> None:
    """Write the sums of the rows of one tile for some tokens, or with gates these rows."""
    if statement.gates:
        seconds = moved.seconds(source.rank, 2 * piece.elements, piece)
        build.map("pick_rows", piece, source, seconds=seconds, **of)
        return
    reads = [source]
    if statement.scale:
        one = Interval(0, 1)
        reads.append(gathered(build, statement.scale, source.rank, source.rows, one, ("scale", source.rows)))
    count = len(statement.routed.rows_for(source.rows, Interval(of["first"], of["last"])))
    seconds = moved.seconds(source.rank, count * piece.cols.size + piece.elements, piece)
    build.map("add_weighted_rows" if statement.scale else "add_rows", piece, *reads, seconds=seconds, **of)


# Grouped multiplies ----------------------------------------------------------------------------------


class Job(NamedTuple):
    """What one rank multiplies for one replica of the product: parts that are one kernel.

    Attributes:
        rank: Who.
        replica: Of the product.
        parts: An expert each.
    """

    rank: int
    replica: int
    parts: tuple[Part, ...]


def grouped(build: Builder, statement: Grouped, again: bool) -> None:
    """Write a grouped multiply; every replica of what it writes is complete afterwards.

    Args:
        build: Where the actions go.
        statement: The multiply.
        again: Whether an earlier statement has written to its output, so that it is not zero.
    """
    _Multiplying(build, statement).write(again)


class _Multiplying:
    """A grouped multiply on the ranks of a builder."""

    def __init__(self, build: Builder, statement: Grouped) -> None:
        self.build, self.statement, self.known = build, statement, statement.routed
        self.names = statement.out, statement.a, statement.b
        shapes = {x: build.layout(x).shape for x in self.names}
        self.heights = tuple(statement.height(shapes, x) for x in self.names)
        self.sizes: dict[str, int] = {}
        for name, letters, height in zip(self.names, statement.letters, self.heights, strict=True):
            self.sizes[letters[1]] = shapes[name][1]
            if height:
                self.sizes[letters[0]] = height

    def write(self, again: bool) -> None:
        """Write it."""
        statement = self.statement
        jobs = min((self.jobs(x) for x in range(3) if self.able(x)), key=self.estimate)
        added = any(not self.is_whole(part) for job in jobs for part in job.parts)
        cleared = again and not statement.add
        out = self.build.layout(statement.out)
        if cleared and (added or "a" in statement.trans):
            for _, tile, replica in tiles_by_rank(out):
                self.build.map("zero", self.build.tile(statement.out, *tile, replica))
        plus = added or statement.add
        delivered: list[tuple[Slice, Slice]] = []
        for job in jobs:
            self._multiply(job, 1.0 if plus else 0.0, delivered)
        for piece, target in delivered:
            (self.build.accumulate if plus else self.build.put)(piece, target)

    def able(self, operand: int) -> bool:
        """Whether the owners of an operand can do it: each replica of the product has one of the operand."""
        layout = self.build.layout(self.names[operand])
        return layout.replicas % self.build.layout(self.statement.out).replicas == 0

    def full(self, letter: str, expert: int) -> Interval:
        """Return all of m, n or k for an expert."""
        if letter in self.sizes:
            return Interval(0, self.sizes[letter])
        return self.known.rows_of(expert)

    def is_whole(self, part: Part) -> bool:
        """Whether a part's sums are complete."""
        return part.k == self.full("k", part.expert)

    def jobs(self, operand: int) -> list[Job]:
        """Return who multiplies what if the owners of an operand, by number, do it."""
        name, letters, height = self.names[operand], self.statement.letters[operand], self.heights[operand]
        layout, out = self.build.layout(name), self.build.layout(self.statement.out)
        found = []
        for rank, tile, replica in tiles_by_rank(layout):
            if operand and replica >= out.replicas:
                continue  # others have all that is needed
            rows, cols = layout.tile_bounds(tile)
            parts = []
            for expert, span in self._by_expert(rows, height):
                given = {letters[0]: span, letters[1]: cols}
                part = Part(expert, *(given.get(x) or self.full(x, expert) for x in "mnk"))
                if part.m.size and part.n.size and part.k.size:
                    parts.append(part)
            if parts:
                found.append(Job(rank, replica, tuple(parts)))
        return found

    def _by_expert(self, rows: Interval, height: int) -> Iterator[tuple[int, Interval]]:
        """Yield the experts of some rows, and which rows: within the expert of weights, else of all."""
        if not height:
            for expert in self.known.experts_of(rows):
                yield expert, rows.intersect(self.known.rows_of(expert))
            return
        for expert in range(rows.start // height, -(-rows.stop // height)):
            its = rows.intersect(Interval(expert * height, (expert + 1) * height))
            yield expert, Interval(its.start - expert * height, its.stop - expert * height)

    def region(self, operand: int, part: Part) -> Region:
        """Return the rows and columns of an operand that a part is of."""
        letters = self.statement.letters[operand]
        cols: Interval = getattr(part, letters[1])
        return self.statement.rows(part, letters[0], self.heights[operand]), cols

    def estimate(self, jobs: Sequence[Job]) -> float:
        """Return about how long some jobs take: the rank with most to multiply and to move."""
        machine, ranks = self.build.machine, self.build.ranks
        flop, moved = np.zeros(ranks), np.zeros(ranks)
        item = self.build.tensors[self.build.number(self.statement.a)].itemsize
        for job in jobs:
            for part in job.parts:
                flop[job.rank] += 2.0 * part.m.size * part.n.size * part.k.size
                for operand in range(3):
                    moved[job.rank] += item * self._missing(operand, job, self.region(operand, part))
        dtype = self.build.tensors[self.build.number(self.statement.a)].dtype
        return float((flop / machine.peak(dtype) + moved / self._bandwidth()).max())

    def _bandwidth(self) -> float:
        return float(self.build.machine.link_bandwidth.min(initial=self.build.machine.work_bandwidth))

    def _missing(self, operand: int, job: Job, region: Region) -> int:
        """Return the elements of an operand's rows and columns that a job's rank does not own."""
        layout = self.build.layout(self.names[operand])
        replica = layout.replica(job.rank) if operand else job.replica
        return sum(
            _elements(layout, tile, region)
            for tile in layout.overlapping_tiles(*region)
            if layout.owner(tile, replica) != job.rank
        )

    def _multiply(self, job: Job, beta: float, delivered: list[tuple[Slice, Slice]]) -> None:
        """Write the gemms of a job; what is to be delivered afterwards is noted."""
        build, statement = self.build, self.statement
        for part, seconds in zip(job.parts, self._seconds(job), strict=True):
            a, b = (
                gathered(
                    build, self.names[x], job.rank, *self.region(x, part), ("grouped", x, part.expert % 2)
                )
                for x in (1, 2)
            )
            rows, cols = self.region(0, part)
            out = build.layout(statement.out)
            tiles = out.overlapping_tiles(rows, cols)
            targets = [build.tile(statement.out, *x, job.replica).cut(rows, cols) for x in tiles]
            targets = [x for x in targets if x.elements]
            if len(targets) == 1 and targets[0].rank == job.rank:
                build.gemm(targets[0], a, b, beta=beta, trans=statement.trans, seconds=float(seconds))
                continue
            piece = build.temporary(job.rank, statement.out, rows, cols)
            build.gemm(piece, a, b, beta=0.0, trans=statement.trans, seconds=float(seconds))
            delivered += [(piece.cut(x.rows, x.cols), x) for x in targets]

    def _seconds(self, job: Job) -> Sequence[float]:
        """Return the seconds of each part of a job's kernel, by its routed rows."""
        build = self.build
        tensors = [build.tensors[build.number(x)] for x in self.names]
        pace = cost.pace_of(build.machine, np.array(job.rank), build.ranks)
        first = job.parts[0]
        if "a" in self.statement.trans:
            rows = np.array([x.k.size for x in job.parts])
            n, k = first.n.size, max(x.m.size for x in job.parts)
        else:
            rows = np.array([x.m.size for x in job.parts])
            n, k = first.n.size, first.k.size
        took = cost.grouped_seconds(build.machine, tensors[1].dtype, rows, n, k, tensors[0].itemsize, pace)
        return [float(x) for x in took]


def _elements(layout: Layout, tile: tuple[int, int], region: Region) -> int:
    rows, cols = layout.tile_bounds(tile)
    return rows.intersect(region[0]).size * cols.intersect(region[1]).size
