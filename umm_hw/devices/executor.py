"""Performs schedules on the devices of this process: p virtual ranks, a stream for every lane."""

from collections.abc import Sequence
from math import inf
from pathlib import Path

import numpy as np

from umm.dtypes import DTYPES, is_float8
from umm.errors import ExecutorUnavailableError
from umm.executor import Operands
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace
from umm.traces.traffic import Times
from umm_hw.blocks import resolve
from umm_hw.devices.device import Device, Stream
from umm_hw.devices.dtypes import check_types, device_dtype
from umm_hw.devices.links import BLOCKS
from umm_hw.devices.steps import device_step
from umm_hw.devices.streams import OneProcess, StreamRun, ordered_spans
from umm_hw.devices.transport import DeviceTransport
from umm_hw.performance import Performance, check_replica, operands_of

AHEAD = 1.25
"""Times the seconds that the host took to queue a run, for which the next one waits on the devices."""


class DeviceExecutor:
    """Performs schedules on devices; a subclass names the devices and the reason if there are none.

    After the first run, devices wait until all actions are queued: the measured times are the devices', as
    from a CUDA graph, not those of queueing in Python.

    Args:
        accumulate: ``kernel`` adds to other ranks' memory by a kernel; ``landing`` copies to a buffer on the
            target's device and adds there.
        blocks: Most thread blocks of an accumulate kernel: fewer leave more of the device to GEMMs.
        replica: Replica that the results are gathered from; only the origin, 0, is complete unless the
            schedule completes the others. None stacks all replicas.
        devices: The devices to use; all that are visible if None.
    """

    name = "devices"  # the name in traces
    times: Times = "measured"
    saves = True
    dtypes = tuple(x for x in DTYPES if not is_float8(x))  # types whose multiplies it can measure
    tf32 = False
    nvtx = False

    def __init__(
        self,
        accumulate: str = "kernel",
        blocks: int = BLOCKS,
        replica: int | None = 0,
        devices: Sequence[Device] | None = None,
    ) -> None:
        self.accumulate = accumulate
        self.blocks = blocks
        self.replica = replica
        self._devices = devices
        self._streams: dict[tuple[int, int], Stream] = {}
        self._pace = inf  # seconds in which the host queues an action, at best

    def available(self) -> str | None:
        """Return None if there are devices to use, else the reason."""
        return None if self._devices is not None else self._problem()

    def run(
        self, schedule: Schedule, operands: Operands | None = None, save: str | Path | None = None
    ) -> Trace:
        """Perform a schedule on real matrices.

        Args:
            schedule: What to perform.
            operands: A and B as whole arrays; uniform in [−1, 1) with a fixed seed if None.
            save: Folder of the checkpoint that operands and results become afterwards, if any.

        Returns:
            Spans by the devices' clocks, and C as one array of the problem's ``c_dtype``.

        Raises:
            ExecutorUnavailableError: if there is no device.
            InfeasibleError: if a device lacks the memory.
            InputError: if the operands do not fit, or devices do not multiply the pair of types.
            ScheduleError: if an action uses memory that is not there.
        """
        return self.runs(schedule, operands, save=save)[0]

    def runs(
        self,
        schedule: Schedule,
        operands: Operands | None = None,
        repeat: int = 1,
        result: bool = True,
        save: str | Path | None = None,
    ) -> list[Trace]:
        """Perform a schedule several times with the same operands.

        Args:
            operands: See :meth:`run`.
            repeat: How often.
            result: Whether to gather C, which is that of the last run, to the host.
            save: See :meth:`run`.
        """
        run, transport, performance = self._prepared(schedule, operands, spans=True)
        try:
            spans = []
            for _ in range(repeat):
                performance.clear()
                origins = run.begin()
                took = run.perform(0.0 if self._pace == inf else AHEAD * self._pace * len(schedule))
                self._pace = min(self._pace, took / max(len(schedule), 1))
                start, end = np.zeros(len(schedule)), np.zeros(len(schedule))
                # Nothing was queued before the last clock had started.
                began = max(max(origins.values()), origins[transport.device_of(0)] + run.held_s())
                for row, first, last in run.spans():
                    late = origins[run.device_of(row)] - began
                    start[row], end[row] = first + late, last + late
                ordered_spans(schedule, start, end)
                spans.append((start, end))
            results = performance.gather(self.replica) if result else {}
            if save is not None:
                performance.write_parts(save, self.replica or 0)
                performance.commit(save, self.replica or 0)
        finally:
            transport.close()
        return [Trace(schedule, self.name, start, end, results) for start, end in spans]

    def makespan(self, schedule: Schedule) -> float:
        """Return the seconds a run with random operands takes, timed by the host without events."""
        run, transport, performance = self._prepared(schedule, None, spans=False)
        try:
            performance.clear()
            began = max(run.begin().values())
            run.perform()
            return transport.device_of(0).now() - began
        finally:
            transport.close()

    def close(self, code: int = 0) -> None:
        """Do nothing: between runs it keeps nothing that would have to end."""

    def _problem(self) -> str | None:
        """Return why there are no devices, ending with the line that fixes it; None if there are."""
        raise NotImplementedError

    def _visible(self) -> Sequence[Device]:
        """Return all devices there are."""
        raise NotImplementedError

    def _used(self) -> Sequence[Device]:
        """Return the devices to use."""
        if self._devices is None:
            reason = self.available()
            if reason is not None:
                raise ExecutorUnavailableError(reason)
            self._devices = self._visible()
        return self._devices

    def _prepared(
        self, schedule: Schedule, operands: Operands | None, spans: bool
    ) -> tuple[StreamRun, DeviceTransport, Performance]:
        """Return the run ready to begin, its memory, and the tensors in it."""
        check_types(schedule, self.tf32)
        check_replica(schedule, self.replica)
        arrays = operands_of(schedule, operands, device_dtype)
        first = DeviceTransport(schedule.ranks, self._used(), self.accumulate, self.blocks)
        try:
            ranks = [first.as_rank(rank) for rank in range(schedule.ranks)]
            performance = Performance(schedule, ranks, arrays, device_dtype)
            performance.load()
            works = enumerate(resolve(schedule, performance.memory))
            steps = {
                row: device_step(schedule, row, work, first, self.tf32)
                for row, work in works
                if work.writes is not None
            }
            devices = {rank: first.device_of(rank) for rank in range(schedule.ranks)}
            run = StreamRun(schedule, steps, devices, self._stream, OneProcess(), spans, self.nvtx)
        except BaseException:
            first.close()
            raise
        return run, first, performance

    def _stream(self, lane: int, device: Device) -> Stream:
        """Return the stream of a lane, kept from run to run with its workspace."""
        key = device.number, lane
        if key not in self._streams:
            self._streams[key] = device.stream()
        return self._streams[key]
