"""Fused attention of a chain over ranks: by heads, by tokens with keys and values gathered, or round a ring.

Each owner of a tile of the result attends for the queries of that tile. *Gathered*, it gets all keys and
values that these queries see, then attends once. In a *ring* every rank starts with the keys it owns and
hands them to its neighbour, so that it attends to what has arrived while the next arrives. Each step is a
kernel of its own, whose result is merged into that of the steps before, which is kept in float32; so are
gradients by queries, and those by keys and values that travel with the keys. By heads, all that a rank needs
is its own.

Source: Liu et al. (2023), Ring Attention; Brandon et al. (2023), Striped Attention, for balance under a mask.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from umm import cost
from umm.executor import executor
from umm.interval import Interval
from umm.machines import Machine
from umm.plans.collectives.way import room_for
from umm.plans.movement.gathers import by_level
from umm.plans.movement.sums import add_up_at
from umm.plans.statements.lowering import Context, write
from umm.plans.statements.pieces import (
    add_at_owners,
    clear,
    gather_together,
    gathered,
    own_part,
    pieces_by_owner,
    to_owners,
)
from umm.program import Attention, AttentionGrad, Chain
from umm.program.functions.attention import Heads
from umm.program.statements.sparse import Sparse
from umm.program.tensors import Tensor
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

Fused = Attention | AttentionGrad
KEYS = ("attention", "all")  # the pool slots of keys that ranks of several nodes gather together
FLOAT32 = 4
"""Bytes of an element of partial results that a ring keeps from step to step.

Source: Zhu (2024), ring-flash-attention, update_out_and_lse and the backward pass.
"""
DQ, DK, DV = 0.6, 0.2, 0.2
"""Shares of the one kernel of the gradients for its three results.

