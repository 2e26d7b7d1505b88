"""How a GPU adds to memory of another: by a kernel over the link, or by landing there and adding then."""

from collections.abc import Sequence
from itertools import permutations

from umm.errors import ExecutorUnavailableError, InputError
from umm_hw.devices.device import Device, Region, Stream

WAYS = ("kernel", "landing")
BLOCKS = 24  # about what communication kernels take of 132 multiprocessors to fill NVLink; a tunable


def join(devices: Sequence[Device], accumulate: str) -> None:
    """Let devices reach each other's memory.

    InputError for another way to accumulate. ExecutorUnavailableError if kernels cannot add over a link and
    should.

    Args:
        devices: Of this process; one may come several times.
        accumulate: ``kernel`` or ``landing``.
    """
    if accumulate not in WAYS:
        raise InputError(f"accumulate {accumulate!r} is unknown; choose from {', '.join(WAYS)}")
    for one, other in permutations(dict.fromkeys(devices), 2):
        reason = one.reach(other)
        if reason is not None and accumulate == "kernel":
            raise ExecutorUnavailableError(f"{reason}; accumulate=landing copies instead")


def check_blocks(blocks: int) -> None:
    """Refuse an accumulate kernel of no thread blocks; InputError if so."""
    if blocks < 1:
        raise InputError(f"blocks = {blocks} is not possible; an accumulate kernel needs at least 1")


class Landing:
    """A buffer on a target's device where the bytes of one lane land before they are added there.

    Args:
        lane: The lane whose accumulates land.
        source: Device of the lane.
        device: The target's device.
        nbytes: Bytes of the largest block that lands.
    """

    def __init__(self, lane: int, source: Device, device: Device, nbytes: int) -> None:
        self.lane = lane
        self.source = source
        self.device = device
        self.nbytes = nbytes
        self.address = device.allocate(nbytes)
        self.stream = device.stream()
        self.landed = source.event(timed=False)
        self.added = device.event(timed=False)

    def add(self, source: Region, target: Region, blocks: int, stream: Stream) -> None:
        """Queue target += source; the lane's stream goes on when the sum is there."""
        here = Region.packed(self.address, source[1:3], source.dtype)
        self.source.copy(source, here, stream)
        self.source.record(self.landed, stream)
        self.device.wait(self.stream, self.landed)
        self.device.accumulate(here, target, blocks, self.stream)
        self.device.record(self.added, self.stream)
        self.source.wait(stream, self.added)
