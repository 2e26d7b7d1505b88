"""Direct execution: every op in the order of the op list, with prefetch, bounded concurrency and a pool.

The rules are those of "Direct execution as dependencies" in docs/reference/schedule.md. The whole table is
built by NumPy: an op has up to four actions (get A, get B, gemm, accumulate), so each column is a few
scatters over the op list.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umm import cost
from umm.layout import Layout
from umm.machines import Machine
from umm.oplist import OpList, op_list
from umm.problem import Problem
from umm.schedules.operands import Writer, elements, in_place_chain, spans, updates
from umm.schedules.options import Options
from umm.schedules.rows import Rows, assemble, fabric, with_replica_traffic
from umm.schedules.table import ACCUMULATE, GEMM, GET, Details, Ints, Schedule

Bools = NDArray[np.bool_]


def direct(problem: Problem, machine: Machine, stationary: str, options: Options) -> Schedule:
    """Return the schedule of direct execution.

    Source: Brock & Golin (2025), section 4.2.
    """
    return lower(op_list(problem, stationary, offset=options.offset), machine, options)


@dataclass(frozen=True, eq=False)
class Fetches:
    """The gets of one operand: which ops fetch, and which get each op reads.

    Attributes:
        ops: The fetching ops, ascending; a get is known by its place in this column.
        fetch: For every op whether it fetches.
        src: For each get the owner of the tile, in the reader's own replica.
        number: For each get its number among the rank's gets of this operand.
        last_reader: For each get the last op that reads it.
        readers: The ops that read a remote tile, ascending.
        read: For each of them the get it reads.
    """

    ops: Ints
    fetch: Bools
    src: Ints
    number: Ints
    last_reader: Ints
    readers: Ints
    read: Ints


def fetches(layout: Layout, rank: Ints, tile: Ints, span: Ints, starts: Ints, reuse: bool) -> Fetches:
    """Find the gets of one operand.

    Args:
        layout: Layout of the operand.
        rank: Rank of each op.
        tile: Row-major tile each op reads.
        span: A number for the range an op would fetch: its tile or its slice.
        starts: First op of each rank.
        reuse: An op that needs the range of the op before it does not fetch again.
    """
    src = layout.replica_owners[layout.replica_of_rank[rank], tile]
    remote = src != rank
    fetch = remote
    if reuse:
        new = np.ones(len(rank), dtype=bool)
        new[1:] = (span[1:] != span[:-1]) | (rank[1:] != rank[:-1])
        fetch = remote & new
    ops, readers = fetch.nonzero()[0], remote.nonzero()[0]
    read = fetch.cumsum()[readers] - 1
    last_reader = np.empty(len(ops), dtype=np.int64)
    last_reader[read] = readers  # readers ascend, so the last assignment is the last reader
    return Fetches(ops, fetch, src[ops], _number_within(rank[ops], starts, ops), last_reader, readers, read)


def _number_within(rank: Ints, starts: Ints, ops: Ints) -> Ints:
    """Number the chosen ops of each rank 0, 1, …; ``ops`` ascend."""
    return np.arange(len(ops)) - ops.searchsorted(starts)[rank]


def lower(ops: OpList, machine: Machine, options: Options) -> Schedule:
    """Return the schedule that performs an op list in its own order by the rules of direct execution."""
    problem, rank, count = ops.problem, ops.rank, len(ops)
    shared = fabric(machine, problem.p, options.max_accumulates)
    depth = options.prefetch + options.max_gemms
    starts = rank.searchsorted(np.arange(problem.p))
    number = np.arange(count) - starts[rank]
    a_tile, b_tile, c_tile = ops.tiles
    m, n, k = ops.sizes
    slices = options.granularity == "slice"
    a_span, b_span = spans(ops, slices)
    a = fetches(problem.layouts[0], rank, a_tile, a_span, starts, options.reuse)
    b = fetches(problem.layouts[1], rank, b_tile, b_span, starts, options.reuse)
    c_owner, slotted = updates(problem.layouts[2], rank, c_tile)
    slot_ops = slotted.nonzero()[0]
    c_number = _number_within(rank[slot_ops], starts, slot_ops)

    # Rows: op 0 of every rank, then op 1 of every rank, …; within an op get A, get B, gemm, accumulate.
    size = 1 + a.fetch + b.fetch + slotted
    order = number.argsort(kind="stable")
    op_row = np.empty(count, dtype=np.int64)
    op_row[order] = size[order].cumsum() - size[order]
    a_row, b_row = op_row[a.ops], (op_row + a.fetch)[b.ops]
    gemm_row = op_row + a.fetch + b.fetch
    c_row = gemm_row[slot_ops] + 1
    rows = int(size.sum())

    kind = np.full(rows, GEMM, dtype=np.int8)
    row_rank, lane = np.empty(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    src, dst = np.full(rows, -1, dtype=np.int64), np.full(rows, -1, dtype=np.int64)
    nbytes, seconds = np.zeros(rows, dtype=np.int64), np.zeros(rows)
    waits = np.full((rows, 3), -1, dtype=np.int64)  # at most three dependencies each, a column per reason,
    more: list[tuple[Ints, Ints]] = []  # but a get also waits for all gemms that share the slot it refills
    row_rank[gemm_row] = rank
    seconds[gemm_row] = cost.gemm_seconds(machine, problem.dtype, m, n, k, problem.itemsize("C"))

    gets_before: Ints = a.fetch.cumsum() + b.fetch.cumsum() - a.fetch - b.fetch
    gets_before -= gets_before[np.minimum(starts, count - 1)][rank]
    for column, (x, get, matrix, gets) in enumerate(
        ((a, a_row, "A", gets_before), (b, b_row, "B", gets_before + a.fetch))
    ):
        if not len(get):
            continue
        kind[get] = GET
        row_rank[get] = dst[get] = rank[x.ops]
        src[get] = x.src
        lane[get] = 1 + gets[x.ops] % machine.copy_engines
        payload = elements(ops, matrix, slices)[x.ops] * problem.itemsize(matrix)
        nbytes[get] = cost.transfer_bytes(machine, payload)
        waits[gemm_row[x.readers], column] = get[x.read]
        late = (number[x.ops] >= depth).nonzero()[0]
        if not len(late):
            continue
        waits[get[late], 0] = gemm_row[x.ops[late] - depth]
        refill = (x.number >= depth).nonzero()[0]
        reader = x.last_reader[refill - depth]
        waits[get[refill], 1] = np.where(reader == x.ops[refill] - depth, -1, gemm_row[reader])
        if len(x.readers) > len(x.ops):
            more.append(_earlier_readers(x, rank, number, depth, get, gemm_row))

    if len(slot_ops):
        kind[c_row] = ACCUMULATE
        row_rank[c_row] = src[c_row] = rank[slot_ops]
        dst[c_row] = c_owner[slot_ops]
        lane[c_row] = shared.first_accumulate + c_number % options.max_accumulates
        payload = (m * n)[slot_ops] * problem.itemsize("C")
        nbytes[c_row] = cost.accumulate_bytes(machine, payload)
        local = c_owner[slot_ops] == rank[slot_ops]
        seconds[c_row] = np.where(local, cost.local_accumulate_seconds(machine, payload), 0.0)
        waits[c_row, 0] = gemm_row[slot_ops]
        c_slots = options.max_gemms + options.max_accumulates
        refill = (c_number >= c_slots).nonzero()[0]
        waits[gemm_row[slot_ops[refill]], 2] = c_row[refill - c_slots]
    if len(slot_ops) < count:
        before, later = in_place_chain(rank, c_tile, (~slotted).nonzero()[0])
        waits[gemm_row[later], 2] = gemm_row[before]

    def fill(details: Details) -> None:
        _fill(details, ops, options, (a, b), (a_row, b_row), gemm_row, slot_ops, c_row, c_number, number)

    lane += row_rank * shared.lanes_per_rank
    counts, after = _dependencies(waits, more)
    table = Rows(kind, row_rank, lane, counts, after, src, dst, nbytes, seconds, fill)
    parts = with_replica_traffic(table, problem, shared, options)
    return assemble(
        parts, problem, ops.stationary, shared, options, lambda: _pools(ops, options, (a, b), slot_ops)[1]
    )


def _earlier_readers(
    x: Fetches, rank: Ints, number: Ints, depth: int, get: Ints, gemm_row: Ints
) -> tuple[Ints, Ints]:
    """Return pairs (get, gemm): the gemm reads what the get overwrites, and is not the last to do so.

    In lane order waiting for the last one is enough, but dependencies alone must make a schedule right.
    """
    earlier = (x.last_reader[x.read] != x.readers).nonzero()[0]
    reader, refill = x.readers[earlier], x.read[earlier] + depth
    exists = refill < len(x.ops)
    reader, refill = reader[exists], refill[exists]
    op = x.ops[refill]
    needed = (rank[op] == rank[reader]) & (number[reader] != number[op] - depth)
    return get[refill[needed]], gemm_row[reader[needed]]


def _dependencies(waits: Ints, more: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Return how many actions each row waits for, and which: its columns (−1 is none), then the pairs."""
    named = waits >= 0
    counts, after = named.sum(axis=1), waits[named]
    if not more:
        return counts, after
    extra = np.concatenate([row for row, _ in more])
    row = np.concatenate([named.nonzero()[0], extra])
    by_row = np.argsort(row, kind="stable")
    after = np.concatenate([after, *(gemm for _, gemm in more)])[by_row]
    return counts + np.bincount(extra, minlength=len(waits)), after