Of its five products the scores and their gradient, which all need, count to the first.
"""


class Job(NamedTuple):
    """The queries of a tile that a rank attends for."""

    rank: int  # who attends
    rows: Interval  # the queries
    cols: Interval  # their columns, whole heads
    wide: Interval  # the columns of the result, or of its gradient by queries, whole heads too
    own: Interval  # those of heads that start in the tile; of a cut head, one job has the gradients by keys
    target: Slice  # the tile of the result
    replica: int  # which replica of the result it is of


@write.register
def _(statement: Attention | AttentionGrad, build: Builder, context: Context) -> None:
    """Write fused attention, or its gradients."""
    _write(build, statement, context.written)


def _write(
    build: Builder, statement: Fused, written: Collection[str], ranks: Collection[int] | None = None
) -> None:
    """Write fused attention or its gradients, of all ranks or of some."""
    # statement: what is attended to. written: tensors that earlier statements have written, so that they are
    # not zero. ranks: whose part is written, who need no keys of others; all if None.
    writing = _Forward if isinstance(statement, Attention) else _Backward
    writing(build, statement, written, ranks).write()


class Queries:
    """Common to forward and backward: the jobs of each rank, and how keys reach it."""

    def __init__(
        self,
        build: Builder,
        statement: Fused | Sparse,
        written: Collection[str],
        ranks: Collection[int] | None = None,
    ) -> None:
        self.build, self.written, self.ranks = build, written, ranks
        self.statement = statement
        self.tensors = {tensor.name: tensor for tensor in build.tensors}
        self.heads = statement.heads(self.tensors)
        self.jobs = list(self._jobs())

    def filled(self, name: str) -> Iterator[tuple[int, tuple[int, int], int]]:
        """Yield owner, place in the grid and replica of the tiles of a tensor at the ranks written for."""
        for rank, tile, replica in self.build.layout(name).filled():
            if self.ranks is None or rank in self.ranks:
                yield rank, tile, replica

    def _jobs(self) -> Iterator[Job]:
        name, head = self.statement.out, self.heads.head
        for rank, tile, replica in self.filled(name):
            target = self.build.tile(name, *tile, replica)
            unit = head if self.statement.gives_queries else self.heads.values
            start, stop = target.cols
            # Kernels work on whole heads: round the tile's columns outwards. A head belongs to the tile in
            # which it starts, so that only one job makes its gradients by keys.
            first, above = start // unit, -(-stop // unit)
            cols, wide = (Interval(first * width, above * width) for width in (head, unit))
            starting = Interval(-(-start // unit) * head, above * head)
            yield Job(rank, target.rows, cols, wide, starting, target, replica)

    def ring(self) -> "Ring | None":
        """Return the rings along which keys go; None where they are gathered instead."""
        assert not isinstance(self.statement, Sparse)
        if self.statement.way == "gather" or self.statement.rotary or self.heads.alike:
            return None
        ring = rings(self.build, self.statement, self.jobs, self.heads)
        if ring is not None and self.ranks is not None:
            ring = ring.of(self.ranks)
        if ring is None or self.statement.way == "ring":
            return ring
        # Only tensors that the statement touches, or the cached decision would depend on the rest of the
        # chain.
        laid = tuple(self.tensors[x] for x in dict.fromkeys((*self.statement.outs, *self.statement.reads)))
        cuts = tuple(x.layout.cuts for x in laid)
        return ring if goes_round(self.statement, laid, cuts, self.build.machine) else None

    def at(self, name: str, job: Job, cols: Interval, what: str) -> Slice:
        """Return some columns of the queries of a job in its rank's memory."""
        return gathered(self.build, name, job.rank, job.rows, cols, ("attention", what))

    def write_map(
        self,
        fn: str,
        heads: Heads,
        out: Slice,
        reads: Sequence[Slice],
        seconds: float | None,
        rotary: Sequence[Slice] = (),
        before: Sequence[Slice] = (),
    ) -> None:
        """Write one function of attention, in so many seconds; it goes on where there is something before."""
        name = fn + "_rotary" * bool(rotary) + "_more" * bool(before)
        self.build.map(name, out, *reads, *rotary, *before, seconds=seconds, **heads.parameters)

    def turned(self, job: Job, number: int) -> list[Slice]:
        """Return the rotary columns of a job's queries in its rank's memory; none if there are no such."""
        return [
            self.at(x, job, self.heads.of_rotary(job.cols), f"{x} {number}")
            for x in self.statement.rotary[:1]
        ]

    def seconds(self, heads: Heads, job: Job, keys: Interval, backward: bool, cached: str = "") -> float:
        """Return how long a kernel attends for the queries of a job to some keys, cached in a type."""
        machine, tensor = self.build.machine, self.tensors[self.statement.q]
        pace = cost.pace_of(machine, np.array(job.rank), tensor.layout.ranks)
        return cost.attention_seconds(
            machine, tensor.dtype, heads, job.rows, job.cols.size // heads.head, keys, backward, pace,
            cached=cached,
        )  # fmt: skip

    def seen_of(self, job: Job, keys: Interval) -> Interval:
        """Return those of some keys that a job's queries see, from the first to the last; none if none is."""
        seen = self.heads.seen(job.rows).intersect(keys)
        return seen if seen.size and self.heads.pairs(job.rows, seen) else Interval(keys.start, keys.start)

    def least_seconds(self, ring: "Ring") -> float:
        """Return a lower bound on keys going round: the kernels of one rank, which follow one another."""
        backward, layout = isinstance(self.statement, AttentionGrad), self.build.layout(self.statement.k)
        work = dict.fromkeys(ring.ranks, 0.0)
        for job in self.jobs:
            for tile in (x for owner in ring.ranks[job.rank] for x in ring.tiles[owner]):
                seen = self.seen_of(job, layout.tile_bounds(tile)[0])
                work[job.rank] += self.seconds(self.heads, job, seen, backward) if seen.size else 0.0
        return max(work.values())

    def merge(self, fn: str, out: Slice, reads: Sequence[Slice], **parameters: Any) -> None:
        """Write that the result of a ring's step is merged into a sum of float32: read, and written again."""
        machine, item = self.build.machine, self.build.tensors[out.tensor].itemsize
        seconds = machine.launch_s + out.elements * (item + 2 * FLOAT32) / machine.pass_bandwidth
        self.build.map(fn, out, *reads, seconds=seconds, **parameters)

    def of_step(self, out: Slice) -> Slice:
        """Return room for the result of a ring's step, which is merged into a slice."""
        return room_for(self.build, out, out.rank, ("ring", "step", self.build.tensors[out.tensor].name))

    def becoming(self, name: str, job: Job, cols: Interval) -> Slice:
        """Return where some columns of a job's queries become: in a tile of its rank if it has just these."""
        uncut = job.wide == job.target.cols  # of a cut head several jobs of a rank have the logarithms
        owned = own_part(self.build, name, job.rank, job.rows, cols) if uncut else None
        return owned or self.build.temporary(job.rank, name, job.rows, cols)

    def deliver(self, name: str, job: Job, became: Slice) -> None:
        """Put columns of a job's queries to their owners, where these are not where they became."""
        out = self.build.layout(self.statement.out)
        for piece, target in to_owners(self.build, out, job.replica, name, became):
            if target.buffer != became.buffer:
                self.build.put(piece, target)

    def room_of(self, job: Job) -> Slice:
        """Return where a job's result becomes: in its tile, or beside where heads are cut."""
        if job.target.cols == job.wide:
            return job.target
        return self.build.temporary(job.rank, self.statement.out, job.rows, job.wide)

    def keep(self, job: Job, out: Slice) -> None:
        """Put the columns of a tile into it, where its result became beside."""
        if out != job.target:  # a part of cut heads
            self.build.get(out.cut(job.target.rows, job.target.cols), job.target)

    def clear(self, names: Sequence[str]) -> None:
        """Set sums to zero where something was written before."""
        for name in names:
            if name in self.written:
                clear(self.build, name)

    def add(self, replica: int, names: Sequence[str], parts: Sequence[Slice]) -> None:
        """Add parts to the tiles of each replica of the gradients that takes them from this replica."""
        for name, part in zip(names, parts, strict=True):
            add_at_owners(self.build, self.build.layout(self.statement.out), replica, name, part)

    def gathered_keys(self, names: Sequence[str], heads: Heads) -> dict[tuple[int, Interval], list[Slice]]:
        """Return for each rank and columns of keys all of them that its queries see, got once.

        The queries of a rank may lie apart, as two parts of a sequence do that share the work of a mask.

        Args:
            names: Keys and values, perhaps one tensor; then rotary columns of keys, if there are such.
        """
        hulls: dict[tuple[int, Interval], Interval] = {}
        for job in self.jobs:
            # One fetch per rank and columns for all its jobs: the hull may hold rows that none of them sees,
            # but every row comes once.
            place, seen = (job.rank, heads.of_keys(job.cols)), heads.seen(job.rows)
            hulls[place] = _hull((hulls.get(place, seen), seen))
        result, got = {}, dict[tuple[str, int, Interval, Interval], Slice]()
        for ranks, cols, hull in [*self._between_nodes(names[:2], hulls)]:
            hulls |= {(rank, cols): hull for rank in ranks}
            for name, its in self.columns(names, cols).items():
                into = {x: self.build.temporary(x, name, hull, its, (*KEYS, name, its)) for x in ranks}
                replica = self.build.layout(name).replica(ranks[0])
                gather_together(
                    self.build, ranks, pieces_by_owner(self.build, name, replica, hull, its), into
                )
                got |= {(name, rank, its, hull): piece for rank, piece in into.items()}
        for (rank, cols), hull in hulls.items():
            pieces = []
            columns = self.columns(names, cols)
            for number, name in enumerate(names):
                its = columns[name] if number < 2 else Interval(0, heads.rotary)
                # Keys and values may be one tensor, as in latent attention; then the second finds the first
                # one's copy.
                key = name, rank, its, hull
                if key not in got:
                    slot = ("attention", name, rank, its, *(hull if number == 2 else ()))
                    got[key] = gathered(self.build, name, rank, hull, its, slot)
                pieces.append(got[key])
            result[rank, cols] = pieces
        return result

    def columns(self, names: Sequence[str], cols: Interval) -> dict[str, Interval]:
        """Return the columns of keys and of values, or their gradients, beside some columns of keys."""
        return {
            x: self.heads.of_result(cols) if number else cols
            for number, x in enumerate(dict.fromkeys(names[:2]))
        }

    def _between_nodes(
        self, names: Sequence[str], hulls: Mapping[tuple[int, Interval], Interval]
    ) -> Iterator[tuple[list[int], Interval, Interval]]:
        """Yield ranks of several nodes, and the columns and rows of keys that they share out and need.

        Ranks are together whose rows overlap, directly or by others: not those of different sequences.
        """
        build, by_cols = self.build, dict[tuple[int, Interval], list[tuple[Interval, int]]]()
        for (rank, cols), rows in hulls.items():
            by_cols.setdefault((build.layout(names[0]).replica(rank), cols), []).append((rows, rank))
        for (_, cols), needs in by_cols.items():
            for hull, ranks in _overlapping(needs):
                if by_level(build.machine, ranks, build.ranks) is None:
                    continue
                owners = {
                    owner
                    for name, its in self.columns(names, cols).items()
                    for owner in pieces_by_owner(build, name, build.layout(name).replica(ranks[0]), hull, its)
                }
                replicas = {(name, build.layout(name).replica(rank)) for name in names for rank in ranks}
                # A gather by level needs every owner among the readers, and all in one replica of each
                # tensor.
                if owners <= {*ranks} and len(replicas) == len({*names}):
                    yield ranks, cols, hull


