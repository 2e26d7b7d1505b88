"""The transport of one process over its devices: virtual ranks share one address space."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Barrier, Lock
from typing import Any

from umm.errors import InputError
from umm_hw.devices.device import Device, Region, Stream
from umm_hw.devices.links import BLOCKS, Landing, check_blocks, join
from umm_hw.devices.steps import Step
from umm_hw.transport import Block

COPY_ENGINE = "copy_engine"  # a means of schedules


def owner_devices(ranks: int, devices: Sequence[Device]) -> list[Device]:
    """Return each rank's device: neighbours share one where there are more ranks than devices."""
    used = devices[:ranks]
    return [used[rank * len(used) // ranks] for rank in range(ranks)]


class _World:
    """The state that virtual ranks share: their devices, their memory, and the barrier."""

    def __init__(self, devices: list[Device], accumulate: str, blocks: int) -> None:
        self.devices = devices
        self.accumulate = accumulate
        self.blocks = blocks
        self.heaps: list[list[int]] = []  # address of each rank's part
        self.nbytes: list[list[int]] = []
        self.landings: list[Landing] = []
        self.allocating = Lock()
        self.barrier = Barrier(len(devices))
        self.copier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="umm-copy")  # no thread until used


class DeviceTransport:
    """One of p virtual ranks in this process; ``as_rank`` gives the others.

    Its own calls return when they are done; the executor queues the same work in streams instead. Arrays are
    NumPy's or the device's own. Half precision may be accumulated into float32.

    Args:
        size: Number of virtual ranks, p.
        devices: The GPUs to put them on, neighbouring ranks on one where there are more ranks than GPUs.
        accumulate: ``kernel`` adds to the target's memory over the link; ``landing`` copies to a buffer on
            the target's device by the copy engine and adds there.
        blocks: Most thread blocks of an accumulate kernel.

    Raises:
        InputError: for an unknown way to accumulate, or no blocks.
        ExecutorUnavailableError: if kernels cannot add over a link between the devices.
    """

    def __init__(
        self, size: int, devices: Sequence[Device], accumulate: str = "kernel", blocks: int = BLOCKS
    ) -> None:
        check_blocks(blocks)
        owners = owner_devices(size, devices)
        join(owners, accumulate)
        self.rank = 0
        self.size = size
        self._world = _World(owners, accumulate, blocks)
        self._allocations = 0
        self._stream: Stream | None = None

    def as_rank(self, rank: int) -> "DeviceTransport":
        """Return another rank's access to the same memory."""
        other = DeviceTransport.__new__(DeviceTransport)
        other.rank, other.size, other._world, other._allocations = rank, self.size, self._world, 0
        other._stream = None
        return other

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's part of all heaps."""
        return sum(sizes[self.rank] for sizes in self._world.nbytes)

    # What the executor queues ---------------------------------------------------------------------

    def device_of(self, rank: int) -> Device:
        """Return a rank's device."""
        return self._world.devices[rank]

    def region(self, block: Block) -> Region:
        """Return where a block lies, by address."""
        return Region.of(block, self._world.heaps[block.heap][block.rank])

    def copying(self, actor: int, source: Block, target: Block) -> Step:
        """Return a function that queues a copy, in a stream of the acting rank's device."""
        return partial(self.device_of(actor).copy, self.region(source), self.region(target))

    def adding(self, source: Block, target: Block, lane: int, means: str | None = None) -> Step:
        """Return a function that queues target += source, in a stream of the source's device.

        Args:
            lane: Number of the stream; the landings of one are one buffer.
            means: ``copy_engine`` lands there; anything else goes the way that all accumulates go.
        """
        blocks = self._world.blocks
        device, other = self.device_of(source.rank), self.device_of(target.rank)
        regions = self.region(source), self.region(target)
        lands = self._world.accumulate == "landing" or means == COPY_ENGINE
        if not lands or source.rank == target.rank:
            return lambda stream: device.accumulate(*regions, blocks, stream)
        landing = self._landing(lane, device, other, regions[0].rows * regions[0].width)
        return lambda stream: landing.add(*regions, blocks, stream)

    def _landing(self, lane: int, device: Device, other: Device, nbytes: int) -> Landing:
        """Return a lane's buffer on a device, a new one if the last is too small."""
        for landing in self._world.landings:
            if (landing.lane, landing.device, landing.nbytes >= nbytes) == (lane, other, True):
                return landing
        self._world.landings.append(Landing(lane, device, other, nbytes))
        return self._world.landings[-1]

    # The transport's promise ----------------------------------------------------------------------

    def allocate(self, nbytes: Sequence[int]) -> int:
        """Reserve bytes of each rank; the i-th call of every rank means the same heap."""
        heap, world = self._allocations, self._world
        self._allocations += 1
        with world.allocating:
            if heap == len(world.heaps):
                sizes = [int(size) for size in nbytes]
                addresses: list[int] = []  # known from the first on, so that they are freed if one fails
                world.heaps.append(addresses)
                world.nbytes.append(sizes)
                for device, size in zip(world.devices, sizes, strict=True):
                    addresses.append(device.allocate(size))
        return heap

    def clear(self, heap: int) -> None:
        """Set this rank's part of a heap to zero."""
        world = self._world
        world.devices[self.rank].zero(world.heaps[heap][self.rank], world.nbytes[heap][self.rank])

    def view(self, block: Block) -> Any:
        """Return an array of the device's own kind that is a block of this rank's memory."""
        if block.rank != self.rank:
            raise InputError(f"rank {self.rank} cannot view memory of rank {block.rank}; get copies it")
        return self.device_of(self.rank).view(self.region(block))

    def get(self, source: Block, into: Any) -> None:
        """Copy any rank's block into an array, on the device or on the host."""
        if not into.size:
            return
        target = self.device_of(self.rank).region(into)
        if target is None:
            self.device_of(source.rank).download(self.region(source), into)
        else:
            self._at_once(lambda device, stream: device.copy(self.region(source), target, stream))

    def get_async(self, source: Block, into: Any) -> Future[None]:
        """Start a get on the copy thread."""
        return self._world.copier.submit(self.as_rank(self.rank).get, source, into)

    def put(self, array: Any, target: Block) -> None:
        """Copy an array into any rank's block."""
        if not array.size:
            return
        source = self.device_of(self.rank).region(array)
        if source is None:
            self.device_of(target.rank).upload(array, self.region(target))
        else:
            self._at_once(lambda device, stream: device.copy(source, self.region(target), stream))

    def accumulate(self, array: Any, target: Block) -> None:
        """Add an array to any rank's block; one of the host lands on this rank's device first."""
        if not array.size:
            return
        device = self.device_of(self.rank)
        source = device.region(array)
        address = None
        if source is None:
            address = device.allocate(array.nbytes)
            source = Region.packed(address, array.shape, array.dtype)
            device.upload(array, source)
        try:
            self._at_once(
                lambda device, stream: device.accumulate(
                    source, self.region(target), self._world.blocks, stream
                )
            )
        finally:
            if address is not None:
                device.free(address)

    def quiet(self) -> None:
        """Wait for this rank's device: views are written by streams of the array library."""
        self.device_of(self.rank).synchronize()

    def barrier(self) -> None:
        """Wait for the threads of all ranks, each after a quiet."""
        self.quiet()
        self._world.barrier.wait()

    def free(self) -> None:
        """Wait for all ranks and give the heaps back."""
        self.barrier()
        self._allocations = 0
        if self.rank == 0:
            self.close()
        self.barrier()

    def close(self) -> None:
        """Give all memory back; one thread calls it for all ranks."""
        world = self._world
        for device in dict.fromkeys(world.devices):
            device.synchronize()
        for heap in world.heaps:
            for device, address in zip(world.devices, heap, strict=False):
                device.free(address)
        for landing in world.landings:
            landing.device.free(landing.address)
        for kept in (world.heaps, world.nbytes, world.landings):
            kept.clear()

    def abort(self) -> None:
        """Fail every rank that waits at a barrier or comes to one."""
        self._world.barrier.abort()

    def _at_once(self, queue: Callable[[Device, Stream], None]) -> None:
        """Queue work of this rank's device when all before it is done, and wait for it."""
        device = self.device_of(self.rank)
        device.synchronize()
        if self._stream is None:
            self._stream = device.stream()
        queue(device, self._stream)
        device.synchronize()
