"""Scans of a chain over ranks: by heads, by sequences, or by tokens, from rank to rank.

The owner of each tile of the result (backward: of the gradient by values) computes the heads that start in
it. Where a tile ends inside a sequence, its states go to the owner of the next tile, some heads at a time, so
that ranks work one behind the other; backward the gradients by states come back the other way.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from umm.cost import pace_of
from umm.dtypes import itemsize
from umm.interval import Interval
from umm.machines import Machine
from umm.plans.statements.lowering import Context, write
from umm.plans.statements.pieces import clear, gathered, own_part, to_owners
from umm.program.functions.scan import GRADIENTS, RATED, States
from umm.program.statements.scan import Recurrent, Scan, ScanGrad
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

CHUNK = {False: 256, True: 64}
"""Tokens that kernels take together: without a delta as mamba_ssm does by default, with one as
flash-linear-attention does."""
KERNELS = 5  # Launches of a scan over prompts: Triton kernels of mamba_ssm's ssd_combined.py, forward.


class Job(NamedTuple):
    """Some tokens and heads that a rank scans: whole sequences together, or a part of one."""

    rank: int  # who scans
    rows: Interval  # its tokens, in global indices
    heads: Interval  # heads of values, all or some of a tile's
    cols: dict[str, Interval]  # columns of these heads by letter
    target: Slice  # the tile
    replica: int  # which replica of the tile's tensor it is of
    cut: tuple[bool, bool]  # whether the sequence begins before, and whether it goes on after these tokens


@write.register
def _(statement: Scan, build: Builder, context: Context) -> None:
    """Write a scan."""
    writing = _Writing(build, statement, statement.out)
    for chain in writing.chains:
        state = None
        for job in chain:
            state = _forward(writing, statement, job, state)


@write.register
def _(statement: ScanGrad, build: Builder, context: Context) -> None:
    """Write the gradients of a scan."""
    writing = _Writing(build, statement, statement.dv)
    # Heads that share keys may be computed at several ranks, whose parts then add up.
    adds = any(
        x.heads.start % writing.states.share or x.heads.stop % writing.states.share
        for chain in writing.chains
        for x in chain
    )
    summed = [x for x, adds_up in writing.summed(statement, adds).items() if adds_up]
    for name in summed:
        if name in context.written:
            clear(build, name)
    starts = list[list[Slice | None]]()  # the states before each job, at its rank; None where they are zero
    for chain in writing.chains:
        before, state = list[Slice | None](), None
        for number, job in enumerate(chain):
            before.append(state if job.cut[0] else writing.first(job))
            if job.cut[1]:
                state = writing.state(job, writing.operands(job), before[-1], statement.dstate, alone=True)
                state = writing.carried(state, chain[number + 1], statement.dstate)
        starts.append(before)
    for chain, before in zip(writing.chains, starts, strict=True):
        later = None
        for number in reversed(range(len(chain))):
            later = _backward(writing, statement, chain[number], before[number], later, adds)
            if number and later is not None:
                later = writing.carried(later, chain[number - 1], statement.dstate)


class _Writing:
    """Common to forward and backward: the jobs along each sequence and their operands."""

    def __init__(self, build: Builder, statement: Recurrent, target: str) -> None:
        self.build, self.statement, self.target = build, statement, target
        self.tensors = {tensor.name: tensor for tensor in build.tensors}
        self.states, self.letters = statement.states(self.tensors), dict(statement.by_letter)
        self.whole = isinstance(statement, Scan)
        self.chains = self._chains()

    def _chains(self) -> list[list[Job]]:
        """Return the jobs: those that hand on a sequence's states together, in its order."""
        by_sequence = defaultdict[object, list[Job]](list)
        tiles = sorted(self.build.layout(self.target).filled(), key=lambda x: (x[2], x[1][1], x[1][0]))
        for _, tile, replica in tiles:
            target = self.build.tile(self.target, *tile, replica)
            heads = self.states.heads(target.cols)
            if not self.whole:  # backward each head once: where it starts
                heads = Interval(-(-target.cols.start // self.states.value), heads.stop)
            for rows in self.states.parts(target.rows) if heads.size > 0 else ():
                cut = rows.start % self.states.tokens > 0, rows.stop % self.states.tokens > 0
                job = Job(target.rank, rows, heads, self.states.columns(heads), target, replica, cut)
                alone = () if any(cut) else (rows.start,)
                sequence = (rows.stop - 1) // self.states.tokens
                by_sequence[replica, tile[1], sequence, alone].append(job)
        return [piece for chain in by_sequence.values() for piece in self._by_heads(chain)]

    def _by_heads(self, chain: list[Job]) -> Iterator[list[Job]]:
        """Yield some heads of the jobs along a sequence at a time, as many times as it has jobs."""
        heads, share = chain[0].heads, self.states.share
        unit = 1 if heads.start % share or heads.stop % share else share
        count, units = min(len(chain), heads.size // unit), heads.size // unit
        for number in range(count):
            start, stop = (heads.start + units * x // count * unit for x in (number, number + 1))
            some = Interval(start, stop)
            yield [x._replace(heads=some, cols=self.states.columns(some)) for x in chain]

    def spans(self, name: str, job: Job) -> tuple[Interval, Interval]:
        """Return the rows and columns of a tensor that a job reads or writes."""
        rows, cols = self.letters[name]
        by_letter = {"k": self.states.rows(job.rows), "r": job.rows, "1": Interval(0, 1)}
        return by_letter[rows], job.cols[cols]

    def piece(self, name: str, job: Job) -> Slice:
        """Return a job's piece of a tensor that it reads, in its rank's memory."""
        slot = ("scan", name, job.rows.start, job.heads.start)
        return gathered(self.build, name, job.rank, *self.spans(name, job), slot)

    def operands(self, job: Job) -> list[Slice]:
        """Return the queries, keys, values, decays and rates of a job."""
        one = self.statement
        return [self.piece(x, job) for x in (one.q, one.k, one.v, one.decay, one.rate)]

    def first(self, job: Job) -> Slice | None:
        """Return the states that a job's sequences start with; None if zero."""
        return self.piece(self.statement.state, job) if self.statement.state else None

    def state(
        self, job: Job, reads: Sequence[Slice], before: Slice | None, name: str, alone: bool = False
    ) -> Slice:
        """Write the states after a job's tokens, by the kernel of its result or one alone; return them."""
        out = self.room(name, job, beside=alone or job.cut[1])
        seconds = self.seconds(job) if alone else 0.0
        self.map("scan_state", out, (*reads[1:], *([before] if before else [])), seconds, before)
        return out

    def map(
        self, fn: str, out: Slice, reads: Sequence[Slice], seconds: float, before: Slice | None,
        later: Slice | None = None,
    ) -> None:  # fmt: skip
        """Write one function of a scan."""
        name = fn.replace("scan", RATED, 1) if self.states.rated else fn
        name += "_from" * bool(before) + "_until" * bool(later)
        self.build.map(name, out, *reads, seconds=seconds, **self.states.parameters)

    def summed(self, statement: ScanGrad, adds: bool) -> dict[str, bool]:
        """Return whether each gradient adds up over jobs: by shared keys, and by decays of all tokens."""
        by_name = zip(statement.outs, GRADIENTS.values(), strict=True)
        return {x: (adds and by in "qk") or (self.states.rated and by == "decay") for x, by in by_name}

    def carried(self, state: Slice, job: Job, name: str) -> Slice:
        """Return the states of a part of a sequence where the next part's rank has them."""
        if state.rank == job.rank:
            return state
        room = self.build.temporary(job.rank, name, state.rows, state.cols)
        self.build.put(state, room)
        return room

    def room(self, name: str, job: Job, beside: bool = False) -> Slice:
        """Return where a result becomes: in a tile of its rank if it has just these, or beside."""
        spans, made, target = self.spans(name, job), job.cols["c"], job.target.cols
        uncut = not beside and target.start <= made.start and made.stop <= target.stop
        owned = own_part(self.build, name, job.rank, *spans) if uncut else None
        return owned or self.build.temporary(job.rank, name, *spans)

    def deliver(self, name: str, job: Job, became: Slice, adds: bool = False) -> None:
        """Put or add a result to those of its owners that take it from the replica of its job."""
        made = self.build.layout(self.target)
        for piece, target in to_owners(self.build, made, job.replica, name, became):
            if target.buffer != became.buffer:
                (self.build.accumulate if adds else self.build.put)(piece, target)

    def seconds(self, job: Job, backward: bool = False) -> float:
        """Return how long a kernel scans for a job."""
        machine, tensor = self.build.machine, self.tensors[self.statement.v]
        pace = pace_of(machine, np.array(job.rank), tensor.layout.ranks)
        arithmetic, traffic, launches = scan_seconds(
            machine, tensor.dtype, self.states, job.rows.size, job.heads.size, backward
        )
        return launches + max(float(arithmetic / pace.peak), float(traffic / pace.memory))


def _forward(writing: _Writing, statement: Scan, job: Job, state: Slice | None) -> Slice | None:
    """Write a job of a scan, given the states before it at its rank; return those that the next one needs."""
    build = writing.build
    before = writing.carried(state, job, statement.last) if state and job.cut[0] else writing.first(job)
    reads, target = writing.operands(job), job.target
    columns = job.cols["c"]
    out = target.cut(job.rows, columns)
    if out.cols != columns:
        out = build.temporary(job.rank, statement.out, job.rows, columns)
    writing.map("scan", out, (*reads, *([before] if before else [])), writing.seconds(job), before)
    if out.buffer != target.buffer:
        inside = columns.intersect(target.cols)
        build.get(out.cut(job.rows, inside), target.cut(job.rows, inside))
    after = writing.state(job, reads, before, statement.last)
    if job.cut[1]:
        return after
    writing.deliver(statement.last, job, after)
    return None


def _backward(
    writing: _Writing, statement: ScanGrad, job: Job, before: Slice | None, later: Slice | None, adds: bool
) -> Slice | None:
    """Write a job of the gradients, given the states before it and the gradient by those after it."""
    reads = [*writing.operands(job), writing.piece(statement.do, job), *(x for x in (before, later) if x)]
    seconds, result = writing.seconds(job, backward=True), None
    adds_up = writing.summed(statement, adds)
    for fn, name in zip(GRADIENTS, statement.outs, strict=True):
        summed = adds_up[name]
        inside = fn == "ds" and job.cut[0]  # which the part before needs
        out = writing.room(name, job, beside=summed or inside)
        writing.map(f"scan_{fn}", out, reads, seconds, before, later)
        seconds = 0.0  # one kernel writes all
        if inside:
            result = out
        else:
            writing.deliver(name, job, out, summed)
    return result


def scan_seconds(
    machine: Machine, dtype: str, states: States, tokens: int, heads: int, backward: bool
) -> tuple[float, float, float]:
    """Return the seconds of a scan's arithmetic, of its memory traffic and of its launches, all assumed.

    Kernels take a chunk of tokens at a time: products of tokens within it, and with the state before it,
    at the rate of fused attention. Each operand moves once, and each chunk's states are written and read in
    float32. Decoded tokens read and write their states alone.

    Source: Dao & Gu (2024), Transformers are SSMs, section 6; Yang et al. (2024), Parallelizing linear
    transformers with the delta rule, section 3.2.
    """
    if states.rated:
        return _rated_seconds(machine, dtype, states, tokens, heads, backward)
    chunk = min(CHUNK[states.delta], states.tokens)
    key, value = states.key, states.value
    flop = states.flop(tokens, heads)
    if chunk > 1:
        # QKᵀ and its product with values; a delta has KKᵀ, and its inverse times keys and values, too.
        within = (key + value) + (states.delta * (2 * key + value))
        flop += 2 * chunk * within * tokens * heads
    of_keys = -(-heads // states.share) * 2 * key
    elements = tokens * (of_keys + heads * (2 * value + states.decays + 1)) * itemsize(dtype)
    chunks = -(-tokens // chunk)
    traffic = elements + 2 * 4 * chunks * heads * key * value
    rate = machine.attention_rate(dtype, backward)
    times = 3 if backward else 1  # the gradients of each product are two, and the scan runs again
    reached = machine.peak(dtype) * max(rate.value) * rate.sustained
    launches = 1 if chunk == 1 else KERNELS * (2 if backward else 1)
    return (
        times * flop / reached,
        (2 if backward else 1) * traffic / machine.pass_bandwidth,
        launches * machine.launch_s,
    )


def _rated_seconds(
    machine: Machine, dtype: str, states: States, tokens: int, heads: int, backward: bool
) -> tuple[float, float, float]:
    """Return the seconds of Mamba-1's scan: one kernel, without matrix units, whose states stay on chip."""
    # A state's element takes an exponential and six operations a token, at the peak of float32 where a
    # machine states one. Backward each is three times that, and the scan runs again.
    # Source: Gu & Dao (2023), Mamba, section 3.3 and appendix D.
    peak = machine.peak("float32" if "float32" in machine.peaks else dtype)
    flop = 7 * tokens * heads * states.value * states.key * (4 if backward else 1)
    of_keys = -(-heads // states.share) * 2 * states.key
    elements = tokens * (of_keys + heads * (2 * states.value + 1)) * itemsize(dtype)
    ends = -(-tokens // states.tokens) * 2 * 4 * heads * states.key * states.value
    traffic = (2 if backward else 1) * elements + ends
    return flop / peak, traffic / machine.pass_bandwidth, machine.launch_s * (2 if backward else 1)
