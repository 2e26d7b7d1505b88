"""Fused attention of a chain over ranks: by heads, by tokens with keys and values gathered, or round a ring.

Each owner of a tile of the result attends for the queries of that tile. *Gathered*, it gets all keys and
values that these queries see, then attends once. In a *ring* every rank starts with the keys it owns and
hands them to its neighbour, so that it attends to what has arrived while the next arrives; the softmax goes
on where it stopped, and the gradients by keys and values travel with the keys. By heads, all that a rank
needs is its own.

Source: Liu et al. (2023), Ring Attention; Brandon et al. (2023), Striped Attention, for balance under a mask.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from umm import cost
from umm.algorithms.chains.pieces import gathered, tiles_by_rank
from umm.algorithms.collectives.collective import Fastest, fastest_of
from umm.interval import Interval
from umm.machines import Machine
from umm.program import Attention, AttentionGrad, Chain
from umm.program.functions.attention import Heads
from umm.program.tensors import Tensor
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

Fused = Attention | AttentionGrad
DQ, DK, DV = 0.6, 0.2, 0.2
"""Shares of the one kernel of the gradients for its three results.

Of its five products the scores and their gradient, which all need, count to the first.
"""


class Job(NamedTuple):
    """The queries of a tile that a rank attends for.

    Attributes:
        rank: Who attends.
        rows: The queries.
        cols: Their columns, whole heads.
        own: Those of heads that start in the tile; of a cut head, one job has the gradients by keys.
        target: The tile of the result.
        replica: Which replica of the result it is of.
    """

    rank: int
    rows: Interval
    cols: Interval
    own: Interval
    target: Slice
    replica: int


def attention(build: Builder, statement: Fused, written: set[str]) -> None:
    """Write fused attention or its gradients; every replica of what it writes is complete afterwards.

    Args:
        build: Where the actions go.
        statement: What is attended to.
        written: Tensors that earlier statements have written, so that they are not zero.
    """
    writing = _Forward if isinstance(statement, Attention) else _Backward
    writing(build, statement, written).write()


class _Writing:
    """What forward and backward share: who attends for what, and how keys come."""

    def __init__(self, build: Builder, statement: Fused, written: set[str]) -> None:
        self.build, self.statement, self.written = build, statement, written
        self.tensors = {tensor.name: tensor for tensor in build.tensors}
        self.heads = statement.heads(self.tensors)
        self.jobs = list(self._jobs(statement.out))
        self.keys = statement.k, statement.v

    def _jobs(self, name: str) -> Iterator[Job]:
        for rank, tile, replica in tiles_by_rank(self.build.layout(name)):
            target, head = self.build.tile(name, *tile, replica), self.heads.head
            start, stop = target.cols
            above = -(-stop // head) * head
            whole, own = Interval(start // head * head, above), Interval(-(-start // head) * head, above)
            yield Job(rank, target.rows, whole, own, target, replica)

    def ring(self) -> "Ring | None":
        """Return the rings along which keys go; None where they are gathered instead."""
        if self.statement.way == "gather":
            return None
        ring = rings(self.build, self.statement, self.jobs, self.heads)
        if ring is None or self.statement.way == "ring":
            return ring
        laid = tuple(self.tensors[x] for x in dict.fromkeys((*self.statement.outs, *self.statement.reads)))
        cuts = tuple(x.layout.cuts for x in laid)
        return ring if fastest_way(self.statement, laid, cuts, self.build.machine).name == "ring" else None

    def at(self, name: str, job: Job, cols: Interval, what: str) -> Slice:
        """Return some columns of the queries of a job in its rank's memory."""
        return gathered(self.build, name, job.rank, job.rows, cols, ("attention", what))

    def write_map(
        self, fn: str, heads: Heads, out: Slice, reads: Sequence[Slice], seconds: float | None
    ) -> None:
        """Write one function of attention, in so many seconds."""
        of: dict[str, Any] = {**heads._asdict(), "causal": int(heads.causal)}
        self.build.map(fn, out, *reads, seconds=seconds, **of)

    def seconds(self, heads: Heads, job: Job, keys: Interval, backward: bool) -> float:
        """Return how long a kernel attends for the queries of a job to some keys."""
        machine, tensor = self.build.machine, self.tensors[self.statement.q]
        pace = cost.pace_of(machine, np.array(job.rank), tensor.layout.ranks)
        return cost.attention_seconds(
            machine, tensor.dtype, heads, job.rows, job.cols.size // heads.head, keys, backward, pace
        )

    def gathered_keys(self, names: Sequence[str], heads: Heads) -> dict[tuple[int, Interval], list[Slice]]:
        """Return for each rank and columns of keys all of them that its queries see, got once.

        The queries of a rank may lie apart, as two parts of a sequence do that share the work of a mask.
        """
        hulls: dict[tuple[int, Interval], Interval] = {}
        for job in self.jobs:
            place, seen = (job.rank, heads.of_keys(job.cols)), heads.seen(job.rows)
            hulls[place] = _hull((hulls.get(place, seen), seen))
        return {
            (rank, cols): [
                gathered(self.build, name, rank, hull, cols, ("attention", name, rank, cols))
                for name in names
            ]
            for (rank, cols), hull in hulls.items()
        }


