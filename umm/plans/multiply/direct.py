"""Direct execution: every op in the order of the op list, with prefetch, bounded concurrency and a pool.

The rules are those of "Direct execution as dependencies" in docs/reference/schedule.md. First a plan is made
of where the actions of each op stand (get A, get B, gemm, accumulate) and what they wait for, by ``_plan.c``.
Then each column gets its costs.

Every op reads A and B. With N ops, read i is op i's read of A and read N + i its read of B.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from umm import cost
from umm.arrays import Bools, Floats, Ints, rows_of_groups
from umm.dtypes import payload_bytes
from umm.machines import Machine
from umm.plans.multiply.operands import Writer, added_again, elements, first_read, refills, spans, strided
from umm.plans.multiply.oplist import OpList, op_list
from umm.plans.multiply.options import Options
from umm.plans.multiply.replicas import ending_of
from umm.plans.multiply.rows import OpRows, assemble, rows_of
from umm.program.problem import MATRICES, Problem
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Buffers, joined
from umm.schedules.table.details import GET, Details
from umm.schedules.table.table import Amounts


def direct(problem: Problem, machine: Machine, stationary: str, options: Options) -> Schedule:
    """Return the schedule of direct execution.

    Source: Brock & Golin (2025), section 4.2.
    """
    return lower(op_list(problem, stationary, offset=options.offset), machine, options)


def lower(ops: OpList, machine: Machine, options: Options) -> Schedule:
    """Return the schedule that performs an op list in its own order by the rules of direct execution."""
    problem, rank = ops.problem, ops.rank
    ending = ending_of(problem, machine, options)
    options, shared = ending.options, ending.shared
    # A pool slot is taken from the get to the end of the gemm (A, B), or from the gemm to the end of the
    # accumulate (C): hence the sums.
    depth, c_slots = options.prefetch + options.max_gemms, options.max_gemms + options.max_accumulates
    # Where an action costs what its shape does, a shape is priced once.
    alone = not machine.refill and not machine.cache and machine.paces is None
    plan = rows_of(ops, shared, options, priced=alone)
    if not alone:
        price_together(ops, plan, machine, c_slots)

    def fill(details: Details, first: int) -> Buffers:
        gemm_row, get_row, c_row, slot_ops = plan.gemm_row, plan.get_row, plan.update_row, plan.update_op
        x, number = fetches(ops, plan), np.arange(len(ops)) - rank.searchsorted(rank)
        base = _pools(ops, options, plan)[0]
        writer = Writer(details, ops, number, first)
        writer.gemms(gemm_row)
        for operand in range(2):
            gets = x.of(operand)
            op = x.op[gets]
            slot = base[operand][rank[op]] + x.number[gets] % depth
            served = (x.remote >= x.count) == bool(operand)
            reads = gemm_row[x.remote[served] % x.count], x.served_by[served] - (gets.start or 0)
            writer.gets(operand, get_row[gets], op, x.whole[gets], slot, reads)
        slot = base[2][rank[slot_ops]] + numbers_of_updates(ops, plan) % c_slots
        writer.updates(c_row, gemm_row[slot_ops], slot_ops, slot)
        return joined(writer.temporaries)

    def amounts() -> Amounts:
        (m, n, k), get_row, c_row = ops.sizes, plan.get_row, plan.update_row
        count = len(plan.rows.kind)
        payload, multiplied = np.zeros(count, dtype=np.int64), np.zeros((3, count), dtype=np.int64)
        payload[get_row] = plan.elements * problem.itemsize("A")
        payload[c_row] = payloads(ops, plan)
        multiplied[:, plan.gemm_row] = m, n, k
        moved = np.full(len(payload), -1, dtype=np.int64)
        moved[get_row[: plan.a_gets]], moved[get_row[plan.a_gets :]], moved[c_row] = range(len(MATRICES))
        return Amounts(payload, multiplied, moved)

    def pools() -> list[Ints]:
        return _pools(ops, options, plan)[1]

    return assemble(plan.rows, ending, problem, ops.stationary, fill, pools, amounts)


def numbers_of_updates(ops: OpList, plan: OpRows) -> Ints:
    """Return the number of each update of C that goes through a slot among those of its rank."""
    rank = ops.rank[plan.update_op]
    numbers: Ints = np.arange(len(rank)) - rank.searchsorted(rank)
    return numbers


def payloads(ops: OpList, plan: OpRows) -> Ints:
    """Return the bytes of each update of C that goes through a slot."""
    m, n, _ = ops.sizes
    nbytes: Ints = (m * n)[plan.update_op] * ops.problem.itemsize("C")
    return nbytes


def price_together(ops: OpList, plan: OpRows, machine: Machine, c_slots: int) -> None:
    """Write the bytes and seconds of rows on a machine where they depend on earlier actions of a rank.

    Args:
        machine: One whose GEMMs load data again, whose caches keep what was got, or whose devices differ.
    """
    problem, rank, (m, n, k) = ops.problem, ops.rank, ops.sizes
    gemm_row, get_row, c_row, slot_ops = plan.gemm_row, plan.get_row, plan.update_row, plan.update_op
    _, _, src, dst, nbytes = plan.rows.numbers
    seconds = plan.rows.seconds
    again = added_again(ops, gemm_row) if machine.refill else 0
    pace = cost.pace_of(machine, rank, problem.p)
    seconds[gemm_row] = cost.multiply_seconds(
        machine, problem.dtype, m, n, k, problem.itemsize("C"), again=again, pace=pace
    )
    moved = payload_bytes(plan.elements, problem.dtype)
    x = fetches(ops, plan)
    if machine.refill:
        large = readers(x, cost.leaves_caches(machine, moved))
        seconds[gemm_row] += cost.load_seconds(machine, first_read(ops, gemm_row, large))
    if len(get_row):
        cached = shares_cached(x, ops, moved, machine) if machine.cache else False
        nbytes[get_row] = cost.transfer_bytes(machine, moved, cached)
        if machine.refill:
            seconds[get_row] = refills(machine, ops, x.op, moved, got=True)
    if not len(slot_ops):
        return
    # Adding to some columns of a tile is strided in memory and slower than adding to whole rows.
    payload, apart = payloads(ops, plan), strided(ops)[slot_ops]
    nbytes[c_row] = cost.accumulate_bytes(machine, payload, apart)
    local = dst[c_row] == src[c_row]
    slow = cost.pace_of(machine, rank[slot_ops], problem.p)
    seconds[c_row] = np.where(local, cost.local_accumulate_seconds(machine, payload, apart, slow), 0.0)
    if machine.refill:
        seconds[c_row] += refills(machine, ops, slot_ops, payload, got=False)
        # Only the first use of each C slot touches cold memory; later uses find it in the caches.
        new = numbers_of_updates(ops, plan) < c_slots
        seconds[gemm_row[slot_ops[new]]] += cost.load_seconds(machine, payload[new])


def _pools(ops: OpList, options: Options, plan: OpRows) -> tuple[Ints, list[Ints]]:
    """Return each rank's first slot for A, B and C, shape (3, p), and the bytes of each rank's slots.

    A and B have prefetch + max_gemms slots each, as large as the rank's largest fetch; C has max_gemms +
    max_accumulates, as large as its largest update. A rank that fetches nothing needs no slots.
    """
    problem, p, of_b = ops.problem, ops.problem.p, plan.a_gets
    # Slots of an operand at a rank are equally large, so that any fetch fits any slot and turns are plain
    # modulo arithmetic.
    largest, rank = np.zeros((3, p), dtype=np.int64), plan.rows.numbers[0]
    np.maximum.at(largest[0], rank[plan.get_row[:of_b]], plan.elements[:of_b])
    np.maximum.at(largest[1], rank[plan.get_row[of_b:]], plan.elements[of_b:])
    np.maximum.at(largest[2], rank[plan.update_row], payloads(ops, plan))
    largest[0] *= problem.itemsize("A")
    largest[1] *= problem.itemsize("B")
    depth = options.prefetch + options.max_gemms
    slots = np.array([[depth], [depth], [options.max_gemms + options.max_accumulates]]) * (largest > 0)
    ends = slots.cumsum(axis=0)
    sizes, last = largest.T.ravel().repeat(slots.T.ravel()), ends[2].cumsum().tolist()
    return ends - slots, [sizes[start:end] for start, end in pairwise([0, *last])]


@dataclass(frozen=True, eq=False)
class Fetches:
    """The gets of A, then those of B, each in the order of the op list; a get is known by its place there."""

    count: int  # number of ops, N
    op: Ints  # the op of each get
    of_b: Bools  # whether a get moves B
    whole: Bools  # whether it moves the whole tile
    number: Ints  # number of each get among the rank's gets of this operand
    remote: Ints  # the reads of tiles that are not the rank's own, ascending
    served_by: Ints  # the get that serves each of them

    def of(self, operand: int) -> slice:
        """Return the places of the gets of A (0) or B (1)."""
        first_of_b = int(self.of_b.searchsorted(True))
        return slice(first_of_b, None) if operand else slice(0, first_of_b)


def fetches(ops: OpList, plan: OpRows) -> Fetches:
    """Return the gets of a plan, read off its rows.

    The rows of an op are its gets, its gemm and its accumulate, and a gemm waits for the gets of all that it
    reads.
    """
    count, gets = len(ops), len(plan.get_row)
    # An op's gets stand right before its gemm, so the first gemm row after a get is that of its op.
    order = plan.gemm_row.argsort()
    op: Ints = order[plan.gemm_row[order].searchsorted(plan.get_row)]
    of_b = np.arange(gets) >= plan.a_gets
    sizes = [elements(ops, matrix, False)[op] for matrix in "AB"]
    # Ranks of B's gets are shifted by p, so that one sorted column numbers both operands' gets.
    rank = ops.rank[op] + of_b * ops.problem.p
    kind, _, offsets, after, _ = plan.rows
    reader = np.arange(count).repeat(offsets[plan.gemm_row + 1] - offsets[plan.gemm_row])
    waited = after[rows_of_groups(offsets, plan.gemm_row)]
    is_get = kind[waited] == GET
    # From a row of the table to the number of the get that stands there.
    place = np.empty(len(kind), dtype=np.int64)
    place[plan.get_row] = np.arange(gets)
    get = place[waited[is_get]]
    read = reader[is_get] + count * of_b[get]
    ascending = read.argsort()
    return Fetches(
        count,
        op,
        of_b,
        plan.elements == np.where(of_b, sizes[1], sizes[0]),
        np.arange(gets) - rank.searchsorted(rank),
        read[ascending],
        get[ascending],
    )


def shares_cached(x: Fetches, ops: OpList, nbytes: Ints, machine: Machine) -> Floats:
    """Return for each get from a cache the mean over ranks of bytes got so, over that of its own rank.

    At most 1, and 0 for gets from memory: of what their rank did not get before, or got too many bytes ago.
    Ranks that the problem leaves idle get nothing.

    Args:
        machine: How many bytes a rank may have got since, its own included.
    """
    rank, b = ops.rank[x.op], x.of_b
    tile, piece = (
        np.where(b, *(x_of[x.op] for x_of in spans(ops, slices)[::-1])) for slices in (False, True)
    )
    # Negative numbers for whole tiles: a tile and a slice with the same number are different ranges.
    piece = np.where(x.whole, -1 - tile, piece)
    order = np.lexsort((b, x.op))
    # Approximates an LRU cache: a range is still there if fewer bytes than the cache holds came since.
    until = np.empty(len(b), dtype=np.int64)  # bytes of all gets up to the end of each
    until[order] = nbytes[order].cumsum()
    order = np.lexsort((until, piece, b, rank))
    before, then = order[:-1], order[1:]
    same = (piece[before] == piece[then]) & (b[before] == b[then]) & (rank[before] == rank[then])
    cached = np.zeros(len(b))
    cached[then] = same & (until[then] - until[before] <= machine.cache)
    of_rank = np.bincount(rank, cached * nbytes, ops.problem.p)
    mean = of_rank.sum() / max(ops.problem.p, machine.device_count)
    shares: Floats = cached * np.minimum(1.0, mean / np.maximum(of_rank, 1.0))[rank]
    return shares


def readers(x: Fetches, gets: Bools) -> list[tuple[Ints, Ints]]:
    """Return for A and for B the ops that read from these gets, and each one's get."""
    of_b, some = x.remote >= x.count, gets[x.served_by]
    reads = [some & ~of_b, some & of_b]
    return [(x.remote[read] % x.count, x.served_by[read]) for read in reads]