class _Forward(Queries):
    """Attention forward."""

    statement: Attention

    def write(self) -> None:
        """Write it."""
        one, cache = self.statement, self.statement.cache
        self._queries: dict[int, list[Slice]] = {}
        # Cached keys are a pass of their own; the online softmax merges both passes.
        passes = [(cache, one.heads(self.tensors, cache[0]))] if cache else []
        passes.append(((one.k, one.v, *one.rotary[1:]), self.heads))
        ring = None if cache else self.ring()
        # Where each job's result and its logarithms become: their own tiles if these have just these.
        of_rows = self.heads.of_rows
        states = [(self.room_of(x), self.becoming(one.lse, x, of_rows(x.cols))) for x in self.jobs]
        begun: set[int] = set()
        if ring:
            for _, pieces in ring.steps(self.build, (one.k, one.v)):
                for number, job in enumerate(self.jobs):
                    for piece in pieces.get(job.rank, ()):
                        self._attend(number, states[number], self.heads, piece, begun, merged=True)
        for names, heads in [] if ring else passes:
            by_cols = self.gathered_keys(names, heads)
            for number, job in enumerate(self.jobs):
                keys = by_cols[job.rank, heads.of_keys(job.cols)]
                self._attend(number, states[number], heads, keys, begun)
        for job, (out, lse) in zip(self.jobs, states, strict=True):
            self.keep(job, out)
            self.deliver(self.statement.lse, job, lse)

    def _attend(
        self,
        number: int,
        state: tuple[Slice, Slice],
        heads: Heads,
        keys: Sequence[Slice],
        begun: set[int],
        merged: bool = False,
    ) -> None:
        """Write that a job attends to some keys, if it sees any; afterwards it has begun."""
        # state: where its result and its logarithms become. heads: how queries and keys belong together.
        # keys: the keys and values. begun: jobs that have attended to some before; gets this one. merged:
        # whether it is a kernel of its own, whose result is merged into what is there.
        job, (out, lse) = self.jobs[number], state
        # Under a mask most pieces of a ring are unseen by some jobs; these skip the kernel altogether.
        seen = heads.seen(job.rows).intersect(keys[0].rows)
        if not seen.size or not heads.pairs(job.rows, seen):
            return
        k, v, *shared = (x.cut(seen, x.cols) for x in keys)
        if number not in self._queries:
            queries = self.at(self.statement.q, job, job.cols, f"q {number}")
            self._queries[number] = [queries, *self.turned(job, number)]
        q, *turned = self._queries[number]
        dtype = "".join(self.tensors[x].dtype for x in self.statement.cache[:1])
        if self.statement.cache and number in begun:
            # Engines append a token's own keys to the cache, and one kernel attends to all of them.
            cached = self.statement.heads(self.tensors, self.statement.cache[0])
            seconds = self.seconds(cached, job, cached.seen(job.rows), False, dtype)
            seconds *= heads.pairs(job.rows, seen) / cached.pairs(job.rows, cached.seen(job.rows))
        else:
            seconds = self.seconds(heads, job, seen, False, dtype)
        if merged and number in begun:
            more, more_lse = (self.of_step(x) for x in state)
            self.write_map("attend", heads, more, (q, k, v), seconds)
            self.write_map("attend_lse", heads, more_lse, (q, k), 0.0)
            self.merge("attend_merge", out, (out, lse, more, more_lse), **heads.parameters)
            self.build.map("attend_merge_lse", lse, lse, more_lse, seconds=0.0)  # in the same pass
            return
        # Continue from the partial result and its log-sum-exp: the rescaling of Flash Attention, across
        # pieces.
        results, sums = ((out, lse), (lse,)) if number in begun else ((), ())
        rotary = (*turned, *shared)
        self.write_map("attend", heads, out, (q, k, v), seconds, rotary, results)
        self.write_map("attend_lse", heads, lse, (q, k), 0.0, rotary, sums)  # the same kernel writes it
        begun.add(number)