class _Forward(_Writing):
    """Attention forward."""

    statement: Attention

    def write(self) -> None:
        """Write it."""
        one, cache = self.statement, self.statement.cache
        self._queries: dict[int, Slice] = {}
        passes = [(cache, one.heads(self.tensors, cache[0]))] if cache else []
        passes.append(((one.k, one.v), self.heads))
        ring = None if cache else self.ring()
        states = [self._state(job) for job in self.jobs]
        begun: set[int] = set()
        if ring:
            for _, pieces in ring.steps(self.build, (one.k, one.v)):
                for number, job in enumerate(self.jobs):
                    for k, v in pieces.get(job.rank, ()):
                        self._attend(number, states[number], self.heads, k, v, begun)
        for names, heads in [] if ring else passes:
            held = self.gathered_keys(names, heads)
            for number, job in enumerate(self.jobs):
                k, v = held[job.rank, heads.of_keys(job.cols)]
                self._attend(number, states[number], heads, k, v, begun)
        for job, (out, lse) in zip(self.jobs, states, strict=True):
            self._deliver(job, out, lse)

    def _state(self, job: Job) -> tuple[Slice, Slice]:
        """Return where a job's result and its logarithms become: their own tiles if it has just these."""
        target, rows, cols = job.target, job.rows, self.heads.of_rows(job.cols)
        out = target
        if target.cols != job.cols:
            out = self.build.temporary(job.rank, self.statement.out, rows, job.cols)
        return out, self._own_rows(job, rows, cols)

    def _own_rows(self, job: Job, rows: Interval, cols: Interval) -> Slice:
        name = self.statement.lse
        layout = self.build.layout(name)
        tiles = layout.overlapping_tiles(rows, cols)
        replica = layout.replica(job.rank)
        whole = job.cols == job.target.cols  # of a cut head several jobs of a rank have the logarithms
        if whole and len(tiles) == 1 and layout.owner(tiles[0], replica) == job.rank:
            return self.build.tile(name, *tiles[0], replica).cut(rows, cols)
        return self.build.temporary(job.rank, name, rows, cols)

    def _attend(
        self, number: int, state: tuple[Slice, Slice], heads: Heads, k: Slice, v: Slice, begun: set[int]
    ) -> None:
        """Write that a job attends to some keys, if it sees any; afterwards it has begun."""
        job, (out, lse) = self.jobs[number], state
        seen = heads.seen(job.rows).intersect(k.rows)
        if not seen.size or not heads.pairs(job.rows, seen):
            return
        k, v = k.cut(seen, k.cols), v.cut(seen, v.cols)
        if number not in self._queries:
            self._queries[number] = self.at(self.statement.q, job, job.cols, f"q {number}")
        q = self._queries[number]
        more, seconds = number in begun, self.seconds(heads, job, seen, backward=False)
        if more:
            self.write_map("attend_more", heads, out, (q, k, v, out, lse), seconds)
            self.write_map("attend_lse_more", heads, lse, (q, k, lse), 0.0)  # the same kernel writes it
        else:
            self.write_map("attend", heads, out, (q, k, v), seconds)
            self.write_map("attend_lse", heads, lse, (q, k), 0.0)
        begun.add(number)

    def _deliver(self, job: Job, out: Slice, lse: Slice) -> None:
        """Put what is not where it belongs there: parts of cut heads, logarithms that others own."""
        if out != job.target:
            self.build.get(out.cut(job.target.rows, job.target.cols), job.target)
        layout = self.build.layout(self.statement.lse)
        for replica, owners in enumerate(layout.replica_owners):
            if self.build.layout(self.statement.out).replica(int(owners[0])) != job.replica:
                continue
            for tile in layout.overlapping_tiles(lse.rows, lse.cols):
                target = self.build.tile(self.statement.lse, *tile, replica)
                piece = target.cut(lse.rows, lse.cols)
                if target.buffer != lse.buffer and piece.elements:
                    self.build.put(lse.cut(piece.rows, piece.cols), piece)


