"""From IR to a schedule: a rank's step begins when all of its step before has finished.

Rows go step by step, ranks ascending; within a step gets, then accumulates, then gemms. A fetched tile stays
in its pool slot until the last step that reads it. So no tile is fetched twice, and the pool holds as much as
is needed at once; a contribution to C stays until the step that sends it.
"""

from collections.abc import Sequence

import numpy as np

from umm import cost
from umm.arrays import Floats, Ints, offsets_of
from umm.dtypes import payload_bytes
from umm.machines import Machine
from umm.plans.multiply.operands import Writer, added_again, elements, first_read, firsts, refills, strided
from umm.plans.multiply.options import Options
from umm.plans.multiply.replicas import ending_of
from umm.plans.multiply.rows import Rows, assemble
from umm.policies.graph import Graph
from umm.policies.ir import IR, Steps
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Buffers, joined
from umm.schedules.table.details import ACCUMULATE, GEMM, GET, Details
from umm.schedules.table.resources import Platform


def stepwise(ir: IR, machine: Machine, options: Options) -> Schedule:
    """Return the schedule that performs an IR."""
    problem = ir.ops.problem
    ending = ending_of(problem, machine, options)
    options, shared = ending.options, ending.shared
    m, n, _ = ir.ops.sizes
    got = [elements(ir.ops, x, options.granularity == "slice") * problem.itemsize(x) for x in "AB"]
    pools = [_Pool(ir, [*got, m * n * problem.itemsize("C")], rank) for rank in range(problem.p)]
    table = _Table(ir, shared, options, pools)
    rows = table.rows(machine)
    pool_sizes = [pool.sizes for pool in pools]
    return assemble(rows, ending, problem, ir.ops.stationary, table.fill, lambda: pool_sizes)


class _Pool:
    """The pool slots of a rank: first those for tiles of A and B, then those for C."""

    def __init__(self, ir: IR, nbytes: Sequence[Ints], rank: int) -> None:
        # nbytes: of A and B that each op of the list would get, and of C that it sends.
        graph, steps = ir.graphs[rank], ir.steps[rank]
        ran = {i: t for t, step in enumerate(steps) for i in step.gemms}
        sent = {i: t for t, step in enumerate(steps) for i in step.accumulates}
        fetched = [(t, x) for t, step in enumerate(steps) for x in step.gets]
        stays = [
            (t, max(ran[i] for i in graph.readers[x]), int(nbytes[data.matrix][data.op]))
            for t, x in fetched
            for data in [graph.data[x]]
        ]
        slots, sizes = _slots(stays)
        # Slot of each fetched datum.
        self.data = {x: slot for (_, x), slot in zip(fetched, slots, strict=True)}
        waiting = sorted(sent, key=lambda i: ran[i])
        sums = [(ran[i], sent[i], int(nbytes[2][graph.first + i])) for i in waiting]
        slots, more = _slots(sums)
        # Slot of each component multiply that has one.
        self.updates = {i: len(sizes) + slot for i, slot in zip(waiting, slots, strict=True)}
        self.sizes: Ints = np.array(sizes + more, dtype=np.int64)  # bytes of each slot


