"""GPUs that are NumPy underneath: streams whose work is done in a random order that events allow.

Everything the real device may do late, these do late now and then: queued work waits in its stream until the
random choice falls on it, or somebody synchronises. What an action overwrites is NaN from its start to its
finish, and what it reads it reads at its finish, so a wait that was left out shows as NaN or a wrong sum.
Addresses are numbers of no real memory, with gaps in between: what leaves its allocation is an error.
"""

from bisect import bisect_right
from collections import deque
from random import Random
from threading import Condition

import numpy as np

from umm_hw.bfloat16 import BFLOAT16, dtype_name, to_bfloat16, to_float32
from umm_hw.devices.device import Region
from umm_hw.gpu.accumulate_kernels import PAIRS

GAP = 1 << 20
PATIENCE = 20.0  # seconds without any rank's progress that count as a deadlock


class FakeStream:
    def __init__(self, device):
        self.device = device
        self.work = deque()  # (can it go on, steps left)


class FakeEvent:
    def __init__(self, device, timed):
        self.device, self.timed = device, timed
        self.recorded = self.happened = 0  # how often
        self.time = None


class FakeWorld:
    """The state that GPUs of all processes share: memory, one clock, and the order of events."""

    def __init__(self, seed=0, eager=0.5, fail_on_deadlock=True):
        self.random = Random(seed)
        self.eager = eager
        self.change = self.random.choice([0.03, 0.1, 0.3, 1.0])
        self.favourite = None
        self.waiting = 0  # threads that can do nothing until others queue work
        self.fail_on_deadlock = fail_on_deadlock
        self.turn = Condition()
        self.ticks = 0
        self.streams = []
        self.starts, self.memory = [], {}
        self.next_address = GAP
        self.allocations = 0

    def devices(self, number):
        """GPUs of one process, each with a clock that started at another time."""
        return [FakeDevice(self, i) for i in range(number)]

    # Memory ---------------------------------------------------------------------------------------

    def allocate(self, nbytes, device):
        with self.turn:
            start = self.next_address
            self.next_address += (nbytes + GAP) // 256 * 256 + 256
            self.starts.append(start)
            self.memory[start] = np.zeros(max(nbytes, 1), np.uint8), device
            return start

    def array(self, region, device=None):
        """The region as an array; an error if it leaves its allocation or the device cannot reach it."""
        start = self.starts[bisect_right(self.starts, region.address) - 1]
        assert start in self.memory, f"address {region.address} was freed"
        buffer, owner = self.memory[start]
        offset = region.address - start
        end = offset + (region.rows - 1) * region.pitch + region.width
        assert end <= len(buffer), f"{region} ends {end - len(buffer)} bytes after its allocation"
        assert region.rows < 2 or region.stride >= region.cols, f"the rows of {region} overlap"
        assert device is None or owner in device.reachable, f"{device.name} has no access to {owner.name}"
        shape, strides = region[1:3], (region.pitch, region.dtype.itemsize)
        return np.ndarray(shape, region.dtype, buffer, offset, strides)

    # Time -----------------------------------------------------------------------------------------

    def queue(self, stream, *steps, ready=None):
        """Put work into a stream, and let some happen."""
        with self.turn:
            stream.work.append((ready, deque(steps)))
            if self.waiting:
                self.turn.notify_all()
            while self.random.random() < self.eager and self.step():
                pass

    def step(self):
        """Do the next step of a random stream, mostly the one before; False if none can go on.

        Staying with a stream lets it get far ahead of the others, or keeps it far behind.
        """
        able = [s for s in self.streams if s.work and (s.work[0][0] is None or s.work[0][0]())]
        if not able:
            return False
        if self.favourite not in able or self.random.random() < self.change:
            self.favourite = self.random.choice(able)
        stream = self.favourite
        _, steps = stream.work[0]
        self.ticks += 1
        steps.popleft()()
        if not steps:
            stream.work.popleft()
            if self.waiting and not stream.work:
                self.turn.notify_all()
        return True

    def spend(self, region):
        """Let the time pass that moving a region takes."""
        self.ticks += region.rows * region.width // 256

    def finish(self, streams):
        """Do steps until some streams are empty."""
        with self.turn:
            while any(stream.work for stream in streams):
                if self.step():
                    continue
                assert not self.fail_on_deadlock, "every stream waits for another"
                self.waiting += 1
                assert self.turn.wait(PATIENCE), "every stream waits for another"
                self.waiting -= 1


