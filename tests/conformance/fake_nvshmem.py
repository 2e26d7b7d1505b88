"""NVSHMEM that is NumPy underneath: a job whose ranks are threads, each with a fake GPU of one world."""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError, Condition, Lock
from time import sleep

import numpy as np
from conformance.fake_device import FakeDevice, FakeWorld

from umm_hw.devices.device import Region
from umm_hw.symmetric.one_sided import Joined

WORD = np.dtype(np.int64)
GRACE = 0.2  # seconds in which the other ranks may fail for the same reason


class FakeRanks:
    """The threads of one job; gathered and broadcast values go through shared lists."""

    def __init__(self, job, rank):
        self.job, self.rank, self.size = job, rank, job.size
        self.gathers = 0

    def barrier(self):
        self.job.barrier.wait()

    def broadcast(self, content):
        return self._exchange(content)[0]

    def gather(self, content):
        """Rank 0 waits for all; the others go on at once, as with MPI."""
        self.gathers += 1
        with self.job.gathered:
            self.job.gathered_contents[self.gathers, self.rank] = content
            self.job.gathered.notify_all()
            if self.rank > 0:
                return []
            of_this = [(self.gathers, rank) for rank in range(self.size)]
            kept = self.job.gathered_contents
            while not all(key in kept for key in of_this):
                assert not self.job.barrier.broken, "another rank has failed"
                self.job.gathered.wait(0.1)
            return [kept.pop(key) for key in of_this]

    def offset(self):
        return 0.0

    def take_lock(self, rank):
        while not self.job.locks[rank].acquire(timeout=0.01):
            assert not self.job.barrier.broken, "another rank has failed"

    def release_lock(self, rank):
        self.job.locks[rank].release()

    def _exchange(self, content):
        self.job.contents[self.rank] = content
        self.barrier()
        result = list(self.job.contents)
        self.barrier()
        return result


class FakeLibrary:
    """One rank's NVSHMEM; ranks of other nodes cannot be seen by pointer."""

    def __init__(self, job, rank, device):
        self.job, self.rank, self.device = job, rank, device
        self.allocations = self.barriers = 0

    def allocate(self, nbytes):
        number = self.allocations
        self.allocations += 1
        address = self.job.world.allocate(nbytes, self.device)
        self.job.parts[number, self.rank] = address, nbytes
        self.job.barrier.wait()
        return address

    def free(self, address):
        self.job.barrier.wait()
        del self.job.world.memory[address]

    def peer(self, address, rank):
        if rank // self.job.ranks_per_node != self.rank // self.job.ranks_per_node:
            return 0
        self.device.reachable.add(self.job.devices[rank])
        return self._of(address, rank)

    def get(self, into, source, nbytes, rank, stream):
        self._copy(self._of(source, rank), into, nbytes, stream)

    def put(self, into, source, nbytes, rank, stream):
        self._copy(source, self._of(into, rank), nbytes, stream)

    def quiet(self, stream):
        self.job.world.queue(stream, lambda: None)

    def signal(self, address, rank, stream):
        word = self._word(address, rank)
        self.job.world.queue(stream, lambda: word.fill(1))

    def wait_signal(self, address, stream):
        word = self._word(address, self.rank)
        self.job.world.queue(stream, lambda: None, ready=lambda: word[0, 0] >= 1)

    def barrier(self, stream):
        number, arrived = self.barriers, self.job.arrived
        self.barriers += 1

        def arrive():
            arrived[number] += 1

        self.job.world.queue(stream, arrive)
        self.job.world.queue(stream, lambda: None, ready=lambda: arrived[number] == self.job.size)

    def _copy(self, source, into, nbytes, stream):
        def array(address):
            return self.job.world.array(Region(address, 1, nbytes, nbytes, np.dtype(np.uint8)))

        self.job.world.queue(
            stream, lambda: array(into).fill(0xFF), lambda: array(into).__setitem__(..., array(source))
        )

    def _word(self, address, rank):
        return self.job.world.array(Region(self._of(address, rank), 1, 1, 1, WORD))

    def _of(self, address, rank):
        """The same place of symmetric memory in a rank's part."""
        parts = self.job.parts.copy()  # other ranks add theirs meanwhile
        for (number, owner), (start, nbytes) in parts.items():
            if owner == self.rank and start <= address < start + nbytes:
                return parts[number, rank][0] + address - start
        raise AssertionError(f"address {address} is not in symmetric memory")


class FakeJob:
    """Ranks that are threads, made anew for every program; ``connect`` gives each its part of NVSHMEM.

    Args:
        world: What the fake GPUs share.
        ranks_per_node: Ranks that see each other's memory by pointer.
    """

    running = True

    def __init__(self, size, seed=0, eager=0.5, ranks_per_node=1000):
        self.size = size
        self.world = FakeWorld(seed, eager, fail_on_deadlock=False)
        self.ranks_per_node = ranks_per_node
        self.barrier = Barrier(size, timeout=60)
        self.contents = [None] * size
        self.locks = [Lock() for _ in range(size)]
        self.gathered, self.gathered_contents = Condition(), {}
        self.parts, self.arrived = {}, defaultdict(int)
        self.devices = [FakeDevice(self.world, rank) for rank in range(size)]

    def joined(self, rank):
        ranks = FakeRanks(self, rank)
        return Joined(ranks, FakeLibrary(self, rank, self.devices[rank]), self.devices[rank])

    def call(self, size, program, operands=None):
        def run(rank):
            try:
                return program(rank) if operands is None or rank else program(rank, operands=operands)
            except BaseException:
                sleep(GRACE)
                self.barrier.abort()
                raise

        with ThreadPoolExecutor(size) as threads:
            futures = [threads.submit(run, rank) for rank in range(size)]
        errors = [future.exception() for future in futures if future.exception()]
        for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
            raise error
        return [future.result() for future in futures]

    def close(self, code=0):
        pass
