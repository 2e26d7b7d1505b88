"""The seam to a device: the few calls that executors need, so that all else is one core for every device."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from umm_hw.blocks import Mapped
from umm_hw.transport import Block

Stream = Any  # work queued in order; made by a device and used with that device alone
Event = Any  # a point in a stream


class Region(NamedTuple):
    """A 2-D block of device memory by address: the operand of a device's calls."""

    address: int  # of the first element, as this process sees it; a peer's memory has addresses here too
    rows: int  # number of rows
    cols: int  # number of columns; the elements of a row are adjacent
    stride: int  # elements from one row to the next
    dtype: np.dtype[Any]  # type of the elements, BFLOAT16 among them

    @classmethod
    def of(cls, block: Block, base: int) -> "Region":
        """Return where a block lies if its rank's part of the heap begins at an address."""
        return cls(base + block.offset, block.rows, block.cols, block.stride, block.dtype)

    @classmethod
    def packed(cls, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> "Region":
        """Return a matrix without gaps between its rows."""
        rows, cols = shape
        return cls(address, rows, cols, cols, dtype)

    @property
    def width(self) -> int:
        """Bytes of one row's elements."""
        return self.cols * self.dtype.itemsize

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next."""
        return self.stride * self.dtype.itemsize


class Device(Protocol):
    """One device: a GPU, or the cores of a CPU.

    The promise: what is given a stream is only queued there and the call returns at once; the work of a
    stream runs in order, the work of two streams in any order that events do not forbid. An event must be
    recorded before it is waited for. ``upload``, ``download`` and ``synchronize`` return when they are done;
    they wait for nothing that streams still have to do, except ``synchronize``, which waits for all of them.
    No region is empty, but of ``view``.
    """

    number: int  # number of the device in this process
    name: str  # what it is, such as `NVIDIA H200`
    memory: int  # bytes it has
    copy_engines: int  # copies it can do at once
    on_cpu: bool  # whether it is the cores of a CPU
    units: int  # multiprocessors it has; 0 where its GEMMs are not known to be cut into tiles of one each

    def reach(self, other: "Device") -> str | None:
        """Let this device's kernels use another's memory; return why its atomic adds cannot, or None."""

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory, all zero."""

    def zero(self, address: int, nbytes: int) -> None:
        """Set memory to zero; done on return."""

    def free(self, address: int) -> None:
        """Give memory back."""

    def stream(self) -> Stream:
        """Return a new stream, which does not wait for the default one."""

    def event(self, timed: bool) -> Event:
        """Return a new event; only a timed one can tell when it happened."""

    def record(self, event: Event, stream: Stream) -> None:
        """Queue an event of this device; it happens when the work before it in the stream is done."""

    def wait(self, stream: Stream, event: Event) -> None:
        """Queue a wait for an event, of this device or of another."""

    def copy(self, source: Region, target: Region, stream: Stream) -> None:
        """Queue a copy between regions of the same shape and type, on this device or on a peer."""

    def multiply(
        self,
        a: Region,
        b: Region,
        c: Region,
        stream: Stream,
        beta: float = 0.0,
        alpha: float = 1.0,
        trans: int = 0,
        tf32: bool = False,
    ) -> None:
        """Queue C = α·op(A)·op(B) + β·C: products summed in float32, or float64 if that is the type.

        Args:
            a: m×k, or k×m if it is read transposed.
            b: k×n, or n×k.
            c: m×n.
            stream: No other thread queues multiplies in it.
            beta: Factor of what C was; 0 does not read it.
            alpha: Factor of the product.
            trans: What is read transposed, as a schedule says it: 2 is A, 4 is B, 6 both.
            tf32: Whether float32 factors may be rounded to TF32's 10 bits of mantissa.
        """

    def map(self, mapped: Mapped, reads: Sequence[Region], target: Region, stream: Stream) -> None:
        """Queue target = mapped(*reads), rounded to the target's type.

        Args:
            mapped: What is done, which a device may do by a kernel. Called, it takes an array for each read,
                bfloat16 widened to float32, and one as ``like``, and returns such an array.
            reads: What is read; the target may be among them, nothing else that overlaps it.
        """

    def accumulate(self, source: Region, target: Region, blocks: int, stream: Stream) -> None:
        """Queue target += source, atomic element by element among all devices."""

    def hold(self, seconds: float, stream: Stream) -> None:
        """Queue a wait of so long, behind which work is queued that then starts at once; on a CPU nothing."""

    def upload(self, array: NDArray[Any], target: Region) -> None:
        """Copy a NumPy array here."""

    def download(self, source: Region, array: NDArray[Any]) -> None:
        """Copy memory into a NumPy array."""

    def finish(self, stream: Stream) -> None:
        """Return when all that was queued in a stream is done."""

    def synchronize(self) -> None:
        """Return when all that was queued on this device is done."""

    def seconds(self, start: Event, end: Event) -> float:
        """Return the seconds from one timed event of this device to another; both have happened."""

    def now(self) -> float:
        """Return the host's clock, in seconds."""

    def view(self, region: Region) -> Any:
        """Return an array of the device's own kind that is a region, without copying."""

    def region(self, array: Any) -> Region | None:
        """Return where an array of the device's own kind lies, None if it is a NumPy array."""

    def name_range(self, name: str | None) -> None:
        """Begin a named range in a profiler's timeline, or end the innermost one."""
