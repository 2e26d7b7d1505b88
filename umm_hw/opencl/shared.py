"""Symmetric memory of CPU devices: each rank's part is shared memory, which every process wraps in a buffer.

Between processes nothing of OpenCL waits. So a rank writes to words in another's part when its queue has come
there. A thread of the other's process looks at them and sets the event that a queue there waits for.
"""

import os
from collections.abc import Sequence
from threading import Condition, Thread
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyopencl as cl

from umm.arrays import Ints
from umm.errors import ExecutorUnavailableError
from umm_hw.cores.backoff import Backoff
from umm_hw.devices.device import Stream
from umm_hw.opencl.device import OpenClDevice
from umm_hw.opencl.platforms import visible
from umm_hw.symmetric.one_sided import Joined

if TYPE_CHECKING:
    from umm_hw.mpi.transport import MpiTransport
    from umm_hw.mpi.windows import SharedWindow

WORD = 8  # bytes
USUAL_PAUSE = 200e-6  # seconds between two looks at words


class _Part(NamedTuple):
    """One allocation: its window, and the address of each rank's part of it in this process."""

    window: "SharedWindow"
    nbytes: int
    addresses: list[int]


class SharedMemory:
    """The promise is that of :class:`umm_hw.symmetric.one_sided.OneSided`; every rank reaches every other.

    Args:
        transport: The ranks, on one host.
        device: This rank's, whose memory is the host's.
    """

    def __init__(self, transport: "MpiTransport", device: OpenClDevice) -> None:
        self._transport, self._device = transport, device
        self._parts: dict[int, _Part] = {}
        self._watch = _Watch()
        self._barriers = 0
        self._arrivals = self.allocate(WORD * transport.size)

    def allocate(self, nbytes: int) -> int:
        """Share memory, all zero, and wrap every rank's part of it."""
        from umm_hw.mpi.windows import (
            SharedWindow,
        )  # not above: who names ``connect`` to the ranks starts no MPI

        window = SharedWindow(self._transport.comm, [nbytes] * self._transport.size)
        window.own[:] = 0
        self._transport.barrier()
        memory, flags = self._device.heap, cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        addresses = [
            memory.add(cl.Buffer(memory.context, flags, hostbuf=window.part(rank)))
            for rank in range(self._transport.size)
        ]
        address = addresses[self._transport.rank]
        self._parts[address] = _Part(window, nbytes, addresses)
        return address

    def free(self, address: int) -> None:
        """Forget the buffers, and unmap the memory when all ranks have."""
        part = self._parts.pop(address)
        for start in part.addresses:
            self._device.free(start)
        self._transport.barrier()
        part.window.free()

    def peer(self, address: int, rank: int) -> int:
        """Return where this process sees the same place of a rank's part."""
        start, part = self._part(address)
        return part.addresses[rank] + address - start

    def get(self, into: int, source: int, nbytes: int, rank: int, stream: Stream) -> None:
        """Never called: every rank is reached by address."""
        raise NotImplementedError

    def put(self, into: int, source: int, nbytes: int, rank: int, stream: Stream) -> None:
        """Never called: every rank is reached by address."""
        raise NotImplementedError

    def quiet(self, stream: Stream) -> None:
        """Do nothing: a command's writes are in the host's memory when it ends."""

    def signal(self, address: int, rank: int, stream: Stream) -> None:
        """Queue a write of 1."""
        self._write(1, self.peer(address, rank), stream)

    def wait_signal(self, address: int, stream: Stream) -> None:
        """Queue a wait for an event of ours, set when the word is 1."""
        self._wait(self._words(address, 1), 1, stream)

    def barrier(self, stream: Stream) -> None:
        """Queue a write of the barrier's number to every rank, and a wait until all have written it here."""
        self._barriers += 1
        for rank in range(self._transport.size):
            mine = self.peer(self._arrivals, rank) + WORD * self._transport.rank
            self._write(self._barriers, mine, stream)
        self._wait(self._words(self._arrivals, self._transport.size), self._barriers, stream)

    def close(self) -> None:
        """Free this object's own memory; collective."""
        self._watch.stop()
        self.free(self._arrivals)

    def _part(self, address: int) -> tuple[int, _Part]:
        """Return the allocation of an address of this rank's, and where it starts."""
        return next((x, part) for x, part in self._parts.items() if x <= address < x + part.nbytes)

    def _words(self, address: int, count: int) -> Ints:
        start, part = self._part(address)
        words: Ints = part.window.own[address - start :][: WORD * count].view(np.int64)
        return words

    def _write(self, number: int, address: int, stream: Stream) -> None:
        buffer, offset = self._device.heap.at(address)
        cl.enqueue_fill_buffer(stream, buffer, np.int64(number), offset, WORD)
        stream.flush()

    def _wait(self, words: Ints, number: int, stream: Stream) -> None:
        event = cl.UserEvent(self._device.heap.context)
        cl.enqueue_barrier(stream, wait_for=[event])
        stream.flush()
        self._watch.add(words, number, event)


class _Watch:
    """A thread that looks at words of shared memory, now and then, while somebody waits for them."""

    def __init__(self) -> None:
        self._awaited: list[tuple[Ints, int, cl.UserEvent]] = []
        self._changed = Condition()
        self._stopped = False
        self._pauses = Backoff(USUAL_PAUSE)
        self._thread = Thread(target=self._run, name="umm-watch", daemon=True)
        self._thread.start()

    def add(self, words: Ints, number: int, event: "cl.UserEvent") -> None:
        """Set an event once all of some words have reached a number."""
        with self._changed:
            self._awaited.append((words, number, event))
            self._pauses.restart()  # what others wait for may take long, this may come at once
            self._changed.notify()

    def stop(self) -> None:
        """End the thread; nobody waits any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._stopped:
                    self._changed.wait(self._pauses.pause() if self._awaited else None)
                if self._stopped:
                    return
                arrived = [entry for entry in self._awaited if (entry[0] >= entry[1]).all()]
                if arrived:
                    gone = {id(entry) for entry in arrived}
                    self._awaited = [entry for entry in self._awaited if id(entry) not in gone]
                    self._pauses.restart()
            for _, _, event in arrived:
                event.set_status(cl.command_execution_status.COMPLETE)


def connect(transport: "MpiTransport", wanted: str = "cpu") -> Joined:
    """Join the ranks of an MPI job, each with the CPU as its device.

    ExecutorUnavailableError if they are on several hosts, or the device's memory is not the host's.
    """
    if not transport.shared:
        raise ExecutorUnavailableError(
            "OpenCL's ranks share the memory of one host, and these are on several"
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", str(max(1, cores // transport.size)))
    devices: Sequence[OpenClDevice] = visible(wanted)
    if not devices[0].on_cpu:
        raise ExecutorUnavailableError(
            f"processes do not share memory of {devices[0].name}; set processes=off"
        )
    devices[0].number = transport.rank % (os.cpu_count() or 1)  # each process has threads of its own
    memory = SharedMemory(transport, devices[0])
    return Joined(transport, memory, devices[0], memory.close, _STREAMS)


_STREAMS: dict[int, Stream] = {}  # of the lanes, kept from run to run