class _Backward(_Writing):
    """The gradients of attention."""

    statement: AttentionGrad

    def write(self) -> None:
        """Write them."""
        self._rows: dict[int, list[Slice]] = {}
        ring = self.ring()
        states = [self._state(job) for job in self.jobs]
        begun: set[int] = set()
        if ring:
            self._round(ring, states, begun)
        else:
            self._at_once(states, begun)
        for job, out in zip(self.jobs, states, strict=True):
            if out != job.target:
                self.build.get(out.cut(job.target.rows, job.target.cols), job.target)

    def _state(self, job: Job) -> Slice:
        if job.target.cols == job.cols:
            return job.target
        return self.build.temporary(job.rank, self.statement.out, job.rows, job.cols)

    def _queries(self, number: int, cols: Interval) -> list[Slice]:
        """Return columns of a job's queries, of its result's gradient, its logarithms, and their products."""
        job, one, rows = self.jobs[number], self.statement, self.heads.of_rows(self.jobs[number].cols)
        if number not in self._rows:
            q, o, do = (self.at(x, job, job.cols, f"{x} {number}") for x in (one.q, one.o, one.do))
            lse = self.at(one.lse, job, rows, f"lse {number}")
            dot = self.build.temporary(job.rank, one.lse, job.rows, rows, slot=("attention", "dot", number))
            self.write_map("attend_dot", self.heads, dot, (o, do), None)
            self._rows[number] = [q, do, lse, dot]
        some = self.heads.of_rows(cols)
        return [x.cut(job.rows, cols if i < 2 else some) for i, x in enumerate(self._rows[number])]

    def _by_queries(self, number: int, out: Slice, k: Slice, v: Slice, begun: set[int]) -> float:
        """Write the gradient by the queries of a job through some keys; return the whole kernel's seconds."""
        job = self.jobs[number]
        q, do, lse, dot = self._queries(number, job.cols)
        took = self.seconds(self.heads, job, k.rows, backward=True)
        more = number in begun
        self.write_map(
            "attend_dq_more" if more else "attend_dq", self.heads, out,
            (q, k, v, do, lse, dot, *([out] if more else [])), DQ * took,
        )  # fmt: skip
        begun.add(number)
        return took

    def _by_keys(
        self, number: int, into: Sequence[Slice], k: Slice, v: Slice, took: float, more: bool
    ) -> None:
        """Write the gradients by keys and values through a job's queries, of heads that start in its tile."""
        q, do, lse, dot = self._queries(number, self.jobs[number].own)
        for fn, out, reads, share in (
            ("attend_dk", into[0], (q, k, v, do, lse, dot), DK),
            ("attend_dv", into[1], (q, k, do, lse), DV),
        ):
            name, before = (f"{fn}_more", (out,)) if more else (fn, ())
            self.write_map(name, self.heads, out, (*reads, *before), share * took)

    def _seen(self, number: int, keys: Interval) -> Interval:
        job = self.jobs[number]
        seen = self.heads.seen(job.rows).intersect(keys)
        return seen if seen.size and self.heads.pairs(job.rows, seen) else Interval(keys.start, keys.start)

    def _at_once(self, states: Sequence[Slice], begun: set[int]) -> None:
        """Write all gradients with the keys gathered; parts by keys are added where they belong."""
        one, heads = self.statement, self.heads
        held = self.gathered_keys((one.k, one.v), heads)
        parts: dict[tuple[int, int, Interval], list[int]] = {}
        for number, job in enumerate(self.jobs):
            if job.own.size:
                parts.setdefault((job.replica, job.rank, heads.of_keys(job.own)), []).append(number)
        alone = self._alone(parts)
        if not alone:
            self._clear()
        took = []
        for number, job in enumerate(self.jobs):
            k, v = (x.cut(heads.seen(job.rows), x.cols) for x in held[job.rank, heads.of_keys(job.cols)])
            took.append(self._by_queries(number, states[number], k, v, begun))
        for (replica, rank, cols), numbers in parts.items():
            hull = _hull(heads.seen(self.jobs[x].rows) for x in numbers)
            into = [
                (self._target(name, rank, hull, cols) if alone else None)
                or self.build.temporary(rank, name, hull, cols, slot=("attention", name, rank, cols))
                for name in (one.dk, one.dv)
            ]
            for place, number in enumerate(numbers):
                job = self.jobs[number]
                keys = heads.seen(job.rows) if place else hull  # the first one writes all, zero where unseen
                k, v = (x.cut(keys, cols) for x in held[rank, heads.of_keys(job.cols)])
                spans = [x.cut(keys, cols) for x in into]
                self._by_keys(number, spans, k, v, took[number], more=place > 0)
            if not alone:
                self._add(replica, into)

    def _alone(self, parts: dict[tuple[int, int, Interval], list[int]]) -> bool:
        """Whether each part's keys are a tile of its rank with all queries that see it, and none is left."""
        one, heads = self.statement, self.heads
        layout = self.build.layout(one.dk)
        if layout != self.build.layout(one.dv) or len(parts) != sum(1 for _ in tiles_by_rank(layout)):
            return False
        for (_, rank, cols), numbers in parts.items():
            jobs = [self.jobs[x] for x in numbers]
            hull = _hull(heads.seen(job.rows) for job in jobs)
            queries = sum(job.rows.size * job.own.size for job in jobs)
            if self._target(one.dk, rank, hull, cols) is None or hull.size % heads.keys:
                return False
            if queries != hull.size // heads.keys * heads.queries * cols.size * heads.share:
                return False
        return True

    def _target(self, name: str, rank: int, rows: Interval, cols: Interval) -> Slice | None:
        """Return the tile of a tensor with just these rows and columns, if a rank owns it."""
        layout = self.build.layout(name)
        for tile in layout.overlapping_tiles(rows, cols):
            replica = layout.replica(rank)
            target = self.build.tile(name, *tile, replica)
            if (target.rank, target.rows, target.cols) == (rank, rows, cols):
                return target
        return None

    def _clear(self) -> None:
        """Set to zero what is added to, where something was written to it before."""
        for name in (self.statement.dk, self.statement.dv):
            for _, tile, replica in tiles_by_rank(self.build.layout(name)):
                if name in self.written:
                    self.build.map("zero", self.build.tile(name, *tile, replica))

    def _add(self, replica: int, parts: Sequence[Slice]) -> None:
        """Add parts to the tiles of each replica of the gradients that takes them from this replica."""
        out = self.build.layout(self.statement.out)
        for name, part in zip((self.statement.dk, self.statement.dv), parts, strict=True):
            layout = self.build.layout(name)
            for number, owners in enumerate(layout.replica_owners):
                if out.replica(int(owners[0])) != replica:
                    continue
                for tile in layout.overlapping_tiles(part.rows, part.cols):
                    target = self.build.tile(name, *tile, number).cut(part.rows, part.cols)
                    self.build.accumulate(part.cut(target.rows, target.cols), target)

    def _round(self, ring: "Ring", states: Sequence[Slice], begun: set[int]) -> None:
        """Write all gradients with keys going round, and the gradients by keys and values behind them."""
        one, build = self.statement, self.build
        travelling: dict[tuple[int, int], list[Slice]] = {}  # by owner and tile: where its gradients are now
        for step, pieces in ring.steps(build, (one.k, one.v)):
            arrived: dict[tuple[int, int], list[Slice]] = {}
            for rank, held in pieces.items():
                owner = ring.origin(rank, step)
                for place, (k, v) in enumerate(held):
                    now = travelling.pop((owner, place), None)
                    here = [
                        build.temporary(rank, name, k.rows, k.cols, slot=("ring", name, place, step % 2))
                        for name in (one.dk, one.dv)
                    ]
                    for there, into in zip(now or (), here, strict=False):
                        build.put(there, into)
                    more = now is not None
                    for number, job in enumerate(self.jobs):
                        mine = self._seen(number, k.rows) if job.rank == rank else Interval(0, 0)
                        if not mine.size:
                            continue
                        seen = k.cut(mine, k.cols), v.cut(mine, v.cols)
                        took = self._by_queries(number, states[number], *seen, begun)
                        if more:
                            some = [x.cut(mine, k.cols) for x in here]
                            self._by_keys(number, some, *seen, took, more)
                        else:  # the first one writes all keys, zero where nothing is seen
                            self._by_keys(number, here, k, v, took, more)
                        more = True
                    if more:
                        arrived[owner, place] = here
            travelling |= arrived
        for (owner, place), parts in travelling.items():
            for name, part in zip((one.dk, one.dv), parts, strict=True):
                tile = ring.tiles[owner][place]
                build.put(part, build.tile(name, *tile, build.layout(name).replica(owner)))
        for name in (one.dk, one.dv):
            self._rest(name, ring, set(travelling))

    def _rest(self, name: str, ring: "Ring", done: set[tuple[int, int]]) -> None:
        """Set to zero the gradients of keys that no query saw, where something was written before."""
        for owner, tiles in ring.tiles.items():
            for place, tile in enumerate(tiles):
                if (owner, place) not in done:
                    replica = self.build.layout(name).replica(owner)
                    self.build.map("zero", self.build.tile(name, *tile, replica))