def _pools(
    ops: OpList, options: Options, operands: tuple[Fetches, Fetches], slot_ops: Ints
) -> tuple[Ints, list[Ints]]:
    """Return each rank's first slot for A, B and C, shape (3, p), and the bytes of each rank's slots.

    A and B have prefetch + max_gemms slots each, as large as the rank's largest fetch; C has max_gemms +
    max_accumulates, as large as its largest update. A rank that fetches nothing needs no slots.
    """
    problem, rank = ops.problem, ops.rank
    m, n, _ = ops.sizes
    slices = options.granularity == "slice"
    largest = np.zeros((3, problem.p), dtype=np.int64)
    for x, matrix in enumerate("AB"):
        fetching = operands[x].ops
        nbytes = elements(ops, matrix, slices)[fetching] * problem.itemsize(matrix)
        np.maximum.at(largest[x], rank[fetching], nbytes)
    np.maximum.at(largest[2], rank[slot_ops], (m * n)[slot_ops] * problem.itemsize("C"))
    depth = options.prefetch + options.max_gemms
    slots = np.array([depth, depth, options.max_gemms + options.max_accumulates])[:, None] * (largest > 0)
    base = np.cumsum(slots, axis=0) - slots
    return base, [np.repeat(largest[:, r], slots[:, r]) for r in range(problem.p)]


def _fill(
    details: Details,
    ops: OpList,
    options: Options,
    operands: tuple[Fetches, Fetches],
    get_rows: tuple[Ints, Ints],
    gemm_row: Ints,
    slot_ops: Ints,
    c_row: Ints,
    c_number: Ints,
    number: Ints,
) -> None:
    """Write what each action touches: tiles, slices and pool slots."""
    rank = ops.rank
    depth = options.prefetch + options.max_gemms
    base = _pools(ops, options, operands, slot_ops)[0]
    writer = Writer(details, ops, number, options.granularity == "slice")
    writer.gemms(gemm_row)
    for index, slots_read in enumerate((details.a_slot, details.b_slot)):
        x = operands[index]
        slot = base[index][rank[x.ops]] + x.number % depth
        slots_read[gemm_row[x.readers]] = slot[x.read]
        writer.gets(index, get_rows[index], x.ops, slot)
    slot = base[2][rank[slot_ops]] + c_number % (options.max_gemms + options.max_accumulates)
    writer.updates(c_row, gemm_row[slot_ops], slot_ops, slot)
