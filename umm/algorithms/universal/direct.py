"""Direct execution: every op in the order of the op list, with prefetch, bounded concurrency and a pool.

The rules are those of "Direct execution as dependencies" in docs/reference/schedule.md. The whole table is
built by NumPy: an op has up to four actions (get A, get B, gemm, accumulate), so each column is a few
scatters over the op list.
"""

import numpy as np

from umm import cost
from umm.algorithms.universal.gets import Fetches, fetches, readers, refill_waits, shares_cached, turns
from umm.algorithms.universal.operands import (
    Writer,
    added_again,
    first_read,
    in_place_chain,
    refills,
    strided,
    updates,
)
from umm.algorithms.universal.oplist import OpList, op_list
from umm.algorithms.universal.options import Options
from umm.algorithms.universal.replicas import ending_of
from umm.arrays import Ints
from umm.dtypes import payload_bytes
from umm.machines import Machine
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Buffers, joined
from umm.schedules.table.details import ACCUMULATE, GEMM, GET, Details
from umm.schedules.writer.assembly import Rows, assemble


def direct(problem: Problem, machine: Machine, stationary: str, options: Options) -> Schedule:
    """Return the schedule of direct execution.

    Source: Brock & Golin (2025), section 4.2.
    """
    return lower(op_list(problem, stationary, offset=options.offset), machine, options)


def lower(ops: OpList, machine: Machine, options: Options) -> Schedule:
    """Return the schedule that performs an op list in its own order by the rules of direct execution."""
    problem, rank, count = ops.problem, ops.rank, len(ops)
    ending = ending_of(problem, machine, options)
    options, shared = ending.options, ending.shared
    depth = options.prefetch + options.max_gemms
    starts = rank.searchsorted(np.arange(problem.p))
    number = np.arange(count) - starts[rank]
    m, n, k = ops.sizes

    def fetched() -> Fetches:
        return fetches(ops, starts, options.granularity == "slice", options.reuse)

    x = fetched()  # found again where details are asked for: kept, it would be a tenth of a large schedule
    c_owner, slotted = updates(problem.layouts[2], rank, ops.tiles[2])
    slot_ops = slotted.nonzero()[0]
    c_number = np.arange(len(slot_ops)) - slot_ops.searchsorted(starts)[rank[slot_ops]]

    # Rows: op 0 of every rank, then op 1 of every rank, …; within an op get A, get B, gemm, accumulate.
    a_fetch = x.fetch[:count]
    gets = a_fetch + x.fetch[count:].astype(np.int64)
    size = gets + slotted + 1
    order = number.argsort(kind="stable")
    op_row = np.empty(count, dtype=np.int64)
    op_row[order] = size[order].cumsum() - size[order]
    gemm_row = op_row + gets
    get_row = np.concatenate((op_row, op_row + a_fetch))[x.reads]
    c_row = gemm_row[slot_ops] + 1
    rows = int(size.sum())

    kind = np.full(rows, GEMM, dtype=np.int8)
    numbers, seconds = np.zeros((5, rows), dtype=np.int64), np.zeros(rows)
    row_rank, lane, src, dst, nbytes = numbers
    numbers[2:4] = -1
    waits = np.full((rows, 3), -1, dtype=np.int64)  # mostly there are at most three, a column per reason
    more: tuple[Ints, Ints] | None = None
    row_rank[gemm_row] = rank
    again = added_again(ops, gemm_row) if machine.refill else 0
    pace = cost.pace_of(machine, rank, problem.p)
    seconds[gemm_row] = cost.gemm_seconds(
        machine, problem.dtype, m, n, k, problem.itemsize("C"), again=again, pace=pace
    )
    moved = payload_bytes(x.elements, problem.dtype)
    if machine.refill:
        large = readers(x, cost.leaves_caches(machine, moved))
        seconds[gemm_row] += cost.load_seconds(machine, first_read(ops, gemm_row, large))
    if len(slot_ops) < count:
        before, later = in_place_chain(rank, ops.tiles[2], (~slotted).nonzero()[0])
        waits[gemm_row[later], 2] = gemm_row[before]

    if len(get_row):
        get_op = x.op
        kind[get_row] = GET
        row_rank[get_row] = dst[get_row] = rank[get_op]
        src[get_row] = x.src
        lane[get_row] = 1 + turns(x, rank, starts) % machine.copy_engines
        cached = shares_cached(x, ops, moved, machine) if machine.cache else False
        nbytes[get_row] = cost.transfer_bytes(machine, moved, cached)
        if machine.refill:
            seconds[get_row] = refills(machine, ops, get_op, moved, got=True)
        waits[gemm_row[x.remote % count], (x.remote >= count).astype(np.int64)] = get_row[x.served_by]
        late = (number[get_op] >= depth).nonzero()[0]
        if len(late):
            waits[get_row[late], 0] = gemm_row[get_op[late] - depth]
            refill, reader = refill_waits(x, depth)
            more = get_row[refill], gemm_row[reader]

    if len(slot_ops):
        kind[c_row] = ACCUMULATE
        row_rank[c_row] = src[c_row] = rank[slot_ops]
        dst[c_row] = c_owner[slot_ops]
        lane[c_row] = shared.first_accumulate + c_number % options.max_accumulates
        payload = (m * n)[slot_ops] * problem.itemsize("C")
        apart = strided(ops)[slot_ops]
        nbytes[c_row] = cost.accumulate_bytes(machine, payload, apart)
        local = c_owner[slot_ops] == rank[slot_ops]
        slow = cost.pace_of(machine, rank[slot_ops], problem.p)
        seconds[c_row] = np.where(local, cost.local_accumulate_seconds(machine, payload, apart, slow), 0.0)
        c_slots = options.max_gemms + options.max_accumulates
        if machine.refill:
            seconds[c_row] += refills(machine, ops, slot_ops, payload, got=False)
            new = c_number < c_slots
            seconds[gemm_row[slot_ops[new]]] += cost.load_seconds(machine, payload[new])
        waits[c_row, 0] = gemm_row[slot_ops]
        reuse = (c_number >= c_slots).nonzero()[0]
        waits[gemm_row[slot_ops[reuse]], 2] = c_row[reuse - c_slots]

    def fill(details: Details, first: int) -> Buffers:
        x = fetched()
        base = _pools(ops, options, x, slot_ops)[0]
        writer = Writer(details, ops, number, first)
        writer.gemms(gemm_row)
        for operand in range(2):
            gets = x.of(operand)
            op = x.op[gets]
            slot = base[operand][rank[op]] + x.number[gets] % depth
            served = (x.remote >= count) == bool(operand)
            readers = gemm_row[x.remote[served] % count], x.served_by[served] - (gets.start or 0)
            writer.gets(operand, get_row[gets], op, x.whole[gets], slot, readers)
        slot = base[2][rank[slot_ops]] + c_number % (options.max_gemms + options.max_accumulates)
        writer.updates(c_row, gemm_row[slot_ops], slot_ops, slot)
        return joined(writer.temporaries)

    lane += row_rank * shared.lanes_per_rank
    counts, after = _dependencies(waits, more)
    table = Rows(kind, numbers, counts, after, seconds, fill)
    return assemble(
        ending.joined(table, problem),
        problem,
        ops.stationary,
        shared,
        ending.chosen,
        lambda: _pools(ops, options, fetched(), slot_ops)[1],
    )