class _Backward(Queries):
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
        for job, (out, *turned) in zip(self.jobs, states, strict=True):
            self.keep(job, out)
            for name, piece in zip(self.statement.drotary, turned, strict=False):
                self.deliver(name, job, piece.cut(piece.rows, self.heads.of_rotary(job.own)))

    def _state(self, job: Job) -> list[Slice]:
        """Return where the gradient by a job's queries becomes, and that by their rotary columns."""
        cols = self.heads.of_rotary(job.cols)
        return [self.room_of(job), *(self.becoming(x, job, cols) for x in self.statement.drotary[:1])]

    def _queries(self, number: int, cols: Interval) -> tuple[list[Slice], list[Slice]]:
        """Return columns of a job's queries, of its result's gradient, its logarithms, and their products."""
        # Rotary columns of the queries, if there are such, come apart.
        job, one, rows = self.jobs[number], self.statement, self.heads.of_rows(self.jobs[number].cols)
        if number not in self._rows:
            q, wide = self.at(one.q, job, job.cols, f"{one.q} {number}"), self.heads.of_result(job.cols)
            o, do = (self.at(x, job, wide, f"{x} {number}") for x in (one.o, one.do))
            lse = self.at(one.lse, job, rows, f"lse {number}")
            # D = rowsum(dO ∘ O) of Flash Attention's backward pass; it depends on no key, so it is made once.
            dot = self.build.temporary(job.rank, one.lse, job.rows, rows, slot=("attention", "dot", number))
            self.write_map("attend_dot", self.heads._replace(rotary=0), dot, (o, do), None)
            self._rows[number] = [q, do, lse, dot, *self.turned(job, number)]
        some, rotary = self.heads.of_rows(cols), self.heads.of_rotary(cols)
        spans = (cols, self.heads.of_result(cols), some, some, rotary)
        pieces = [x.cut(job.rows, span) for x, span in zip(self._rows[number], spans, strict=False)]
        return pieces[:4], pieces[4:]

    def _by_queries(
        self, number: int, state: Sequence[Slice], keys: Sequence[Slice], begun: set[int]
    ) -> float:
        """Write the gradient by the queries of a job through some keys; return the whole kernel's seconds."""
        job, (k, v, *shared) = self.jobs[number], keys
        (q, do, lse, dot), turned = self._queries(number, job.cols)
        took = self.seconds(self.heads, job, k.rows, backward=True)
        # The real kernel makes all gradients at once; its seconds are split so that each part depends only on
        # what it reads, and the parts add up to the kernel.
        reads = q, k, v, do, lse, dot
        for fn, out, share in zip(("attend_dq", "attend_dqr"), state, (DQ, 0.0), strict=False):
            into = self.of_step(out) if number in begun else out
            self.write_map(fn, self.heads, into, reads, share * took, (*turned, *shared))
            if into != out:
                self.merge("add", out, (out, into))
        begun.add(number)
        return took

    def _by_keys(
        self,
        number: int,
        into: Sequence[Slice],
        keys: Sequence[Slice],
        took: float,
        more: bool,
        merged: bool = False,
    ) -> None:
        """Write the gradients by keys and values through a job's queries, of heads that start in its tile."""
        # Into one slice alone goes that by rotary columns of keys. With more they are added to what is there:
        # by the same kernel, or merged.
        (q, do, lse, dot), turned = self._queries(number, self.jobs[number].own)
        k, v, *shared = keys
        reads: tuple[Slice, ...] = (q, k, v, do, lse, dot)
        # dV needs neither V nor D, so it may start before they arrive.
        fns = [("attend_dk", reads, DK), ("attend_dv", (q, k, do, lse), DV)]
        for (fn, read, share), out in zip(
            fns if len(into) > 1 else [("attend_dkr", reads, 0.0)], into, strict=True
        ):
            before, room = (
                (out,) if more and not merged else (),
                self.of_step(out) if merged and more else out,
            )
            self.write_map(fn, self.heads, room, read, share * took, (*turned, *shared), before)
            if room != out:
                self.merge("add", out, (out, room))

    def _at_once(self, states: Sequence[Sequence[Slice]], begun: set[int]) -> None:
        """Write all gradients with the keys gathered; parts by keys are added where they belong."""
        one, heads = self.statement, self.heads
        by_cols = self.gathered_keys((one.k, one.v, *one.rotary[1:]), heads)
        took = []
        for number, job in enumerate(self.jobs):
            keys = [x.cut(heads.seen(job.rows), x.cols) for x in by_cols[job.rank, heads.of_keys(job.cols)]]
            took.append(self._by_queries(number, states[number], keys, begun))
        for names in ((one.dk, one.dv), one.drotary[1:]):
            if names:
                self._gathered_gradients(names, by_cols, took)

    def _gathered_gradients(
        self, names: Sequence[str], by_cols: dict[tuple[int, Interval], list[Slice]], took: Sequence[float]
    ) -> None:
        """Write the gradients by keys and values, or that by the rotary columns of keys."""
        # names: their tensors. by_cols: by rank and columns the keys that it has got. took: seconds of each
        # job's kernel.
        heads, shared = self.heads, len(names) == 1
        parts: dict[tuple[int, int, Interval], list[int]] = {}
        for number, job in enumerate(self.jobs):
            if job.own.size:
                cols = Interval(0, heads.rotary) if shared else heads.of_keys(job.own)
                parts.setdefault((job.replica, job.rank, cols), []).append(number)
        # If every part is a whole tile of its rank, gradients are written in place: no zeroing, no
        # accumulates.
        alone = self._alone(names, parts)
        if not alone:
            self.clear(names)
        seen = {x: _hull(heads.seen(self.jobs[y].rows) for y in numbers) for x, numbers in parts.items()}
        # Gradients are summed in the reverse of the keys' gather, among the same ranks.
        layouts = [self.build.layout(x) for x in (*names, self.statement.out)]
        by_place = {(rank, cols): rows for (_, rank, cols), rows in seen.items()}
        apart = alone or shared or any(x.replicas > 1 for x in layouts)
        # The first job of each rank writes all rows, so all their keys have to be there.
        got = {
            (rank, cols): by_cols[rank, heads.of_keys(self.jobs[numbers[0]].cols)][0].rows
            for (_, rank, cols), numbers in parts.items()
        }
        together = [
            (ranks, cols, rows)
            for ranks, cols, rows in ([] if apart else self._between_nodes(names, by_place))
            if all(got[rank, cols].intersect(rows) == rows for rank in ranks)
        ]
        wide = {(rank, cols): rows for ranks, cols, rows in together for rank in ranks}
        made: dict[tuple[int, Interval], list[Slice]] = {}
        for (replica, rank, cols), numbers in parts.items():
            hull = wide.get((rank, cols), seen[replica, rank, cols])
            into = [
                (self._target(name, rank, hull, its) if alone else None)
                or self.build.temporary(rank, name, hull, its, slot=("attention", name, rank, its))
                for name, its in self.columns(names, cols).items()
            ]
            for place, number in enumerate(numbers):
                job = self.jobs[number]
                rows = heads.seen(job.rows) if place else hull  # the first one writes all, zero where unseen
                of_keys = heads.of_keys(job.own)
                spans = (of_keys, heads.of_result(of_keys), Interval(0, heads.rotary))
                keys = [
                    x.cut(rows, span)
                    for x, span in zip(by_cols[rank, heads.of_keys(job.cols)], spans, strict=False)
                ]
                some = [x.cut(rows, x.cols) for x in into]
                self._by_keys(number, some, keys, took[number], more=place > 0)
            made[rank, cols] = into
            if not alone and (rank, cols) not in wide:
                self.add(replica, names, into)
        for ranks, cols, _ in together:
            self._add_up(names, {rank: made[rank, cols] for rank in ranks})

    def _add_up(self, names: Sequence[str], parts: Mapping[int, Sequence[Slice]]) -> None:
        """Write the sums of the gradients that ranks have of the same keys, at who owns them."""
        ranks = sorted(parts)
        for number, name in enumerate(names):
            product = {x: pieces[number] for x, pieces in parts.items()}
            rows, cols = product[ranks[0]].rows, product[ranks[0]].cols
            owned = pieces_by_owner(self.build, name, 0, rows, cols)
            nothing = Interval(rows.start, rows.start)
            for turn in range(max(map(len, owned.values()))):
                targets = {
                    x: owned[x][turn] if turn < len(owned.get(x, ())) else product[x].cut(nothing, cols)
                    for x in ranks
                }
                add_up_at(self.build, product, targets)

    def _alone(self, names: Sequence[str], parts: dict[tuple[int, int, Interval], list[int]]) -> bool:
        """Whether each part's keys are a tile of its rank with all queries that see it, and none is left."""
        heads = self.heads
        if any(len(parts) != sum(1 for _ in self.filled(x)) for x in names):
            return False
        for (_, rank, cols), numbers in parts.items():
            jobs = [self.jobs[x] for x in numbers]
            hull = _hull(heads.seen(job.rows) for job in jobs)
            queries = sum(job.rows.size * job.own.size for job in jobs)
            targets = [self._target(x, rank, hull, its) for x, its in self.columns(names, cols).items()]
            if None in targets or hull.size % heads.keys:
                return False
            seeing = cols.size * heads.share
            if len(names) == 1:  # all heads
                seeing = self.build.layout(self.statement.out).shape[1]
            # A count suffices: jobs do not overlap, so equal numbers of queries mean that none is missing.
            if queries != hull.size // heads.keys * heads.queries * seeing:
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

    def _round(self, ring: "Ring", states: Sequence[Sequence[Slice]], begun: set[int]) -> None:
        """Write all gradients with keys going round, and the gradients by keys and values behind them."""
        one, build = self.statement, self.build
        numbers: dict[int, list[int]] = {}
        for number, job in enumerate(self.jobs):
            numbers.setdefault(job.rank, []).append(number)
        travelling: dict[tuple[int, int], list[Slice]] = {}  # by owner and tile: where its gradients are now
        for step, pieces in ring.steps(build, (one.k, one.v)):
            arrived: dict[tuple[int, int], list[Slice]] = {}
            for rank, keys in pieces.items():
                owner = ring.origin(rank, step)
                for place, (k, v) in enumerate(keys):
                    # Gradients follow their keys round the ring and gain each rank's part; after the last
                    # step they go home.
                    now = travelling.pop((owner, place), None)
                    here = [
                        build.temporary(rank, name, k.rows, k.cols, slot=("ring", name, place, step % 2))
                        for name in (one.dk, one.dv)
                    ]
                    # The put comes first: what has been added so far is the starting value of this rank's
                    # part.
                    for source, into in zip(now or (), here, strict=False):
                        build.put(source, into)
                    more = now is not None
                    for number in numbers.get(rank, ()):
                        mine = self.seen_of(self.jobs[number], k.rows)
                        if not mine.size:
                            continue
                        seen = k.cut(mine, k.cols), v.cut(mine, v.cols)
                        took = self._by_queries(number, states[number], seen, begun)
                        if more:
                            some = [x.cut(mine, k.cols) for x in here]
                            self._by_keys(number, some, seen, took, more, merged=True)
                        else:  # the first one writes all keys, zero where nothing is seen
                            self._by_keys(number, here, (k, v), took, more)
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
def goes_round(statement: Fused, tensors: tuple[Tensor, ...], cuts: Any, machine: Machine) -> bool:
    """Whether handing keys round takes less than gathering them, by simulation of the statement alone.

    One ring of each kind is simulated, if no two share a link. A ring is simulated only if its keys can cross
    the links, and its kernels can run, in less time than gathering takes.

    Args:
        cuts: How they are cut, for equal layouts may have different empty tiles.
    """
    written = [replace(x, role="output" if x.name in statement.outs else "input") for x in tensors]

    def begun(way: str) -> tuple[Builder, Fused]:
        one = replace(statement, way=way)
        return Builder(way, Chain(way, tuple(written), (one,), tensors[0].layout.ranks), machine), one

    build, one = begun("ring")
    writing = Queries(build, one, set())
    ring, names = writing.ring(), (one.k, one.v)
    assert ring is not None
    ranks = ring.one_of_each(build, one.k, writing.heads.keys)
    if ranks is not None:
        ring = ring.of(ranks)

    def takes(way: str) -> float:
        build, one = begun(way)
        _write(build, one, (), ranks)
        return makespan(build.schedule())

    makespan = executor("sim").makespan
    # No closed form covers masks and shared links, so both ways are simulated.
    gathering = takes("gather")
    # A lower bound on the ring's time rules it out without simulating it.
    writing = Queries(build, one, set(), ranks)
    if max(ring.least_seconds(build, names), writing.least_seconds(ring)) > gathering * (1 + 1e-9):
        return False
    return takes("ring") < gathering


