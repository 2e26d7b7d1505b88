"""Each rank's part in performing a schedule: hold its tiles, queue its rows, report its spans."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from umm.arrays import Floats
from umm.errors import InfeasibleError, InputError
from umm.schedules.file.arrays import from_arrays
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import BARRIER
from umm.units import format_bytes
from umm_hw.blocks import resolve
from umm_hw.calibrate.gpu import SWEEP, Costs, machine_text
from umm_hw.calibrate.gpu_benchmarks import Bench, grid, measure
from umm_hw.devices.device import Stream
from umm_hw.devices.dtypes import device_dtype
from umm_hw.devices.steps import device_step
from umm_hw.devices.streams import StreamRun, ordered_spans
from umm_hw.performance import Arrays, Performance
from umm_hw.symmetric.one_sided import Joined
from umm_hw.symmetric.transport import SymmetricTransport
from umm_hw.transport import Block
from umm_hw.waits import rank_order

SIGNALS = 200  # of a chain
Runs = tuple[list[tuple[Floats, Floats]], Arrays]


def perform(
    transport: Any,
    connect: Callable[[Any], Joined],
    arrays: Mapping[str, Any],
    operands: Arrays | None = None,
    replica: int | None = 0,
    repeat: int = 1,
    blocks: int = 1,
    tf32: bool = False,
    nvtx: bool = False,
) -> Runs | None:
    """Perform a schedule; collective.

    Args:
        transport: What joins the ranks on the host, as many as the schedule has.
        connect: Joins their memory, given the transport.
        operands: By name, on rank 0.
        replica: Replica that is gathered; None for all.
        repeat: How often to perform it, with the same operands.
        blocks: Most thread blocks of an accumulate kernel.
        tf32: Whether float32 factors may be rounded to TF32.
        nvtx: Whether to name every action in a profiler's timeline.

    Returns:
        On rank 0 for each run the start and end of every action, in seconds after the run's start, and the
        outputs of the last run by name; None elsewhere.
    """
    schedule = from_arrays(arrays, Schedule)
    joined = connect(transport)
    ranks, device = joined.ranks, joined.device
    needed = int(schedule.memory_bytes.max())
    if needed > device.memory:  # a library may end the process
        raise InfeasibleError(
            f"{device.name} has {format_bytes(device.memory)}, and a rank needs {format_bytes(needed)}; "
            "fewer replicas, --granularity slice or a smaller --prefetch take less"
        )
    memory = SymmetricTransport(joined, blocks)
    performance = Performance(schedule, [memory], operands, device_dtype)
    signals = _Signals(joined, schedule)
    steps = {
        row: device_step(schedule, row, work, memory, tf32)
        for row, work in enumerate(resolve(schedule, performance.memory))
        if work.writes is not None and schedule.rank[row] == ranks.rank
    }
    streams = joined.stream
    devices = {ranks.rank: device}
    run = StreamRun(schedule, steps, devices, lambda lane, _: streams(lane), signals, True, nvtx)
    performance.load()
    offset = ranks.offset()
    runs = []
    for _ in range(repeat):
        memory.barrier()  # nobody still adds to C, or raises a signal, of the run before
        performance.clear()
        signals.lower()
        memory.barrier()
        (origin,) = run.begin().values()
        ranks.barrier()
        run.perform()
        reports = ranks.gather((origin + offset, list(run.spans())))
        if ranks.rank == 0:
            runs.append(_together(schedule, reports))
    memory.barrier()
    results = performance.gather(replica) if ranks.rank == 0 else None
    memory.barrier()  # NVSHMEM's own, in what follows, spins and holds Python's lock
    signals.free()
    memory.close()  # not after a failure: it is collective, and the other ranks may have gone on
    joined.end()
    return None if results is None else (runs, results)


def measured(
    transport: Any,
    name: str,
    connect: Callable[[Any], Joined],
    dtypes: Sequence[str],
    blocks: int,
    tf32: bool,
    costs: Costs | None = None,
) -> str:
    """Return on rank 0 the text of a machine file, with its way to the last rank; "" elsewhere; collective.

    InputError on every rank, if they are on several nodes.

    Args:
        transport: What joins the ranks on the host.
        connect: Joins their memory, given the transport.
        blocks: Thread blocks of an accumulate kernel.
        tf32: Whether the file's float32 is TF32.
        costs: What actions cost in runs, if known.
    """
    joined = connect(transport)
    memory = SymmetricTransport(joined, blocks)
    if not memory.one_node:
        memory.close()
        raise InputError(
            "ranks of several nodes do not reach each other's memory, whose bandwidth is measured; "
            "calibrate with the ranks of one node, and describe the nodes by a fabric of kind tiers"
        )
    devices = len(set(joined.ranks.gather(joined.device.number)))
    sides, sizes = grid(joined.device)
    heap = memory.allocate([max(sizes)] * memory.size)
    signal = _signal_seconds(joined)
    memory.barrier()
    text = ""
    if memory.rank == 0 or joined.device.on_cpu:  # the cores of a CPU are slower where all compute
        block = Block(memory.size - 1, heap, 0, 1, max(sizes), max(sizes), np.dtype(np.uint8))
        bench = Bench(joined.device, memory.region(block).address)
        measurements = measure(bench, dtypes, _silent, blocks, SWEEP, sides, sizes)
        text = machine_text(joined.device, devices, measurements, name, tf32, signal, costs)
    memory.barrier()
    memory.close()
    joined.end()
    return text if memory.rank == 0 else ""


def _signal_seconds(joined: Joined) -> float:
    """Return the seconds from one rank's signal until another's queue goes on; collective."""
    rank, library, device = joined.ranks.rank, joined.library, joined.device
    stream, base = device.stream(), library.allocate(8 * SIGNALS)
    joined.ranks.barrier()
    began = device.now()
    for turn in range(SIGNALS if joined.ranks.size > 1 and rank < 2 else 0):
        if turn % 2 == rank:
            library.signal(base + 8 * turn, 1 - rank, stream)
        else:
            library.wait_signal(base + 8 * turn, stream)
    device.finish(stream)
    took = device.now() - began
    joined.ranks.barrier()
    library.free(base)
    return took / SIGNALS


def _silent(what: str) -> None:
    """Say nothing: the output of ranks is read for errors only."""


class _Signals:
    """A signal in symmetric memory for every row that other ranks wait for, 8 bytes each."""

    def __init__(self, joined: Joined, schedule: Schedule) -> None:
        waiting = schedule.waiting
        first = schedule.after
        barrier = schedule.kind == BARRIER
        elsewhere = (schedule.rank[first] != schedule.rank[waiting]) & ~barrier[first] & ~barrier[waiting]
        rows = np.unique(first[elsewhere]).tolist()
        self._device, self._library = joined.device, joined.library
        self._base = joined.library.allocate(8 * max(len(rows), 1))
        self._address = {row: self._base + 8 * i for i, row in enumerate(rows)}
        self._signals = rank_order(schedule, joined.ranks.rank).signals

    def lower(self) -> None:
        """Set this rank's signals to zero."""
        self._device.zero(self._base, 8 * max(len(self._address), 1))

    def free(self) -> None:
        """Give the signals back; collective."""
        self._library.free(self._base)

    def raise_for(self, row: int, stream: Stream) -> None:
        """Queue the news that a row has finished, to the ranks that wait for it."""
        for rank in self._signals.get(row, ()):
            self._library.signal(self._address[row], rank, stream)

    def wait_for(self, row: int, stream: Stream) -> None:
        """Queue a wait for the news that another rank's row has finished."""
        self._library.wait_signal(self._address[row], stream)

    def barrier(self, stream: Stream) -> None:
        """Queue a barrier over all ranks."""
        self._library.barrier(stream)


def _together(
    schedule: Schedule, reports: list[tuple[float, list[tuple[int, float, float]]]]
) -> tuple[Floats, Floats]:
    """Return start and end of every action on one clock; a barrier ends when it does on the last rank."""
    start, end = np.zeros(len(schedule)), np.zeros(len(schedule))
    began = max(origin for origin, _ in reports)  # nothing was queued before the last clock had started
    for origin, spans in reports:
        for row, first, last in spans:
            start[row] = max(start[row], first + origin - began)
            end[row] = max(end[row], last + origin - began)
    ordered_spans(schedule, start, end)
    return start, end