class FakeDevice:
    """One GPU as one process sees it; the promise is that of umm_hw.devices.device.Device."""

    on_cpu = False

    def __init__(self, world, number):
        self.world, self.number, self.name = world, number, f"fake {number}"
        self.memory, self.copy_engines, self.units = 1 << 30, 3, 0
        self.reachable = {self}
        self.streams = []
        self.skew = 1000 * number  # ticks that its clock is ahead
        self.ranges = []

    def reach(self, other):
        self.reachable.add(other)

    def allocate(self, nbytes):
        return self.world.allocate(nbytes, self)

    def zero(self, address, nbytes):
        self._array(Region.packed(address, (1, nbytes), np.dtype(np.uint8)))[...] = 0

    def free(self, address):
        del self.world.memory[address]

    def stream(self):
        stream = FakeStream(self)
        with self.world.turn:
            self.streams.append(stream)
            self.world.streams.append(stream)
        return stream

    def event(self, timed):
        return FakeEvent(self, timed)

    def record(self, event, stream):
        assert event.device is self is stream.device, "an event is recorded on its own device"

        def happen():
            event.happened += 1
            event.time = self.world.ticks + self.skew

        event.recorded += 1
        self.world.queue(stream, happen)

    def wait(self, stream, event):
        assert stream.device is self
        assert event.recorded, "CUDA would not wait for an event that was never recorded"
        times = event.recorded
        self.world.queue(stream, lambda: None, ready=lambda: event.happened >= times)

    def hold(self, seconds, stream):
        assert stream.device is self

    def copy(self, source, target, stream):
        assert source[1:3] == target[1:3]
        assert source.dtype == target.dtype
        self._queue(stream, target, lambda: self._array(source), lambda into, x: into.__setitem__(..., x))

    def multiply(self, a, b, c, stream, beta=0.0, alpha=1.0, trans=0, tf32=False):
        assert stream.device is self
        (m, k), (k_too, n) = a[1:3][:: -1 if trans & 2 else 1], b[1:3][:: -1 if trans & 4 else 1]
        assert (m, n, k) == (c.rows, c.cols, k_too)
        previous = []

        def start():
            previous.append(to_float(self._array(c)).copy())
            poison(self._array(c))

        def finish():
            self.world.ticks += m * n * k // 64
            left, right = to_float(self._array(a)), to_float(self._array(b))
            with np.errstate(invalid="ignore"):
                product = (left.T if trans & 2 else left) @ (right.T if trans & 4 else right)
                product = alpha * product.astype(previous[0].dtype)
                store(self._array(c), beta * previous[0] + product if beta else product)

        self.world.queue(stream, start, finish)

    def map(self, mapped, reads, target, stream):
        """Operands in place are read at its start, all others at its finish."""
        assert stream.device is self
        previous = []

        def start():
            previous.append(to_float(self._array(target)).copy())
            poison(self._array(target))

        def finish():
            self.world.spend(target)
            arrays = [previous[0] if read == target else to_float(self._array(read)) for read in reads]
            with np.errstate(all="ignore"):
                result = mapped(*arrays, like=previous[0])
            assert result.shape == target[1:3]
            store(self._array(target), result)

        self.world.queue(stream, start, finish)

    def accumulate(self, source, target, blocks, stream):
        assert blocks > 0
        assert (dtype_name(source.dtype), dtype_name(target.dtype)) in PAIRS
        assert source[1:3] == target[1:3]

        def finish():
            into = self._array(target)
            self.world.spend(target)
            with np.errstate(invalid="ignore"):
                store(into, to_float(into) + to_float(self._array(source)))

        assert stream.device is self
        self.world.queue(stream, lambda: None, finish)

    def upload(self, array, target):
        self._array(target)[...] = array

    def download(self, source, array):
        array[...] = self._array(source)

    def finish(self, stream):
        self.world.finish([stream])

    def synchronize(self):
        self.world.finish(self.streams)

    def seconds(self, start, end):
        assert start.device is end.device is self
        assert start.timed
        assert end.timed
        return (end.time - start.time) * 1e-6

    def now(self):
        with self.world.turn:
            self.world.ticks += 1
            return self.world.ticks * 1e-6

    def view(self, region):
        return self._array(region) if region.rows * region.cols else np.empty(region[1:3], region.dtype)

    def region(self, array):
        """Arrays over this world's memory are the device's own kind."""
        base = array
        while base.base is not None:
            base = base.base
        for start, (buffer, _) in list(self.world.memory.items()):
            if base is buffer:
                address = start + array.ctypes.data - buffer.ctypes.data
                stride = max(array.strides[0] // array.itemsize, array.shape[1])
                return Region(address, *array.shape, stride, array.dtype)
        return None

    def name_range(self, name):
        self.ranges.append(name)

    def _array(self, region):
        return self.world.array(region, self)

    def _queue(self, stream, target, read, write):
        assert stream.device is self
        self.world.queue(
            stream,
            lambda: poison(self._array(target)),
            lambda: (self.world.spend(target), write(self._array(target), read())),
        )


def to_float(array):
    """Values to calculate with: at least float32; whole numbers as they are."""
    if array.dtype == BFLOAT16:
        return to_float32(array)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def store(array, values):
    array[...] = to_bfloat16(values) if array.dtype == BFLOAT16 else values


def poison(array):
    """NaN in every floating-point type."""
    for row in array:
        row.view(np.uint8).fill(0xFF)
