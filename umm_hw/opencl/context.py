"""An OpenCL context's buffers, found by address, and kernels that are built for its devices."""

import warnings
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any

import numpy as np
import pyopencl as cl

from umm_hw.devices.device import Stream

GAP = 4096  # addresses between two buffers, so that what leaves one is in none


class Memory:
    """The buffers of one context by address; devices of the context share them."""

    def __init__(self, context: cl.Context) -> None:
        self.context = context
        self._next = GAP
        self._starts: list[int] = []
        self._buffers: dict[int, cl.Buffer] = {}
        self._lock = Lock()

    def add(self, buffer: cl.Buffer) -> int:
        """Return the address of a buffer from now on."""
        with self._lock:
            start = self._next
            self._next += -(-buffer.size // GAP) * GAP + GAP
            self._starts.append(start)
            self._buffers[start] = buffer
        return start

    def remove(self, address: int) -> None:
        """Forget and release a buffer."""
        with self._lock:
            self._starts.remove(address)
            self._buffers.pop(address).release()

    def at(self, address: int) -> tuple[cl.Buffer, int]:
        """Return the buffer of an address and the bytes before it."""
        start = self._starts[bisect_right(self._starts, address) - 1]
        return self._buffers[start], address - start

    def address(self, buffer: cl.Buffer) -> int:
        """Return the address of a buffer."""
        return next(start for start, other in self._buffers.items() if other == buffer)


class Kernel:
    """A kernel and the items of its work-groups."""

    def __init__(self, kernel: cl.Kernel, group: int) -> None:
        self._kernel, self._group = kernel, group
        self.ran = False  # whether it has run on its device

    def queue(self, stream: Stream, groups: tuple[int, int], arguments: Iterable[Any]) -> cl.Event:
        """Queue it; whole numbers are long."""
        numbers = [np.int64(x) if isinstance(x, int) else x for x in arguments]
        return self._kernel(stream, (groups[0] * self._group, groups[1]), (self._group, 1), *numbers)


def built(context: cl.Context, source: str, options: Sequence[str], name: str) -> cl.Kernel:
    """Return a kernel of a program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        return cl.Kernel(cl.Program(context, source).build(list(options)), name)


def kind_of(device: cl.Device) -> str:
    """Return a device's kind in a word."""
    return (
        "GPU" if device.type & cl.device_type.GPU else "CPU" if device.type & cl.device_type.CPU else "device"
    )
