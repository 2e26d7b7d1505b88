"""Sparse attention of a chain over ranks: by heads, or by tokens with keys gathered.

Each owner of a tile of the result scores all keys that its queries see, by all index heads, chooses, and
attends. Ranks that share the heads score the same keys, as serving engines do.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from umm.cost import pace_of, sparse_seconds
from umm.interval import Interval
from umm.plans.statements.attention import Job, Queries
from umm.plans.statements.lowering import Context, write
from umm.plans.statements.pieces import gathered
from umm.program.statements.sparse import Sparse, SparseAttention, SparseAttentionGrad
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder


@write.register
def _(statement: SparseAttention, build: Builder, context: Context) -> None:
    """Write sparse attention."""
    writing = _Writing(build, statement, context.written)
    for number, job in enumerate(writing.jobs):
        out = writing.room_of(job)
        writing.map("sparse_attend", out, writing.operands(number, job.cols), writing.takes(job))
        writing.keep(job, out)


@write.register
def _(statement: SparseAttentionGrad, build: Builder, context: Context) -> None:
    """Write its gradients: by queries where they are, all others added up from the jobs."""
    one, writing = statement, _Writing(build, statement, context.written)
    heads, (by_queries, *rest) = writing.heads, statement.functions
    alone = {one.out, *one.drotary[:1]}
    writing.clear([x for x in dict.fromkeys(x for _, x in rest) if x not in alone])
    count = build.layout(one.q).shape[1] // heads.head
    for number, job in enumerate(writing.jobs):
        out, fn, seconds = writing.room_of(job), by_queries[0], writing.takes(job)
        reads = writing.operands(number, job.cols, one.do)
        writing.map(fn, out, reads, seconds, count=count)
        writing.keep(job, out)
        if not job.own.size:
            continue
        reads = writing.operands(number, job.own, one.do)
        for fn, name in rest:  # one kernel writes all
            rows, cols = writing.spans(fn, job)
            part = build.temporary(job.rank, name, rows, cols, slot=("sparse", fn))
            writing.map(fn, part, reads, 0.0, count=count)
            if name in alone:
                writing.deliver(name, job, part)
            else:
                writing.add(job.replica, [name], [part])


class _Writing(Queries):
    """Common to forward and backward: the operands of each job and the seconds of its kernels."""

    statement: Sparse

    def __init__(self, build: Builder, statement: Sparse, written: Collection[str]) -> None:
        super().__init__(build, statement, written)
        self.keys = self.gathered_keys((statement.k, statement.v, *statement.rotary[1:]), self.heads)

    def operands(self, number: int, cols: Interval, *more: str) -> list[Slice]:
        """Return the operands of some heads: all keys that the job's queries see."""
        # cols: columns of whole heads, all of the job's or some. more: tensors like the result that come
        # before the rotary columns.
        one, heads, build, job = self.statement, self.heads, self.build, self.jobs[number]
        seen = heads.seen(job.rows)
        k, v, *shared = (x.cut(seen, x.cols) for x in self.keys[job.rank, heads.of_keys(job.cols)])
        of_keys = heads.of_keys(cols)
        k, v = k.cut(seen, of_keys), v.cut(seen, heads.of_result(of_keys))
        q = self.at(one.q, job, job.cols, f"q {number}").cut(job.rows, cols)
        spans = {x: Interval(0, build.layout(x).shape[1]) for x in (one.iq, one.iw)}
        iq, iw = (self.at(x, job, span, f"{x} {number}") for x, span in spans.items())
        ik = gathered(build, one.ik, job.rank, seen, Interval(0, one.index), ("sparse", one.ik, seen))
        wide = heads.of_result(job.cols)
        beside = [self.at(x, job, wide, f"{x} {number}").cut(job.rows, heads.of_result(cols)) for x in more]
        turned = [x.cut(x.rows, heads.of_rotary(cols)) for x in self.turned(job, number)]
        return [q, k, v, iq, ik, iw, *beside, *turned, *shared]

    def spans(self, fn: str, job: Job) -> tuple[Interval, Interval]:
        """Return the rows and columns of the gradient that a function writes of a job's own heads."""
        one, heads = self.statement, self.heads
        of_keys, indices = heads.of_keys(job.own), self.build.layout(one.iw).shape[1]
        seen = heads.seen(job.rows)
        return {
            "sparse_dk": (seen, of_keys), "sparse_dv": (seen, heads.of_result(of_keys)),
            "sparse_diq": (job.rows, Interval(0, indices * one.index)),
            "sparse_dik": (seen, Interval(0, one.index)), "sparse_diw": (job.rows, Interval(0, indices)),
            "sparse_dqr": (job.rows, heads.of_rotary(job.own)),
            "sparse_dkr": (seen, Interval(0, heads.rotary)),
        }[fn]  # fmt: skip

    def map(self, fn: str, out: Slice, reads: Sequence[Slice], seconds: float, **more: int) -> None:
        """Write one function."""
        name = fn + "_rotary" * bool(self.statement.rotary)
        parameters: dict[str, Any] = self.statement.parameters(self.heads) | more
        self.build.map(name, out, *reads, seconds=seconds, **parameters)

    def takes(self, job: Job) -> float:
        """Return how long the kernels of a job take."""
        one, build = self.statement, self.build
        pace = pace_of(build.machine, np.array(job.rank), build.layout(one.q).ranks)
        return sparse_seconds(
            build.machine, self.tensors[one.q].dtype, self.heads, job.rows, job.cols.size // self.heads.head,
            self.heads.seen(job.rows), (build.layout(one.iw).shape[1], one.index, one.top),
            self.tensors[one.k].dtype, one.gives_queries, pace,
        )  # fmt: skip
