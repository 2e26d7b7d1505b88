"""Microbenchmarks of one GPU: multiplies, copies, accumulates, and gemms disturbed by transfers.

All are timed by the GPU's own events, each as the median of several repeats after one that warms up. The host
takes longer to queue a small action than the GPU to do it; so the GPU is held until all of them are queued.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import ceil
from statistics import median
from typing import Any

import numpy as np

from umm.dtypes import accumulated_in
from umm_hw.bfloat16 import BFLOAT16, to_bfloat16
from umm_hw.devices.device import Device, Region, Stream
from umm_hw.devices.dtypes import device_dtype
from umm_hw.devices.links import Landing

Shape = tuple[int, int, int]
Step = Callable[[Stream], object]
SHORTEST = 2e-3  # seconds a repeat takes at least, by queueing several times
MOST_CALLS = 200  # that are queued before the first begins
QUEUED = 1e-4  # seconds that the host takes to queue a call, at most
SIDES = (64, 256, 1024, 4096)
LONG = 16384  # one side of further GEMMs, where tiles are what a GEMM is cut into
SIZES = tuple(4**i for i in range(6, 14))  # 4 KiB to 64 MiB
CPU_SIDES = (32, 64, 128, 256, 512)
CPU_SIZES = tuple(4**i for i in range(6, 13))  # to 16 MiB


@dataclass(frozen=True)
class GpuMeasurements:
    """Measured seconds of one call each."""

    # By type of the operands and shape (m, n, k), adding to C; `tf32` is float32 by TF32.
    gemm: Mapping[str, Mapping[Shape, float]]
    copy: Mapping[int, float]  # by bytes, from a peer's memory or within the GPU if it is alone
    local_copy: Mapping[int, float]  # by bytes, within the GPU
    # By thread blocks and bytes, of float32 to where `copy` reads.
    accumulate: Mapping[int, Mapping[int, float]]
    # By kind, the share of its rate that a gemm lost while such transfers ran.
    interference: Mapping[str, float]
    blocks: int  # thread blocks the interference of accumulates was measured with
    # Share of the time of copies within the GPU that gemms beside them took longer: 1 if they ran by turns, 0
    # if beside each other, and where the device is no GPU.
    excluded: float = 0.0
    way: str = "kernel"  # how accumulates went: by `kernel` over the link, or by `landing` and adding there


class Bench:
    """Times work that is queued on one GPU.

    Args:
        peer: Address of memory that its accumulates reach: a peer's, or its own.
        repeats: How often everything is timed.
        landing: Where accumulates land beside the peer's memory; None if a kernel adds over the link.
    """

    def __init__(self, device: Device, peer: int, repeats: int = 5, landing: Landing | None = None) -> None:
        self._device, self._peer, self._repeats, self._landing = device, peer, repeats, landing
        self._stream, self._beside = device.stream(), device.stream()
        self._events = [device.event(timed=True) for _ in range(4)]

    def seconds(self, step: Step) -> float:
        """Return the seconds of one call, the median over the repeats."""
        self._once(step, 1)
        began = self._device.now()
        alone = self._once(step, 1)
        queued = min(self._device.now() - began, QUEUED)
        calls = min(MOST_CALLS, max(1, int(SHORTEST / max(alone, 1e-7))))
        return median(self._once(step, calls, queued) / calls for _ in range(self._repeats))

    def gemms(self, dtypes: Sequence[str], sides: Sequence[int]) -> dict[str, dict[Shape, float]]:
        """Return the seconds of multiplies with every combination of sides, by type and ``tf32``."""
        seconds_of: dict[str, dict[Shape, float]] = {}
        for name in (*dtypes, *(["tf32"] if "float32" in dtypes and not self._device.on_cpu else [])):
            operands = "float32" if name == "tf32" else name
            dtype, of_c = device_dtype(operands), device_dtype(accumulated_in(operands))
            shapes, most = [*product(sides, repeat=3), *long_shapes(self._device, sides)], max(sides)
            longest = max(map(max, shapes))
            places = [self._filled(longest, most, x) for x in (dtype, dtype, of_c)]
            seconds_of[name] = {}
            for m, n, k in shapes:
                # Blocks of larger matrices, as slices of tiles are.
                a = Region(places[0], m, k, max(k, most), dtype)
                b = Region(places[1], k, n, max(n, most), dtype)
                c = Region(places[2], m, n, max(n, most), of_c)
                seconds_of[name][m, n, k] = self.seconds(
                    lambda stream, a=a, b=b, c=c, name=name: self._device.multiply(  # type: ignore[misc]
                        a, b, c, stream, beta=1.0, tf32=name == "tf32"
                    )
                )
            for place in places:
                self._device.free(place)
        return seconds_of

    def _filled(self, rows: int, cols: int, dtype: np.dtype[Any]) -> int:
        """Return the address of a matrix of numbers in [−1, 1): zeros take less power, and so less time."""
        place = self._device.allocate(rows * cols * dtype.itemsize)
        some = min(rows, 1024)
        numbers = np.random.default_rng(0).uniform(-1, 1, (some, cols)).astype(np.float32)
        part = to_bfloat16(numbers) if dtype == BFLOAT16 else numbers.astype(dtype)
        for first in range(0, rows, some):
            count = min(some, rows - first)
            start = place + first * cols * dtype.itemsize
            self._device.upload(part[:count], Region.packed(start, (count, cols), dtype))
        return place

    def excluded(self, dtype: str, side: int, nbytes: int) -> float:
        """Return how much longer gemms take beside copies within this GPU, as a share of the copies' time."""
        # Both are as many as take some milliseconds alone.
        if not self._device.units:
            return 0.0
        target, source = (self._device.allocate(nbytes) for _ in range(2))
        kind, of_c = device_dtype(dtype), device_dtype(accumulated_in(dtype))
        places = [self._filled(side, side, x) for x in (kind, kind, of_c)]
        a, b, c = (Region.packed(x, (side, side), y) for x, y in zip(places, (kind, kind, of_c), strict=True))

        def gemm(stream: Stream) -> None:
            self._device.multiply(a, b, c, stream, beta=1.0)

        def copy(stream: Stream) -> None:
            self._device.copy(_bytes(source, nbytes), _bytes(target, nbytes), stream)

        counts = [max(1, round(5 * SHORTEST / self.seconds(step))) for step in (gemm, copy)]
        shares = []
        for _ in range(self._repeats):
            alone = [self._both([(step, count)]) for step, count in zip((gemm, copy), counts, strict=True)]
            both = self._both([(gemm, counts[0]), (copy, counts[1])])
            shares.append((both - max(alone)) / min(alone))
        for place in (target, source, *places):
            self._device.free(place)
        return min(max(median(shares), 0.0), 1.0)

    def _both(self, series: Sequence[tuple[Step, int]]) -> float:
        """Return the seconds of series of calls, each in a stream of its own, from one start."""
        streams, (start, end, done, _) = (self._stream, self._beside), self._events
        self._device.hold(QUEUED * sum(count for _, count in series), self._stream)
        self._device.record(start, self._stream)
        self._device.wait(self._beside, start)
        for (step, count), stream in zip(series, streams, strict=False):
            for _ in range(count):
                step(stream)
        self._device.record(done, self._beside)
        self._device.wait(self._stream, done)
        self._device.record(end, self._stream)
        self._device.synchronize()
        return self._device.seconds(start, end)

    def copies(self, sizes: Sequence[int], local: bool = False) -> dict[int, float]:
        """Return the seconds of copies to this GPU, from where the peer is or within it."""
        into, nearby = (self._device.allocate(max(sizes)) for _ in range(2))
        seconds_of = {}
        for size in sizes:
            source, target = _bytes(nearby if local else self._peer, size), _bytes(into, size)
            copy = partial(self._device.copy, source, target)
            seconds_of[size] = self.seconds(copy)
        for place in (into, nearby):
            self._device.free(place)
        return seconds_of

    def accumulates(self, blocks: Sequence[int], sizes: Sequence[int]) -> dict[int, dict[int, float]]:
        """Return the seconds of float32 accumulates to where the peer is, by thread blocks and bytes."""
        here = self._device.allocate(max(sizes))
        seconds_of = {
            most: {size: self.seconds(self._accumulate(here, size, most)) for size in sizes}
            for most in blocks
        }
        self._device.free(here)
        return seconds_of

    def interference(self, blocks: int, side: int, nbytes: int) -> dict[str, float]:
        """Return the share of its rate a gemm loses beside gets and beside accumulates, by kind."""
        # Where accumulates land, their kernel runs on the target's GPU; so the gemm beside them does too.
        here = self._device.allocate(nbytes)
        adding = self if self._landing is None else Bench(self._landing.device, self._peer, self._repeats)
        lost = {
            "get": self._lost(
                self,
                lambda stream: self._device.copy(_bytes(self._peer, nbytes), _bytes(here, nbytes), stream),
                side,
            ),
            "accumulate": self._lost(adding, self._accumulate(here, nbytes, blocks), side),
        }
        self._device.free(here)
        return lost

    def _lost(self, other: "Bench", transfer: Step, side: int) -> float:
        """Return the share of its rate a gemm of another bench's GPU loses beside this one's transfers."""
        # On a device that does one command at a time a transfer stops the gemms, and takes its own time only.
        dtype, device = np.dtype(np.float32), other._device
        a, b, c = (Region.packed(device.allocate(side * side * 4), (side, side), dtype) for _ in range(3))

        def gemm(stream: Stream) -> None:
            device.multiply(a, b, c, stream, beta=1.0)

        series = max(1, ceil(20 * SHORTEST / other.seconds(gemm)))
        alone = median(other._once(gemm, series) for _ in range(self._repeats))
        count = ceil(3 * alone / self.seconds(transfer)) + 1  # enough even for a gemm thrice as slow
        transfer_s, ends = self.seconds(transfer), [self._device.event(timed=True) for _ in range(count)]
        lost = []
        for _ in range(self._repeats):
            for end in ends:
                transfer(self._beside)
                self._device.record(end, self._beside)
            took = other._once(gemm, series)
            self._device.synchronize()
            moving = took
            if other is self:  # one clock: those that ended meanwhile had so long, were they alone
                done = sum(self._device.seconds(end, self._events[1]) >= 0 for end in ends)
                moving = min(done * transfer_s, took)
            lost.append((took - alone) / moving if moving else 0.0)
        for place in (a.address, b.address, c.address):
            device.free(place)
        return min(max(median(lost), 0.0), 0.99)

    def _accumulate(self, here: int, nbytes: int, blocks: int) -> Step:
        dtype = np.dtype(np.float32)
        source, target = (Region.packed(x, (1, nbytes // 4), dtype) for x in (here, self._peer))
        if self._landing is not None:
            return partial(self._landing.add, source, target, blocks)
        return lambda stream: self._device.accumulate(source, target, blocks, stream)

    @property
    def way(self) -> str:
        """How accumulates go: ``kernel`` or ``landing``."""
        return "kernel" if self._landing is None else "landing"

    def _once(self, step: Step, calls: int, queued: float = 0.0) -> float:
        """Return the seconds of some calls in a row, each between events as in a run."""
        # step: what queues a call. queued: seconds that the host takes for each, which the GPU is held for.
        start, end, before, after = self._events
        if queued:
            self._device.hold(queued * calls, self._stream)
        self._device.record(start, self._stream)
        for _ in range(calls):
            self._device.record(before, self._stream)
            step(self._stream)
            self._device.record(after, self._stream)
        self._device.record(end, self._stream)
        self._device.synchronize()
        return self._device.seconds(start, end)


def grid(device: Device) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sides of GEMMs and the bytes of transfers that are measured on a device."""
    return (CPU_SIDES, CPU_SIZES) if device.on_cpu else (SIDES, SIZES)


def long_shapes(device: Device, sides: Sequence[int]) -> list[Shape]:
    """Return GEMMs of a side longer than the others, on a device that cuts them into tiles."""
    some = [side for side in sides if side * side <= LONG * LONG // 64] if device.units else []
    shapes = [(LONG, x, y) for x in some[1:] for y in some[1:]]
    return [turned for m, x, y in shapes for turned in ((m, x, y), (x, m, y), (x, y, m))]


def _bytes(address: int, nbytes: int) -> Region:
    return Region.packed(address, (1, nbytes), np.dtype(np.uint8))


def measure(
    bench: Bench,
    dtypes: Sequence[str],
    note: Callable[[str], None],
    blocks: int,
    sweep: Sequence[int],
    sides: Sequence[int],
    sizes: Sequence[int],
) -> GpuMeasurements:
    """Measure everything.

    Args:
        bench: The GPU and the peer's memory.
        note: Given what is measured now, in words.
        blocks: Thread blocks of the accumulates beside gemms.
        sweep: Numbers of thread blocks to measure accumulates with; ``blocks`` is added.
        sides: m, n and k of the GEMMs.
        sizes: Bytes of the transfers, whole float32 numbers.
    """
    note(f"multiplies of {', '.join(dtypes)}")
    gemm = bench.gemms(dtypes, sides)
    note("copies")
    copy, local_copy = bench.copies(sizes), bench.copies(sizes, local=True)
    note("accumulates")
    accumulate = bench.accumulates(sorted({*sweep, blocks}), sizes)
    note("multiplies beside transfers")
    interference = bench.interference(blocks, max(sides), max(sizes))
    excluded = bench.excluded("bfloat16" if "bfloat16" in gemm else next(iter(gemm)), max(sides), max(sizes))
    return GpuMeasurements(gemm, copy, local_copy, accumulate, interference, blocks, excluded, bench.way)
