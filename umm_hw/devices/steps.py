"""Queueing one action of data in a stream: a gemm, a map, a copy or an add between regions."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from umm.schedules.schedule import Schedule
from umm.schedules.table.details import Multiplied
from umm_hw.blocks import Work
from umm_hw.devices.device import Device, Region, Stream
from umm_hw.steps import members
from umm_hw.transport import Block

Step = Callable[[Stream], object]


class StreamTransport(Protocol):
    """A transport whose work can be queued in streams."""

    def device_of(self, rank: int) -> Device:
        """Return the device of a rank of this process."""

    def region(self, block: Block) -> Region:
        """Return where a block lies, by address."""

    def copying(self, actor: int, source: Block, target: Block) -> Step:
        """Return a function that queues a copy, in a stream of the acting rank's device."""

    def adding(self, source: Block, target: Block, lane: int, means: str | None) -> Step:
        """Return a function that queues target += source, in the stream of a lane of the source's rank.

        Args:
            lane: Number of the stream.
            means: How the schedule wants its bytes moved, None for no matter how; as far as it can.
        """


def device_step(schedule: Schedule, row: int, work: Work, transport: StreamTransport, tf32: bool) -> Step:
    """Return a function that queues an action that moves or multiplies data, looked up beforehand."""
    assert work.writes is not None
    rank = int(schedule.rank[row])
    if work.product is not None:
        return _product(work.product, work, transport, transport.device_of(rank), tf32)
    if work.mapped is not None:
        reads = [transport.region(block) for block in work.reads]
        return partial(transport.device_of(rank).map, work.mapped, reads, transport.region(work.writes))
    if work.adds:
        means = None if schedule.means_of is None else int(schedule.means_of[row])
        name = None if means is None or means < 0 else schedule.means[means].name
        return transport.adding(work.reads[0], work.writes, int(schedule.lane[row]), name)
    return transport.copying(rank, work.reads[0], work.writes)


def _product(product: Multiplied, work: Work, transport: StreamTransport, device: Device, tf32: bool) -> Step:
    """Return a function that queues a gemm: one multiply for each member."""
    calls = []
    for c, a, b, beta in members(product, work):
        left, right, into = (transport.region(block) for block in (a, b, c))
        call = partial(
            device.multiply, left, right, into, beta=beta, alpha=product.alpha, trans=product.trans, tf32=tf32
        )
        calls.append(call)
    return calls[0] if len(calls) == 1 else partial(_queue_all, calls)


def _queue_all(calls: Sequence[Step], stream: Stream) -> None:
    for call in calls:
        call(stream)
