"""What queues one action of data in a stream: a multiply, a copy or an accumulate between regions."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from umm.errors import ScheduleError
from umm.schedules.schedule import Schedule
from umm_hw.blocks import Work
from umm_hw.gpu.device import Device, Region, Stream
from umm_hw.transport import Block

Step = Callable[[Stream], object]


class StreamTransport(Protocol):
    """A transport whose work can be queued in streams."""

    def device_of(self, rank: int) -> Device:
        """Return the device of a rank of this process."""

    def region(self, block: Block) -> Region:
        """Return where a block lies, by address."""

    def copying(self, actor: int, source: Block, target: Block) -> Step:
        """Return what queues a copy, in a stream of the acting rank's device."""

    def adding(self, source: Block, target: Block, lane: int) -> Step:
        """Return what queues target += source, in the stream of a lane of the source's rank."""


def gpu_step(schedule: Schedule, row: int, work: Work, transport: StreamTransport, tf32: bool) -> Step:
    """Return what queues an action that moves or multiplies data, everything looked up beforehand."""
    assert work.writes is not None
    rank = int(schedule.rank[row])
    if work.product is not None:
        if work.product[:2] != (0, 1.0) or work.product.batch > 1:
            raise ScheduleError(f"action {row} is a gemm with trans, alpha or batch; GPUs do plain ones")
        a, b, c = (transport.region(block) for block in (*work.reads, work.writes))
        return partial(transport.device_of(rank).multiply, a, b, c, work.product.beta != 0, tf32)
    if work.mapped is not None:
        raise ScheduleError(f"action {row} is a map; GPUs do none yet")
    if work.adds:
        return transport.adding(work.reads[0], work.writes, int(schedule.lane[row]))
    return transport.copying(rank, work.reads[0], work.writes)