def _dependencies(waits: Ints, more: tuple[Ints, Ints] | None) -> tuple[Ints, Ints]:
    """Return how many actions each row waits for, and which: its columns (−1 is none), then the pairs."""
    named = waits >= 0
    counts, after = np.add.reduce(named, axis=1, dtype=np.int64), waits[named]
    if more is None or not len(more[0]):
        return counts, after
    extra, other = more
    row = np.concatenate([named.nonzero()[0], extra])
    by_row = row.argsort(kind="stable")
    return counts + np.bincount(extra, minlength=len(waits)), np.concatenate([after, other])[by_row]


def _pools(ops: OpList, options: Options, x: Fetches, slot_ops: Ints) -> tuple[Ints, list[Ints]]:
    """Return each rank's first slot for A, B and C, shape (3, p), and the bytes of each rank's slots.

    A and B have prefetch + max_gemms slots each, as large as the rank's largest fetch; C has max_gemms +
    max_accumulates, as large as its largest update. A rank that fetches nothing needs no slots.
    """
    problem, rank = ops.problem, ops.rank
    m, n, _ = ops.sizes
    largest = np.zeros((3, problem.p), dtype=np.int64)
    for operand, matrix in enumerate("AB"):
        gets = x.of(operand)
        payload = x.elements[gets] * problem.itemsize(matrix)
        np.maximum.at(largest[operand], rank[x.op[gets]], payload)
    np.maximum.at(largest[2], rank[slot_ops], (m * n)[slot_ops] * problem.itemsize("C"))
    depth = options.prefetch + options.max_gemms
    slots = np.array([depth, depth, options.max_gemms + options.max_accumulates])[:, None] * (largest > 0)
    base = slots.cumsum(axis=0) - slots
    return base, [largest[:, r].repeat(slots[:, r]) for r in range(problem.p)]
