"""Each rank's part in performing a schedule over MPI: hold its tiles, run its lanes, report its spans.

A plain process names ``perform`` to the ranks, so nothing here loads MPI.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from umm.arrays import Floats, Ints
from umm.machines.fabric import narrowest
from umm.schedules.file.arrays import from_arrays
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import BARRIER, KINDS
from umm_hw.blocks import needed_bytes, resolve
from umm_hw.cores.pace import Pace, Reading
from umm_hw.gemm import multiply
from umm_hw.mpi.delays import delayed
from umm_hw.mpi.job.activity import ACTIVITY
from umm_hw.mpi.lanes import RankLanes
from umm_hw.mpi.memory import check_memory
from umm_hw.performance import Arrays, Performance, gathered_bytes
from umm_hw.steps import array_step
from umm_hw.transport import Block
from umm_hw.waits import rank_order

if TYPE_CHECKING:
    from umm_hw.mpi.transport import MpiTransport

LEAD = 1e-3  # seconds from agreeing on the start to the start
LEAST_LIMIT = 10.0  # seconds an action may run, whatever was predicted
PATIENCE = 20.0  # times the predicted seconds an action may run
SLOW_CORE, SLOW_COPY = 2e9, 2e8  # flop/s and bytes/s that any host reaches, where a prediction is for another
READING = 100  # multiplies between two runs that tell the pace, about 10 ms: as long as short runs take
_ONE = np.ones((1, 1), dtype=np.uint8)


class Run(NamedTuple):
    """One run of a schedule."""

    start: Floats  # start of every action, in seconds after the run's start
    end: Floats
    # Of each rank the pace before the run, what it took and had of its core, and the pace after; none unless
    # asked for.
    readings: list[tuple[Reading, Reading, Reading]]


Runs = tuple[list[Run], Arrays]


def perform(
    transport: "MpiTransport",
    arrays: Mapping[str, Any],
    operands: Arrays | None = None,
    replica: int | None = 0,
    repeat: int = 1,
    save: Path | None = None,
    paced: bool = False,
    delays: Floats | None = None,
) -> Runs | None:
    """Perform a schedule; collective.

    Args:
        transport: How this rank reaches the others, as many as the schedule has; without heaps, which the
            caller frees.
        operands: By name, on rank 0.
        replica: Replica that is gathered; None for all.
        repeat: How often to perform it, with the same operands.
        save: Folder of the checkpoint that operands and results become after the last run, if any.
        paced: Whether to read the pace of every rank before and after each run.
        delays: For each run the factors of :func:`umm_hw.mpi.delays.delayed`; none are late if None.

    Returns:
        On rank 0 the runs, and the outputs of the last one by name; None elsewhere.
    """
    schedule = from_arrays(arrays, Schedule)
    signals = rank_order(schedule, transport.rank)
    needs = needed_bytes(schedule) + signals.flag_count
    result_bytes = gathered_bytes(schedule, replica) if transport.rank == 0 else 0
    with ACTIVITY.during("all ranks to have memory"):
        check_memory(transport, schedule, int(needs[transport.rank]), result_bytes)
        heaps = len(schedule.tensors) + 2  # the pools and the flags; each starts at a cache line
        transport.reserve((needs + 64 * heaps).tolist())
        performance = Performance(schedule, [transport], operands)
        flags = _Flags(transport, signals.flag_count)
    rows = (schedule.rank == transport.rank).nonzero()[0]
    ranks = {transport.rank: transport}
    steps = {
        row: array_step(int(schedule.kind[row]), work, ranks, multiply)
        for row, work in zip(rows.tolist(), resolve(schedule, performance.memory, rows), strict=True)
    }
    with ACTIVITY.during("all ranks to have their tiles"):
        performance.load()
        transport.quiet()
        ahead = transport.offset()
        transport.barrier()
    ACTIVITY.words = partial(_words, schedule)
    pace = Pace() if paced else None
    before = pace.reading(READING) if pace else None
    runs = []
    for number in range(repeat):
        performance.clear()
        flags.lower()
        late, waited = (steps, []) if delays is None else delayed(schedule, steps, delays[number])
        begin = _agreed_start(transport, ahead)
        lanes = RankLanes(signals, late, flags, transport.size)
        computed = process_time()
        lanes.perform(begin - ahead)
        share = _own_share(lanes, process_time() - computed + sum(waited))
        with ACTIVITY.during("all ranks to finish"):
            transport.barrier()
            after = pace.reading(READING) if pace else None
            reports = transport.gather((*_spans(lanes, begin - ahead), before, share, after))
            before = after
        if transport.rank == 0:
            runs.append(_together(schedule, reports))
    with ACTIVITY.during("rank 0 to gather the results"):
        transport.barrier()
        results = performance.gather(replica) if transport.rank == 0 else None
    if save is not None:
        with ACTIVITY.during("all ranks to write their parts of the checkpoint"):
            performance.write_parts(save, replica or 0)
            transport.barrier()
            if transport.rank == 0:
                performance.commit(save, replica or 0)
            transport.barrier()
    return None if results is None else (runs, results)


class _Flags:
    """Flags in symmetric memory, a byte each."""

    def __init__(self, transport: "MpiTransport", count: int) -> None:
        self._transport = transport
        self._heap = transport.allocate([count] * transport.size)
        block = Block(transport.rank, self._heap, 0, 1, count, count, np.dtype(np.uint8))
        self._own = transport.view(block)[0]

    def lower(self) -> None:
        """Lower all flags of this rank."""
        self._own[:] = 0

    def up(self, flags: Sequence[int]) -> bool:
        """Whether all these flags of this rank are up."""
        self._transport.quiet()
        raised = all(self._own[flag] for flag in flags)
        if raised:
            self._transport.quiet()  # what they stand for is read after them, on ARM too
        return raised

    def raise_on(self, ranks: Sequence[int], flag: int) -> None:
        """Raise a flag on some ranks, after all that this rank has done is visible to them."""
        self._transport.quiet()
        for rank in ranks:
            self._transport.put(_ONE, Block(rank, self._heap, flag, 1, 1, 1, np.dtype(np.uint8)))
        self._transport.quiet()


def _agreed_start(transport: "MpiTransport", ahead: float) -> float:
    """Return a time soon, by rank 0's clock, at which all ranks start; collective."""
    with ACTIVITY.during("all ranks to be ready to start"):
        transport.barrier()
        transport.barrier()  # ranks that waited long for others look seldom: this one all leave at once
        return transport.agreed(perf_counter() + ahead + LEAD * (1 + transport.size / 8))


