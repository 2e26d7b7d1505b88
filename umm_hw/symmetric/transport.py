"""The transport over symmetric memory: one process per rank, tiles in memory of its device.

Peers in the same node are reached by pointer: 2-D copies and accumulate kernels. Across nodes it is the
library's get and put. In a job of several nodes every accumulate, also within a node, holds the target's lock
(the coarse lock of Brock & Golin 2025, section 3): an addition across nodes is get, add, put, and would undo
what a kernel adds meanwhile. The host thread does it at its place in row order: right, and slow.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

from umm.errors import InputError
from umm.interval import Interval
from umm_hw.devices.device import Device, Region, Stream
from umm_hw.devices.links import BLOCKS, check_blocks
from umm_hw.devices.steps import Step
from umm_hw.symmetric.one_sided import Joined
from umm_hw.transport import Block

ALIGNMENT = 256  # bytes
LANDING = 16 << 20  # bytes of the buffer for what crosses nodes and cannot go straight to its place


class SymmetricTransport:
    """One rank's access to the memory of all ranks; making one is collective.

    Its own calls return when they are done; the executor queues the same work in streams instead. Arrays are
    NumPy's or the device's own. Half precision may be accumulated into float32.

    Args:
        joined: This rank among the others.
        blocks: Most thread blocks of an accumulate kernel.

    Raises:
        InputError: for no blocks.
    """

    def __init__(self, joined: Joined, blocks: int = BLOCKS) -> None:
        check_blocks(blocks)
        self.rank, self.size = joined.ranks.rank, joined.ranks.size
        self.device, self._blocks = joined.device, blocks
        self._ranks, self._library = joined.ranks, joined.library
        self._stream = joined.device.stream()
        self._copier: ThreadPoolExecutor | None = None
        self._landing_lock = Lock()
        self._heaps: list[list[int]] = []  # address of each rank's part, 0 where this process cannot see it
        self._nbytes: list[int] = []  # this rank's, of each heap
        self._kept: list[int] = []
        probe = self._symmetric(8)
        self._reachable = [self._library.peer(probe, rank) != 0 for rank in range(self.size)]
        self._reachable[self.rank] = True
        everywhere = joined.ranks.gather(all(self._reachable))
        # Whether every rank reaches every other's memory by pointer.
        self.one_node = bool(joined.ranks.broadcast(all(everywhere)))
        self._landing = 0 if self.one_node else self._symmetric(LANDING)

    # What the executor queues ---------------------------------------------------------------------

    def device_of(self, rank: int) -> Device:
        """Return this rank's device: it is the only one whose streams this process has."""
        assert rank == self.rank
        return self.device

    def region(self, block: Block) -> Region:
        """Return where a block lies for this process; it must be reachable."""
        return Region.of(block, self._heaps[block.heap][block.rank])

    def copying(self, actor: int, source: Block, target: Block) -> Step:
        """Return a function that queues a copy from any rank's memory to this rank's, or the other way."""
        assert actor == self.rank
        if self._reachable[source.rank] and self._reachable[target.rank]:
            regions = self.region(source), self.region(target)
            return lambda stream: self.device.copy(*regions, stream)
        if target.rank == self.rank:
            return lambda stream: self._get(source, self.region(target), stream)
        return lambda stream: self._put(self.region(source), target, stream)

    def adding(self, source: Block, target: Block, lane: int, means: str | None = None) -> Step:
        """Return a function that queues target += source, where source is this rank's; it knows one means."""
        here = self.region(source)
        if not self.one_node:
            return lambda stream: self._add_alone(here, target, stream)
        region = self.region(target)
        return lambda stream: self.device.accumulate(here, region, self._blocks, stream)

    # The transport's promise ----------------------------------------------------------------------

    def allocate(self, nbytes: Sequence[int]) -> int:
        """Reserve the most bytes of any rank on each: symmetric memory has one size."""
        address = self._library.allocate(-(-max(1, *nbytes) // ALIGNMENT) * ALIGNMENT)
        parts = [self._library.peer(address, rank) for rank in range(self.size)]
        parts[self.rank] = address
        self._heaps.append(parts)
        self._nbytes.append(int(nbytes[self.rank]))
        return len(self._heaps) - 1

    def clear(self, heap: int) -> None:
        """Set this rank's part of a heap to zero."""
        self.device.zero(self._heaps[heap][self.rank], self._nbytes[heap])

    def view(self, block: Block) -> Any:
        """Return an array of the device's own kind that is a block of this rank's memory."""
        if block.rank != self.rank:
            raise InputError(f"rank {self.rank} cannot view memory of rank {block.rank}; get copies it")
        return self.device.view(self.region(block))

    def get(self, source: Block, into: Any) -> None:
        """Copy any rank's block into an array, on the device or on the host."""
        if not into.size:
            return
        with self._landing_lock:
            if self._reachable[source.rank]:
                self._take(self.region(source), into)
                return
            for rows, piece, landing in self._pieces(source):
                self._get(piece, landing, self._stream)
                self.device.finish(self._stream)
                self._take(landing, into[rows.slice])

    def get_async(self, source: Block, into: Any) -> Future[None]:
        """Start a get on the copy thread."""
        if self._copier is None:
            self._copier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="umm-copy")
        return self._copier.submit(self.get, source, into)

    def put(self, array: Any, target: Block) -> None:
        """Copy an array into any rank's block."""
        if not array.size:
            return
        with self._landing_lock:
            if self._reachable[target.rank]:
                self._give(array, self.region(target))
                return
            for rows, piece, landing in self._pieces(target):
                self._give(array[rows.slice], landing)
                self._put(landing, piece, self._stream)
                self.device.finish(self._stream)

    def accumulate(self, array: Any, target: Block) -> None:
        """Add an array to any rank's block; one of the host is copied to this rank's device first."""
        if not array.size:
            return
        source, address = self.device.region(array), None
        if source is None:
            address = self.device.allocate(array.nbytes)
            source = Region.packed(address, array.shape, array.dtype)
            self.device.upload(array, source)
        try:
            with self._landing_lock:
                self.device.synchronize()
                if self.one_node:
                    self.device.accumulate(source, self.region(target), self._blocks, self._stream)
                else:
                    self._add_alone(source, target, self._stream)
                self.device.finish(self._stream)
        finally:
            if address is not None:
                self.device.free(address)

    def quiet(self) -> None:
        """Wait for this rank's device and for its puts."""
        self.device.synchronize()
        self._library.quiet(self._stream)
        self.device.finish(self._stream)

    def barrier(self) -> None:
        """Wait until every rank has come here, each after a quiet."""
        self.quiet()
        self._ranks.barrier()

    def free(self) -> None:
        """Give all heaps back; collective."""
        self.barrier()
        for parts in self._heaps:
            self._library.free(parts[self.rank])
        self._heaps.clear()
        self._nbytes.clear()

    def close(self) -> None:
        """Give all memory back; collective, the last call."""
        self.free()
        for address in self._kept:
            self._library.free(address)
        if self._copier is not None:
            self._copier.shutdown()

    # Details --------------------------------------------------------------------------------------

    def _symmetric(self, nbytes: int) -> int:
        self._kept.append(self._library.allocate(nbytes))
        return self._kept[-1]

    def _take(self, source: Region, into: Any) -> None:
        """Copy a reachable region into an array."""
        target = self.device.region(into)
        if target is None:
            self.device.download(source, into)
            return
        self.device.synchronize()
        self.device.copy(source, target, self._stream)
        self.device.finish(self._stream)

    def _give(self, array: Any, target: Region) -> None:
        """Copy an array into a reachable region."""
        source = self.device.region(array)
        if source is None:
            self.device.upload(array, target)
            return
        self.device.synchronize()
        self.device.copy(source, target, self._stream)
        self.device.finish(self._stream)

    def _pieces(self, block: Block) -> Iterator[tuple[Interval, Block, Region]]:
        """Yield a block's rows in pieces that fit the landing buffer: which rows, the piece, its landing."""
        width = block.cols * block.dtype.itemsize
        if width > LANDING:
            raise InputError(f"a row of {width} bytes does not cross nodes; at most {LANDING} do")
        step = LANDING // max(width, 1)
        for start in range(0, block.rows if width else 0, step):
            rows = Interval(start, min(start + step, block.rows))
            piece = block.cut(rows, Interval(0, block.cols))
            yield rows, piece, Region.packed(self._landing, (rows.size, block.cols), block.dtype)

    def _runs(self, block: Block, here: Region) -> Iterator[tuple[int, int, int]]:
        """Yield runs of adjacent bytes: the block's symmetric address, the address here, how many."""
        start = self._heaps[block.heap][self.rank] + block.offset
        if block.stride == block.cols and here.stride == here.cols:
            yield start, here.address, here.rows * here.width
            return
        pitch = block.stride * block.dtype.itemsize
        for row in range(here.rows):
            yield start + row * pitch, here.address + row * here.pitch, here.width

    def _get(self, source: Block, into: Region, stream: Stream) -> None:
        for remote, local, nbytes in self._runs(source, into):
            self._library.get(local, remote, nbytes, source.rank, stream)

    def _put(self, source: Region, target: Block, stream: Stream) -> None:
        for remote, local, nbytes in self._runs(target, source):
            self._library.put(remote, local, nbytes, target.rank, stream)
        self._library.quiet(stream)

    def _add_alone(self, source: Region, target: Block, stream: Stream) -> None:
        """Add under the target's lock; the host waits, first for the stream's earlier work."""
        # The lock is held for the addition alone, which waits for nobody, so it is always given back.
        self.device.finish(stream)
        self._ranks.take_lock(target.rank)
        if self._reachable[target.rank]:
            self.device.accumulate(source, self.region(target), self._blocks, stream)
        else:
            for rows, piece, landing in self._pieces(target):
                part = source._replace(address=source.address + rows.start * source.pitch, rows=rows.size)
                self._get(piece, landing, stream)
                self.device.accumulate(part, landing, self._blocks, stream)
                self._put(landing, piece, stream)
        self.device.finish(stream)
        self._ranks.release_lock(target.rank)
