"""Sparse attention of a chain over ranks: by heads, or by tokens with keys gathered.

Each owner of a tile of the result scores all keys that its queries see, by all index heads, chooses, and
attends. Ranks that share the heads score the same keys, as serving engines do.
"""

from typing import Any

import numpy as np

from umm.cost import pace_of
from umm.dtypes import itemsize
from umm.interval import Interval
from umm.machines import Machine
from umm.plans.statements.attention import Queries
from umm.plans.statements.lowering import Context, write
from umm.plans.statements.pieces import gathered
from umm.program.functions.attention import Heads
from umm.program.statements.sparse import SparseAttention
from umm.schedules.writer.builder import Builder

KERNELS = 3
"""Launches: scores, the choice, attention."""
_SCORE = 4
"""Bytes of a score, in float32."""


@write.register
def _(statement: SparseAttention, build: Builder, context: Context) -> str:
    """Write sparse attention."""
    one, writing = statement, Queries(build, statement, context.written)
    heads = writing.heads
    by_cols = writing.gathered_keys((one.k, one.v, *one.rotary[1:]), heads)
    for number, job in enumerate(writing.jobs):
        seen = heads.seen(job.rows)
        k, v, *shared = (x.cut(seen, x.cols) for x in by_cols[job.rank, heads.of_keys(job.cols)])
        q = writing.at(one.q, job, job.cols, f"q {number}")
        iq, iw = (
            writing.at(x, job, Interval(0, build.layout(x).shape[1]), f"{x} {number}")
            for x in (one.iq, one.iw)
        )
        slot = ("sparse", one.ik, seen)
        ik = gathered(build, one.ik, job.rank, seen, Interval(0, one.index), slot)
        out = job.target
        if out.cols != job.wide:
            out = build.temporary(job.rank, one.out, job.rows, job.wide)
        pace = pace_of(build.machine, np.array(job.rank), build.layout(one.q).ranks)
        arithmetic, traffic = sparse_seconds(
            build.machine, writing.tensors[one.q].dtype, heads, job.rows, job.cols.size // heads.head, seen,
            (build.layout(one.iw).shape[1], one.index, one.top), writing.tensors[one.k].dtype,
        )  # fmt: skip
        seconds = KERNELS * build.machine.launch_s + max(
            arithmetic / float(pace.peak), traffic / float(pace.memory)
        )
        reads = (q, k, v, iq, ik, iw, *writing.turned(job, number), *shared)
        parameters: dict[str, Any] = one.parameters(heads)
        build.map(one.fn, out, *reads, seconds=seconds, **parameters)
        if out != job.target:
            build.get(out.cut(job.target.rows, job.target.cols), job.target)
    return ""


def sparse_seconds(
    machine: Machine,
    dtype: str,
    heads: Heads,
    rows: Interval,
    count: int,
    keys: Interval,
    indexer: tuple[int, int, int],
    cached: str,
) -> tuple[float, float]:
    """Return the seconds of sparse attention's arithmetic and of its memory traffic, both assumed.

    Products run at the rate of fused attention. Operands move once, chosen keys once for all queries or once
    for each, whichever is less; scores are written and read.

    Args:
        machine: The device.
        dtype: Of queries and products.
        heads: How they belong together.
        rows: The queries.
        count: Heads of queries.
        keys: The keys that they see.
        indexer: Index heads, the columns of one, and the keys that a query attends to at most.
        cached: Type of keys and values.
    """
    indices, index, top = indexer
    some = heads._replace(window=top)
    pairs, attended = heads.pairs(rows, keys), some.pairs(rows, keys)
    flop = some.flop(backward=False) * attended * count + 2 * index * indices * pairs
    elements = heads.moved(rows.size, 0, count) + rows.size * indices * (index + 1)
    of_keys = heads.moved(0, min(keys.size, attended), count) + keys.size * index
    nbytes = elements * itemsize(dtype) + of_keys * itemsize(cached)
    rate = machine.attention_rate(dtype, backward=False)
    reached = machine.peak(dtype) * max(rate.value) * rate.sustained
    return flop / reached, (nbytes + 2 * _SCORE * pairs) / machine.pass_bandwidth