@lru_cache(maxsize=256)
def fastest_way(statement: Fused, tensors: tuple[Tensor, ...], cuts: Any, machine: Machine) -> Fastest:
    """Return the faster of gathering keys and of handing them round, by simulation of the statement alone.

    Args:
        statement: What is attended to.
        tensors: Its tensors, laid out so that keys can go round.
        cuts: How they are cut, for equal layouts may have different empty tiles.
        machine: Where.
    """
    written = [replace(x, role="output" if x.name in statement.outs else "input") for x in tensors]
    made = {}
    for way in ("gather", "ring"):
        one = replace(statement, way=way)
        build = Builder(way, Chain(way, tuple(written), (one,), tensors[0].layout.ranks), machine)
        attention(build, one, set())
        made[way] = build.schedule()
    return fastest_of(made)


def _hull(spans: Iterable[Interval]) -> Interval:
    """Return the smallest range that holds some."""
    starts, stops = zip(*spans, strict=True)
    return Interval(min(starts), max(stops))


class Ring(NamedTuple):
    """Ranks that hand keys round: the owners of the rows of some columns, in their order.

    Attributes:
        ranks: By each rank the ring it is in.
        tiles: By rank the tiles of the keys that it owns.
    """

    ranks: dict[int, tuple[int, ...]]
    tiles: dict[int, list[tuple[int, int]]]

    def origin(self, rank: int, step: int) -> int:
        """Return the owner of the keys that a rank has at a step."""
        ring = self.ranks[rank]
        return ring[(ring.index(rank) - step) % len(ring)]

    def steps(
        self, build: Builder, names: Sequence[str]
    ) -> Iterator[tuple[int, dict[int, list[tuple[Slice, ...]]]]]:
        """Yield each step with the slices of keys and values that each rank has at it.

        What a rank has is put to its neighbour before anything is computed with it, into the one of two
        places that was read at the step before.
        """
        now = {
            rank: [
                tuple(build.tile(x, *tile, build.layout(x).replica(rank)) for x in names) for tile in tiles
            ]
            for rank, tiles in self.tiles.items()
        }
        for step in range(max(map(len, self.ranks.values()))):
            following: dict[int, list[tuple[Slice, ...]]] = {}
            for rank, held in now.items():
                ring = self.ranks[rank]
                if step + 1 == len(ring):
                    continue
                neighbour = ring[(ring.index(rank) + 1) % len(ring)]
                following[neighbour] = []
                for place, pieces in enumerate(held):
                    into = tuple(
                        build.temporary(neighbour, x, piece.rows, piece.cols, ("ring", x, place, step % 2))
                        for x, piece in zip(names, pieces, strict=True)
                    )
                    for source, target in zip(pieces, into, strict=True):
                        build.put(source, target)
                    following[neighbour].append(into)
            yield step, now
            now = following