def _hull(spans: Iterable[Interval]) -> Interval:
    """Return the smallest range that holds some."""
    starts, stops = zip(*spans, strict=True)
    return Interval(min(starts), max(stops))


def _overlapping(spans: Iterable[tuple[Interval, int]]) -> list[tuple[Interval, list[int]]]:
    """Return ranges that do not overlap, and whose ranges are in each.

    >>> _overlapping([(Interval(0, 4), 0), (Interval(6, 8), 2), (Interval(3, 5), 1)])
    [(Interval(start=0, stop=5), [0, 1]), (Interval(start=6, stop=8), [2])]
    """
    result: list[tuple[Interval, set[int]]] = []
    for span, rank in sorted(spans):
        if result and span.start < result[-1][0].stop:
            before, ranks = result[-1]
            ranks.add(rank)
            result[-1] = _hull((before, span)), ranks
        else:
            result.append((span, {rank}))
    return [(span, sorted(ranks)) for span, ranks in result]


class Ring(NamedTuple):
    """Ranks that hand keys round: the owners of the rows of some columns, in their order."""

    ranks: dict[int, tuple[int, ...]]  # by each rank the ring it is in
    places: dict[int, int]  # by each rank its place in that
    tiles: dict[int, list[tuple[int, int]]]  # by rank the tiles of the keys that it owns

    def of(self, ranks: Collection[int]) -> "Ring":
        """Return the rings of some ranks."""
        return Ring(
            {x: value for x, value in self.ranks.items() if x in ranks},
            {x: value for x, value in self.places.items() if x in ranks},
            {x: value for x, value in self.tiles.items() if x in ranks},
        )

    def origin(self, rank: int, step: int) -> int:
        """Return the owner of the keys that a rank has at a step."""
        ring = self.ranks[rank]
        return ring[(self.places[rank] - step) % len(ring)]

    def neighbour(self, rank: int) -> int:
        """Return whom a rank hands keys to."""
        ring = self.ranks[rank]
        return ring[(self.places[rank] + 1) % len(ring)]

    def one_of_each(self, build: Builder, name: str, keys: int) -> set[int] | None:
        """Return the ranks of one ring of each kind; None if two rings meet at a link or a device.

        Rings are of one kind that have as many keys, at the same places of a sequence, and links as fast.
        """
        machine, layout = build.machine, build.layout(name)
        result: dict[Any, tuple[int, ...]] = {}
        used = set[tuple[str, int]]()
        for ring in dict.fromkeys(self.ranks.values()):
            devices = [machine.device_of(rank, build.ranks) for rank in ring]
            routes = [machine.route(*x) for x in zip(devices, (*devices[1:], devices[0]), strict=True)]
            resources = {("link", x) for route in routes for x in route} | {("device", x) for x in devices}
            # Rings that share links, and devices of unequal pace, differ in time; then one of a kind does not
            # stand for all.
            if machine.paces is not None or not used.isdisjoint(resources):
                return None
            used |= resources
            rows = [[layout.tile_bounds(tile)[0] for tile in self.tiles[rank]] for rank in ring]
            # Rows count from the start of their sequence, so that rings of different sequences are of one
            # kind.
            first = rows[0][0].start // keys * keys
            shapes = tuple((x.start - first, x.size) for parts in rows for x in parts)
            links = tuple((*machine.link_bandwidth[list(x)], *machine.link_latency[list(x)]) for x in routes)
            result.setdefault((len(ring), shapes, links), ring)
        return {rank for ring in result.values() for rank in ring}

    def least_seconds(self, build: Builder, names: Sequence[str]) -> float:
        """Return a time that keys and values need at least to cross the links between some two neighbours."""
        machine, least = build.machine, 0.0
        nbytes = {
            rank: sum(
                prod(build.layout(x).tile_shape(tile)) * build.tensors[build.number(x)].itemsize
                for x in names
                for tile in tiles
            )
            for rank, tiles in self.tiles.items()
        }
        for ring in set(self.ranks.values()):
            total = sum(nbytes[rank] for rank in ring)
            for rank, neighbour in zip(ring, (*ring[1:], ring[0]), strict=True):
                ends = (machine.device_of(x, build.ranks) for x in (rank, neighbour))
                width = machine.link_bandwidth[list(machine.route(*ends))].min()
                # All keys but the neighbour's own cross the link to it.
                least = max(least, (total - nbytes[neighbour]) / float(width))
        return least

    def steps(
        self, build: Builder, names: Sequence[str]
    ) -> Iterator[tuple[int, dict[int, list[tuple[Slice, ...]]]]]:
        """Yield each step with the slices of keys and values that each rank has at it."""
        # What a rank has is put to its neighbour before anything is computed with it, into the one of two
        # places that was read at the step before.
        now = {
            rank: [
                tuple(build.tile(x, *tile, build.layout(x).replica(rank)) for x in names) for tile in tiles
            ]
            for rank, tiles in self.tiles.items()
        }
        for step in range(max(map(len, self.ranks.values()))):
            following: dict[int, list[tuple[Slice, ...]]] = {}
            for rank, held_tiles in now.items():
                # After p − 1 hops every rank has seen all keys, and nothing is passed on.
                if step + 1 == len(self.ranks[rank]):
                    continue
                neighbour = self.neighbour(rank)
                following[neighbour] = []
                for place, pieces in enumerate(held_tiles):
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
    """Return the rings along which keys can go; None if a rank does not own its part of the keys it needs.

    They can where keys and values lie alike, and every rank's queries are those of a replica. The columns of
    its keys then have to be those of its queries' heads. A ring has the ranks that share sequences.
    """
    layout = build.layout(statement.k)
    names = {statement.v} | ({statement.dk, statement.dv} if isinstance(statement, AttentionGrad) else set())
    others = [build.layout(x) for x in names]
    # Each replica of keys is at the ranks of one of queries, so that these are all that see it.
    same_ranks = (layout.replica_of_rank == build.layout(statement.out).replica_of_rank).all()
    if any((x, x.cuts) != (layout, layout.cuts) for x in others) or not same_ranks:
        return None
    tiles: dict[int, list[tuple[int, int]]] = {}
    spans: dict[tuple[int, int], list[tuple[Interval, int]]] = {}  # by columns of a replica: what ranks have
    for rank, tile, replica in layout.filled():
        tiles.setdefault(rank, []).append(tile)
        spans.setdefault((replica, tile[1]), []).append((layout.tile_bounds(tile)[0], rank))
    columns = {rank: [layout.tile_bounds(x)[1] for x in members_of] for rank, members_of in tiles.items()}
    for job in jobs:
        owned = columns.get(job.rank, [])
        if not owned or job.wide != job.target.cols or any(x != heads.of_keys(job.cols) for x in owned):
            return None
        place = layout.replica(job.rank), tiles[job.rank][0][1]
        # Owned and needed rows together: connected components are the ranks that share a sequence.
        spans[place].append((heads.seen(job.rows), job.rank))  # and what they need
    result: dict[int, tuple[int, ...]] = {}
    for these in spans.values():
        for members in _connected(these):
            result |= dict.fromkeys(members, members)
    if max(map(len, result.values())) < 2:
        return None
    return Ring(result, {rank: members_of.index(rank) for rank, members_of in result.items()}, tiles)


def _connected(spans: Sequence[tuple[Interval, int]]) -> list[tuple[int, ...]]:
    """Return ranks whose ranges overlap, directly or by others of theirs, in the order in which they come.

    >>> _connected([(Interval(0, 4), 0), (Interval(6, 8), 2), (Interval(3, 5), 1), (Interval(8, 9), 0)])
    [(0, 1), (2,)]
    """
    parent = {rank: rank for _, rank in spans}  # another of those it is with; the first of all: itself

    def first(rank: int) -> int:
        # Union-find with path halving.
        while parent[rank] != rank:
            parent[rank] = rank = parent[parent[rank]]
        return rank

    for _, ranks in _overlapping(spans):
        for rank in ranks:
            parent[first(rank)] = first(ranks[0])
    groups: dict[int, list[int]] = {}
    for rank in parent:
        groups.setdefault(first(rank), []).append(rank)
    return [tuple(x) for x in groups.values()]
