"""A schedule's actions queued in streams: a stream for each lane, events for the dependencies."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import numpy as np

from umm.arrays import Bools, Floats
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import BARRIER, KINDS
from umm_hw.devices.device import Device, Event, Stream

Step = Callable[[Stream], object]


class Signals(Protocol):
    """How actions of this process and of others wait for each other."""

    def raise_for(self, row: int, stream: Stream) -> None:
        """Queue the news that a row has finished, to those elsewhere who wait for it."""

    def wait_for(self, row: int, stream: Stream) -> None:
        """Queue a wait for the news that a row of another process has finished."""

    def barrier(self, stream: Stream) -> None:
        """Queue a barrier over all processes."""


class OneProcess:
    """No signals: all ranks are in this process."""

    def raise_for(self, row: int, stream: Stream) -> None:
        """Tell nobody."""

    def wait_for(self, row: int, stream: Stream) -> None:
        """Be never called."""

    def barrier(self, stream: Stream) -> None:
        """Do nothing: the stream has waited for all ranks' actions."""


class StreamRun:
    """One performance of a schedule, or of those of its rows whose ranks are in this process.

    Rows are queued in row order, which is an order the dependencies allow and the same in every process. So
    whatever hardware queue streams come to share, an action can be held up only by rows before it: nothing
    can wait in a circle.

    Args:
        schedule: What is performed.
        steps: What queues each row of this process in a stream; nothing for barriers and local work.
        devices: The device of each rank of this process.
        streams: Makes or finds the stream of a lane on a device; −1 is the lane of the barriers.
        signals: How rows of other processes are waited for.
        spans: Whether to time every action.
        names: Whether to name every action in a profiler's timeline.
    """

    def __init__(
        self,
        schedule: Schedule,
        steps: Mapping[int, Step],
        devices: Mapping[int, Device],
        streams: Callable[[int, Device], Stream],
        signals: Signals,
        spans: bool,
        names: bool = False,
    ) -> None:
        self._schedule = schedule
        self._steps = steps
        self._signals = signals
        self._names = names
        self._spans = spans
        self._rank, self._lane = schedule.rank.tolist(), schedule.lane.tolist()
        self._kind = schedule.kind.tolist()
        first = next(iter(devices.values()))
        self._rows = [
            row for row, rank in enumerate(self._rank) if rank in devices or self._kind[row] == BARRIER
        ]
        self._device = {row: devices.get(self._rank[row], first) for row in self._rows}
        self._stream = {row: streams(self._lane[row], self._device[row]) for row in self._rows}
        self._seen: dict[tuple[int, int], int] = {}  # the last row of a lane that a lane has waited for
        awaited = _awaited_by_other_lanes(schedule)
        self._starts = {row: self._device[row].event(True) for row in self._rows if spans}
        self._ends = {row: self._device[row].event(spans) for row in self._rows if spans or awaited[row]}
        self._origins = {device: (device.event(True), device.stream()) for device in devices.values()}
        self._first, self._go, self._held = first, first.event(True), False

    def begin(self) -> dict[Device, float]:
        """Start the clock of each device; return the host's time of each clock's origin."""
        return {device: _origin(device, *made) for device, made in self._origins.items()}

    def perform(self, hold: float = 0.0) -> float:
        """Queue everything and wait until it is done; as often as wanted, each time after ``begin``.

        Args:
            hold: Seconds for which everything waits on the devices, so that the host is ahead of them.

        Returns:
            Seconds that the host took to queue.
        """
        self._seen.clear()
        self._held = hold > 0
        if self._held:
            stream = self._origins[self._first][1]
            self._first.hold(hold, stream)
            self._first.record(self._go, stream)
            lanes = {(self._lane[row], self._device[row]): self._stream[row] for row in self._rows}
            for (_, device), stream in lanes.items():
                device.wait(stream, self._go)
        began = self._first.now()
        for row in self._rows:
            self._queue(row)
        took = self._first.now() - began
        for device in self._origins:
            device.synchronize()
        return took

    def held_s(self) -> float:
        """Return the seconds from the origin of the first rank's device until nothing was held any more."""
        return self._first.seconds(self._origins[self._first][0], self._go) if self._held else 0.0

    def spans(self) -> Iterator[tuple[int, float, float]]:
        """Yield each row with its start and end, in seconds after its device's origin."""
        for row in self._rows:
            device = self._device[row]
            origin = self._origins[device][0]
            events = self._starts[row], self._ends[row]
            start, end = (device.seconds(origin, event) for event in events)
            yield row, start, end

    def device_of(self, row: int) -> Device:
        """Return the device a row runs on."""
        return self._device[row]

    def _queue(self, row: int) -> None:
        device, stream = self._device[row], self._stream[row]
        if self._names:
            rank = self._rank[row]
            device.name_range(f"{KINDS[self._kind[row]]} {row}" + (f" of rank {rank}" if rank >= 0 else ""))
        self._wait(row, device, stream)
        if self._spans:
            device.record(self._starts[row], stream)
        if self._kind[row] == BARRIER:
            self._signals.barrier(stream)
        elif row in self._steps:
            self._steps[row](stream)
        if row in self._ends:
            device.record(self._ends[row], stream)
        self._signals.raise_for(row, stream)
        if self._names:
            device.name_range(None)

    def _wait(self, row: int, device: Device, stream: Stream) -> None:
        """Queue the waits of a row; a lane's own order and earlier waits need none."""
        lane = self._lane[row]
        for before in sorted(self._schedule.after_of(row).tolist(), reverse=True):
            other = self._lane[before]
            if other == lane or self._seen.get((lane, other), -1) >= before:
                continue
            self._seen[lane, other] = before
            if before in self._ends:
                device.wait(stream, self._ends[before])
            elif self._kind[row] != BARRIER:  # the barrier itself waits for the other processes
                self._signals.wait_for(before, stream)


def _awaited_by_other_lanes(schedule: Schedule) -> Bools:
    """Return for each row whether one on another lane waits for it."""
    waiting = schedule.waiting
    awaited = np.zeros(len(schedule), dtype=bool)
    awaited[schedule.after[schedule.lane[waiting] != schedule.lane[schedule.after]]] = True
    return awaited


def _origin(device: Device, event: Event, stream: Stream, tries: int = 5) -> float:
    """Record a device's clock origin; return the host's time of it, from the try that took the least time."""
    probes = [device.event(True) for _ in range(tries)]
    device.synchronize()
    bounds = []
    for probe in probes:
        before = device.now()
        device.record(probe, stream)
        device.synchronize()
        bounds.append((device.now() - before, before))
    device.record(event, stream)
    device.synchronize()
    best = min(range(tries), key=lambda i: bounds[i])
    took, before = bounds[best]
    return before + took / 2 + device.seconds(probes[best], event)


def ordered_spans(schedule: Schedule, start: Floats, end: Floats) -> None:
    """Move spans that, by a disagreement of clocks, begin before the actions they waited for end.

    Each keeps its duration unless the next on its lane would be overtaken too; times only grow, by about
    what the clocks disagree. Works in place.
    """
    offsets, after = schedule.after_offsets.tolist(), schedule.after.tolist()
    free = [0.0] * (len(schedule.lanes) + 1)  # the last is the barriers'
    for row, lane in enumerate(schedule.lane.tolist()):
        earliest = max((end[before] for before in after[offsets[row] : offsets[row + 1]]), default=0.0)
        # Not moved by their difference, for with it a sum may end below what it waits for.
        start[row] = max(start[row], earliest, free[lane])
        end[row] = max(end[row], start[row])
        free[lane] = end[row]