def rings(build: Builder, statement: Fused, jobs: Sequence[Job], heads: Heads) -> Ring | None:
    """Return the rings along which keys can go; None where each rank does not own its part of what it needs.

    They can where keys and values lie alike, every rank's queries are those of a replica of its own, and the
    columns of its keys are just those of its queries' heads.
    """
    layout = build.layout(statement.k)
    names = {statement.v} | ({statement.dk, statement.dv} if isinstance(statement, AttentionGrad) else set())
    others = [build.layout(x) for x in names]
    if any((x, x.cuts) != (layout, layout.cuts) for x in others) or not _same_ranks(build, statement):
        return None
    tiles: dict[int, list[tuple[int, int]]] = {}
    by_columns: dict[tuple[int, int], list[int]] = {}
    for rank, tile, replica in tiles_by_rank(layout):
        tiles.setdefault(rank, []).append(tile)
        members = by_columns.setdefault((replica, tile[1]), [])
        if rank not in members:
            members.append(rank)
    found = {rank: tuple(members) for members in by_columns.values() for rank in members}
    if len(found) < len({job.rank for job in jobs} | set(found)) or max(map(len, found.values())) < 2:
        return None
    for job in jobs:
        columns = [layout.tile_bounds(tile)[1] for tile in tiles[job.rank]]
        if job.cols != job.target.cols or any(x != heads.of_keys(job.cols) for x in columns):
            return None
        needed = heads.seen(job.rows)
        if any(layout.owner(x, layout.replica(job.rank)) not in found[job.rank]
               for x in layout.overlapping_tiles(needed, columns[0])):  # fmt: skip
            return None
    return Ring(found, tiles)


def _same_ranks(build: Builder, statement: Fused) -> bool:
    """Whether each replica of keys is at the ranks of one of queries, so that these are all that see it."""
    keys, queries = build.layout(statement.k), build.layout(statement.out)
    return bool((keys.replica_of_rank == queries.replica_of_rank).all())