def _spans(lanes: RankLanes, begin: float) -> tuple[Ints, Floats]:
    """Return the rows this rank performed, and start and end of each after the run's start, in seconds."""
    rows = np.fromiter(lanes.spans, dtype=np.int64, count=len(lanes.spans))
    spans = np.array(list(lanes.spans.values()), dtype=np.float64).reshape(-1, 2)
    return rows, spans - begin


def _own_share(lanes: RankLanes, computed: float) -> Reading:
    """Return how long this rank was busy, and its share of a core meanwhile."""
    # lanes: what it did. computed: seconds of cores that it had, or did not want.
    busy, until = 0.0, 0.0
    for start, end in sorted(lanes.spans.values()):
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return Reading(busy, min(1.0, computed / busy) if busy else 1.0)


def _together(schedule: Schedule, reports: list[tuple[Ints, Floats, Reading, Reading, Reading]]) -> Run:
    """Return all ranks' reports as one run; a barrier is at the last end of the actions it waits for."""
    spans = np.zeros((len(schedule), 2))
    for rows, of_rank, *_ in reports:
        spans[rows] = of_rank
    start, end = spans.T.copy()
    for barrier in (schedule.kind == BARRIER).nonzero()[0].tolist():
        start[barrier] = end[barrier] = end[schedule.after_of(barrier)].max(initial=0.0)
    return Run(start, end, [(before, share, after) for *_, before, share, after in reports if after])


def _words(schedule: Schedule, row: int) -> tuple[str, float]:
    """Return an action in words, and the most seconds it may run."""
    kind, rank = KINDS[schedule.kind[row]], schedule.rank[row]
    src, dst = int(schedule.src[row]), int(schedule.dst[row])
    seconds, slow = float(schedule.seconds[row]), float(schedule.flop[row]) / SLOW_CORE
    where = ""
    if src >= 0 and src != dst:
        links = list(schedule.routes[src, dst])
        seconds = float(schedule.links.latency[links].sum())
        seconds += float(
            schedule.nbytes[row] / schedule.links.bandwidth[narrowest(links, schedule.links.bandwidth)]
        )
        slow = float(schedule.payload[row]) / SLOW_COPY
        where = f" from rank {src}" if kind == "get" else f" to rank {dst}"
    limit = max(LEAST_LIMIT, PATIENCE * max(seconds, slow))
    return f"action {row} ({kind} of rank {rank}{where})", limit