def _slots(stays: list[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """Return the slot of each stay and the bytes of each slot.

    Args:
        stays: First and last step and bytes of what must be kept, by first step.

    >>> _slots([(0, 1, 8), (0, 2, 4), (2, 2, 6)])
    ([0, 1, 0], [8, 4])
    """
    sizes: list[int] = []
    busy_until: list[int] = []
    slots = []
    for first, last, nbytes in stays:
        free = [slot for slot, until in enumerate(busy_until) if until < first]
        fitting = [slot for slot in free if sizes[slot] >= nbytes]
        if fitting:
            slot = min(fitting, key=lambda s: sizes[s])
        elif free:
            slot = max(free, key=lambda s: sizes[s])
        else:
            slot = len(sizes)
            sizes.append(0)
            busy_until.append(0)
        sizes[slot] = max(sizes[slot], nbytes)
        busy_until[slot] = last
        slots.append(slot)
    return slots, sizes


class _Table:
    """The rows of all ranks' steps, by action."""

    def __init__(self, ir: IR, shared: Platform, options: Options, pools: list[_Pool]) -> None:
        self.ir, self.shared, self.options, self.pools = ir, shared, options, pools
        self.actions: list[tuple[int, ...]] = []  # kind, rank, lane, src, dst and nbytes of each row
        self.after: list[list[int]] = []  # rows that each waits for
        ops = ir.ops
        self.gemm_row = np.zeros(len(ops), dtype=np.int64)
        self.got: list[tuple[int, Graph, int]] = []  # row, graph and datum of each get
        self.sent: list[tuple[int, int, int]] = []  # row, op and slot of each accumulate
        ranks = range(ops.problem.p)
        previous: list[list[int]] = [[] for _ in ranks]
        self.gets, self.accumulates = [0 for _ in ranks], [0 for _ in ranks]
        self.c_tile = ops.tiles[2].tolist()
        for number in range(max(map(len, ir.steps), default=0)):
            for rank in ranks:
                if number < len(ir.steps[rank]):
                    previous[rank] = self._step(rank, ir.steps[rank], number, previous[rank])

    def _add(self, kind: int, rank: int, lane: int, after: list[int], *moved: int) -> int:
        """Add a row and return its number."""
        # moved: source, target and bytes.
        self.actions.append((kind, rank, lane, *moved))
        self.after.append(after)
        return len(self.after) - 1

    def _step(self, rank: int, steps: Steps, number: int, previous: list[int]) -> list[int]:
        """Add the rows of a rank's step; return them."""
        step, graph, pool = steps[number], self.ir.graphs[rank], self.pools[rank]
        first_lane = rank * self.shared.lanes_per_rank
        rows = []
        for x in step.gets:
            data = graph.data[x]
            lane = first_lane + 1 + self.gets[rank] % self.shared.machine.copy_engines
            row = self._add(GET, rank, lane, previous, data.source, rank, data.nbytes)
            self.got.append((row, graph, x))
            self.gets[rank] += 1
            rows.append(row)
        for i in step.accumulates:
            update = graph.updates[i]
            assert update is not None
            lane = self.accumulates[rank] % self.options.max_accumulates + self.shared.first_accumulate
            ends = rank, update.target, update.nbytes
            row = self._add(ACCUMULATE, rank, first_lane + lane, previous, *ends)
            self.sent.append((row, graph.first + i, pool.updates[i]))
            self.accumulates[rank] += 1
            rows.append(row)
        in_place: dict[int, int] = {}  # the step's last gemm that adds to a tile of C in place
        for i in step.gemms:
            op = graph.first + i
            after = previous
            if graph.updates[i] is None:
                tile = self.c_tile[op]
                after = [*previous, in_place[tile]] if tile in in_place else previous
            row = self._add(GEMM, rank, first_lane, after, -1, -1, 0)
            if graph.updates[i] is None:
                in_place[tile] = row
            self.gemm_row[op] = row
            rows.append(row)
        return rows

    def rows(self, machine: Machine) -> Rows:
        """Return the rows with their costs."""
        ops, problem = self.ir.ops, self.ir.ops.problem
        m, n, k = ops.sizes
        kind, *others = np.array(self.actions, dtype=np.int64).reshape(-1, 6).T
        numbers, seconds = np.array(others), np.zeros(len(kind))
        again = added_again(ops, self.gemm_row) if machine.refill else 0
        seconds[self.gemm_row] = cost.multiply_seconds(
            machine,
            problem.dtype,
            m,
            n,
            k,
            problem.itemsize("C"),
            again=again,
            pace=cost.pace_of(machine, ops.rank, problem.p),
        )
        if self.sent:
            row, op, slot = np.array(self.sent, dtype=np.int64).T
            payload = (m * n)[op] * problem.itemsize("C")
            pace = cost.pace_of(machine, ops.rank[op], problem.p)
            local = cost.local_accumulate_seconds(machine, payload, strided(ops)[op], pace)
            seconds[row] = np.where(numbers[2, row] == numbers[3, row], local, 0.0)
            if machine.refill:
                seconds[row] += refills(machine, ops, op, payload, got=False)
                new = firsts(self.gemm_row[op], ops.rank[op], slot)
                seconds[self.gemm_row[op[new]]] += cost.load_seconds(machine, payload[new])
        if machine.refill:
            self._refill(machine, seconds)
        return Rows(
            kind.astype(np.int8),
            numbers,
            offsets_of([len(after) for after in self.after]),
            np.array([before for after in self.after for before in after], dtype=np.int64),
            seconds,
        )

    def _refill(self, machine: Machine, seconds: Floats) -> None:
        """Add the cost of gets to the gemms of their ranks, and of first reads to the gemms that do them."""
        ops, slices = self.ir.ops, self.options.granularity == "slice"
        large = []
        for matrix, name in enumerate("AB"):
            row, op, _, (reader, get) = self._gets(matrix)
            moved = payload_bytes(elements(ops, name, slices)[op], ops.problem.dtype)
            seconds[row] = refills(machine, ops, op, moved, got=True)
            some = cost.leaves_caches(machine, moved)[get]
            large.append((reader[some], get[some]))
        seconds[self.gemm_row] += cost.load_seconds(machine, first_read(ops, self.gemm_row, large))

    def _gets(self, matrix: int) -> tuple[Ints, Ints, Ints, Ints]:
        """Return row, op and slot of each get of a matrix, and the ops that read them, each with its get."""
        got = [(row, graph, x) for row, graph, x in self.got if graph.data[x].matrix == matrix]
        gets = [(row, graph.data[x].op, self.pools[graph.rank].data[x]) for row, graph, x in got]
        readers = [(graph.first + i, get) for get, (_, graph, x) in enumerate(got) for i in graph.readers[x]]
        row, op, slot = np.array(gets, dtype=np.int64).reshape(-1, 3).T
        return row, op, slot, np.array(readers, dtype=np.int64).reshape(-1, 2).T

    def fill(self, details: Details, first: int) -> Buffers:
        """Write the operands of each action; see :func:`umm.plans.multiply.rows.assemble`."""
        ops = self.ir.ops
        starts = np.array([graph.first for graph in self.ir.graphs], dtype=np.int64)
        number = np.arange(len(ops)) - starts[ops.rank]
        writer = Writer(details, ops, number, first)
        by_tile = self.options.granularity == "tile"
        writer.gemms(self.gemm_row)
        for matrix in range(2):
            row, op, slot, (reader, get) = self._gets(matrix)
            writer.gets(matrix, row, op, np.full(len(row), by_tile), slot, (self.gemm_row[reader], get))
        row, op, slot = np.array(self.sent, dtype=np.int64).reshape(-1, 3).T
        writer.updates(row, self.gemm_row[op], op, slot)
        return joined(writer.temporaries)
