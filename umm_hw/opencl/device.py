"""A device by OpenCL: in-order queues, markers, rectangular copies, and the kernels of this package.

OpenCL names memory by buffer objects, the device core by addresses. So each buffer gets a range of addresses
that nobody else has, and a region is looked up by its address.
"""

from collections.abc import Sequence
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray
from pyopencl import array as cl_array

from umm.errors import ExecutorUnavailableError, InfeasibleError, InputError
from umm.program.functions import function
from umm.units import format_bytes
from umm_hw.bfloat16 import BFLOAT16, bfloat16_bits, dtype_name, float32_of
from umm_hw.blocks import Mapped
from umm_hw.devices.device import Device, Event, Region, Stream
from umm_hw.devices.expressions import ELEMENTWISE, numbers_of
from umm_hw.opencl import clblast, kernels
from umm_hw.opencl.context import Kernel, Memory, built, kind_of

GROUP = 64  # items of a work-group of an accumulate kernel
ON_CPU, ON_GPU = (64, 256, 1), (64, 16, 64)  # of a gemm's group: tile, chunk of float32, items
MOST_GROUPS = 256  # of a kernel that walks a block
_LAUNCHING = Lock()
NEEDS_INT64_ATOMICS = ("float64", "int64")


class _Event:
    """A point in a queue: its latest marker."""

    marker: cl.Event | None = None


class OpenClDevice:
    """One device of a context; the promise is that of :class:`umm_hw.devices.device.Device`.

    Args:
        device: What OpenCL calls it.
        number: Its number in this process.
        memory: The buffers of its context.

    Attributes:
        heap: These buffers.

    Source: of each call, the OpenCL 1.2 specification; ``pyopencl`` has them under nearly the same names.
    """

    copy_engines = 1

    def __init__(self, device: cl.Device, number: int, memory: Memory) -> None:
        self.number, self.name = number, device.name.strip()
        self.memory: int = device.global_mem_size
        self.on_cpu = kind_of(device) == "CPU"  # whether its memory is the host's
        self.units = 0
        self._device, self.heap, self._context = device, memory, memory.context
        self._queues: list[Stream] = []
        self._own = self.stream()
        self._kernels: dict[tuple[str, ...], Kernel] = {}
        self._sizes = ON_CPU if self.on_cpu else ON_GPU
        self._clblast = clblast.wanted(self.on_cpu)
        self._failed: list[BaseException] = []  # of maps on the host

    def reach(self, other: Device) -> str | None:
        """Buffers are the context's; additions are atomic on one device, or on the cores of a CPU."""
        if other.number == self.number or self.on_cpu:
            return None
        return f"OpenCL's additions of device {self.number} are not atomic for device {other.number}"

    def hold(self, seconds: float, stream: Stream) -> None:
        """Queue nothing: OpenCL has no clock in kernels."""

    # Memory ---------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """Make a buffer and have it backed; InfeasibleError if the device has not so much."""
        try:
            address = self.heap.add(cl.Buffer(self._context, cl.mem_flags.READ_WRITE, size=max(nbytes, 8)))
            self.zero(address, max(nbytes, 8))
        except (cl.MemoryError, cl.RuntimeError, cl.LogicError) as error:
            most = format_bytes(self._device.max_mem_alloc_size)
            raise InfeasibleError(
                f"{self.name} does not allocate {format_bytes(nbytes)} ({error}); it has "
                f"{format_bytes(self.memory)}, and at most {most} in one piece; fewer replicas, "
                "--granularity slice or a smaller --prefetch take less"
            ) from None
        return address

    def zero(self, address: int, nbytes: int) -> None:
        """Call clEnqueueFillBuffer and wait for it."""
        if nbytes:
            buffer, offset = self.heap.at(address)
            cl.enqueue_fill_buffer(self._own, buffer, np.uint8(0), offset, nbytes).wait()

    def free(self, address: int) -> None:
        """Release a buffer."""
        self.heap.remove(address)

    def upload(self, array: NDArray[Any], target: Region) -> None:
        """Copy rows from the host."""
        rows = np.ascontiguousarray(array)
        buffer, offset = self.heap.at(target.address)
        cl.enqueue_copy(
            self._own,
            buffer,
            rows.view(np.uint8),
            buffer_origin=(offset, 0, 0),
            host_origin=(0, 0, 0),
            region=(target.width, target.rows, 1),
            buffer_pitches=(_pitch(target), 0),
            host_pitches=(target.width, 0),
            is_blocking=True,
        )

    def download(self, source: Region, array: NDArray[Any]) -> None:
        """Copy rows to the host."""
        rows = np.empty(array.shape, array.dtype)
        buffer, offset = self.heap.at(source.address)
        cl.enqueue_copy(
            self._own,
            rows.view(np.uint8),
            buffer,
            buffer_origin=(offset, 0, 0),
            host_origin=(0, 0, 0),
            region=(source.width, source.rows, 1),
            buffer_pitches=(_pitch(source), 0),
            host_pitches=(source.width, 0),
            is_blocking=True,
        )
        array[...] = rows

    def view(self, region: Region) -> Any:
        """Return an array of pyopencl; bfloat16 appears as its bits, uint16."""
        dtype = np.dtype(np.uint16) if region.dtype == BFLOAT16 else region.dtype
        buffer, offset = self.heap.at(region.address)
        strides = region.pitch, dtype.itemsize
        return cl_array.Array(
            self._own, (region.rows, region.cols), dtype, data=buffer, offset=offset, strides=strides
        )

    def region(self, array: Any) -> Region | None:
        """Return where an array of pyopencl lies."""
        if not isinstance(array, cl_array.Array):
            return None
        rows, cols = array.shape
        if array.size and cols > 1 and array.strides[1] != array.dtype.itemsize:
            raise InputError("the elements of a row must be adjacent")
        address = self.heap.address(array.base_data) + array.offset
        return Region(address, rows, cols, max(array.strides[0] // array.dtype.itemsize, cols), array.dtype)

    # Streams --------------------------------------------------------------------------------------

    def stream(self) -> Stream:
        """Return an in-order queue that keeps times."""
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self._queues.append(cl.CommandQueue(self._context, self._device, properties=profiling))
        return self._queues[-1]

    def event(self, timed: bool) -> Event:
        """Return an event that holds a marker once it is recorded."""
        return _Event()

    def record(self, event: Event, stream: Stream) -> None:
        """Queue a marker; flushed, so that other queues may wait for it."""
        event.marker = cl.enqueue_marker(stream)
        stream.flush()

    def wait(self, stream: Stream, event: Event) -> None:
        """Queue a barrier that waits for the marker."""
        cl.enqueue_barrier(stream, wait_for=[event.marker])

    def finish(self, stream: Stream) -> None:
        """Call clFinish, and raise the error of a map on the host, if any."""
        stream.finish()
        self._check()

    def synchronize(self) -> None:
        """Finish every queue of this device."""
        for queue in self._queues:
            queue.finish()
        self._check()

    def seconds(self, start: Event, end: Event) -> float:
        """Return the time between the ends of two markers, by OpenCL's profiling."""
        nanoseconds: int = end.marker.profile.end - start.marker.profile.end
        return nanoseconds * 1e-9

    def now(self) -> float:
        """Return ``perf_counter``."""
        return perf_counter()

    def name_range(self, name: str | None) -> None:
        """Do nothing: OpenCL's profilers name queues and kernels themselves."""

    # Work -----------------------------------------------------------------------------------------

    def copy(self, source: Region, target: Region, stream: Stream) -> None:
        """Queue clEnqueueCopyBufferRect, or a plain copy where both are contiguous."""
        (from_, source_at), (into, target_at) = (self.heap.at(x.address) for x in (source, target))
        if source.pitch == target.pitch == source.width:
            nbytes = source.rows * source.width
            cl.enqueue_copy(
                stream, into, from_, src_offset=source_at, dst_offset=target_at, byte_count=nbytes
            )
            return
        if from_ is into and _pitch(source) != _pitch(target):  # which OpenCL refuses in one rectangle
            for row in range(source.rows):
                start, end = source_at + row * source.pitch, target_at + row * target.pitch
                cl.enqueue_copy(
                    stream, into, from_, src_offset=start, dst_offset=end, byte_count=source.width
                )
            return
        cl.enqueue_copy(
            stream,
            into,
            from_,
            src_origin=(source_at, 0, 0),
            dst_origin=(target_at, 0, 0),
            region=(source.width, source.rows, 1),
            src_pitches=(_pitch(source), 0),
            dst_pitches=(_pitch(target), 0),
        )

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
        """Queue CLBlast's GEMM, or the tiled kernel."""
        k = a.rows if trans & 2 else a.cols
        if self._clblast and a.dtype == b.dtype == c.dtype:
            left, right = (
                (*self.heap.at(x.address), x.stride, bool(trans & bit)) for x, bit in ((a, 2), (b, 4))
            )
            target, shape = (*self.heap.at(c.address), c.stride), (c.rows, c.cols, k)
            with _LAUNCHING:
                if clblast.multiply(c.dtype, shape, left, right, target, alpha, beta, stream):
                    return
        tile = self._sizes[0]
        real = np.float64 if c.dtype == np.float64 else np.float32
        kernel = self._kernel("gemm", dtype_name(a.dtype), dtype_name(c.dtype))
        steps = [(1, x.stride) if trans & bit else (x.stride, 1) for x, bit in ((a, 2), (b, 4))]
        factors = *self._argument(a)[:2], *steps[0], *self._argument(b)[:2], *steps[1]
        groups = -(-c.cols // tile), -(-c.rows // tile)
        sizes = c.rows, c.cols, k, real(alpha), real(beta)
        self._launch(kernel, stream, groups, *factors, *self._argument(c), *sizes)

    def map(self, mapped: Mapped, reads: Sequence[Region], target: Region, stream: Stream) -> None:
        """Queue a kernel where one does it, else NumPy on mapped memory."""
        names = [dtype_name(x.dtype) for x in (*reads, target)]
        if mapped.function.name not in ELEMENTWISE:
            self._map_on_host(mapped, reads, target, stream)
            return
        kernel = self._kernel("map", mapped.function.name, *names)
        operands = [argument for read in reads for argument in self._argument(read)]
        shape = target.rows, target.cols, mapped.shape[1]
        numbers = *self._argument(target), *shape, *operands, *numbers_of(mapped, names)
        self._launch(kernel, stream, self._groups(target), *numbers)

    def accumulate(self, source: Region, target: Region, blocks: int, stream: Stream) -> None:
        """Queue the kernel for the two types."""
        kernel = self._kernel("accumulate", dtype_name(source.dtype), dtype_name(target.dtype))
        places = *self._argument(source), *self._argument(target), source.rows, source.cols
        self._launch(kernel, stream, min(blocks, self._groups(target)), *places)

    # Details --------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Raise the error of the first map on the host that failed, once."""
        failed, self._failed = self._failed, []
        if failed:
            raise failed[0]

    def _argument(self, region: Region) -> tuple[cl.Buffer, int, int]:
        """Return a region as kernels take it: buffer, elements before it, elements from row to row."""
        buffer, offset = self.heap.at(region.address)
        return buffer, offset // region.dtype.itemsize, region.stride

    def _groups(self, region: Region) -> int:
        """Return how many work-groups walk a region."""
        return min(region.rows * -(-region.cols // kernels.SPAN), MOST_GROUPS)

    def _launch(self, kernel: Kernel, stream: Stream, groups: int | tuple[int, int], *arguments: Any) -> None:
        size = (groups, 1) if isinstance(groups, int) else groups
        with _LAUNCHING:  # a kernel keeps its arguments until it is queued
            if not kernel.ran:
                # PoCL compiles what a kernel runs when it first does, in a thread of its own, and crashes if
                # another program is built meanwhile. So it runs once here on no elements.
                nothing = (0 if isinstance(x, int) else x for x in arguments)
                kernel.queue(self._own, (1, 1), nothing).wait()
                kernel.ran = True
            kernel.queue(stream, size, arguments)

    def _kernel(self, kind: str, *names: str) -> Kernel:
        """Return a kernel, built when it is first used."""
        key = kind, *names
        if key not in self._kernels:
            lacks = self._lacks(names)
            if lacks:
                raise ExecutorUnavailableError(f"{self.name} has no {lacks}; choose another --dtype")
            group, source = 1 if self.on_cpu else GROUP, None
            if kind == "gemm":
                tile, chunk, group = self._sizes
                item = 8 if names[1] == "float64" else 4
                chunk = min(chunk * 4, self._device.local_mem_size // (2 * tile)) // item
                source = kernels.gemm(names[0], names[1], tile, chunk, group)
            elif kind == "accumulate":
                source = kernels.accumulate(names[0], names[1])
            else:
                source = kernels.elementwise(function(names[0]), names[1:-1], names[-1])
            assert source is not None
            options = [] if "float64" in names else ["-cl-single-precision-constant"]
            self._kernels[key] = Kernel(built(self._context, source, options, kind), group)
        return self._kernels[key]

    def _lacks(self, names: Sequence[str]) -> str | None:
        """Return the feature that the device lacks for some types; None if it lacks none."""
        has = self._device.extensions.split()
        if "float64" in names and "cl_khr_fp64" not in has:
            return "float64"
        if set(NEEDS_INT64_ATOMICS) & set(names) and "cl_khr_int64_base_atomics" not in has:
            return "atomics of 64 bits"
        return None

    def _map_on_host(self, mapped: Mapped, reads: Sequence[Region], target: Region, stream: Stream) -> None:
        """Queue a map that NumPy performs when the queue has come to it, by a thread of OpenCL's."""
        # The queue waits for an event of ours, which the thread sets when it is done.
        here = [self._mapped(read, cl.map_flags.READ, stream) for read in reads if read != target]
        into = self._mapped(target, cl.map_flags.READ | cl.map_flags.WRITE, stream)
        arrived, done = cl.enqueue_marker(stream), cl.UserEvent(self._context)

        def perform(status: int) -> None:
            try:
                others = iter(here)
                arrays = [into if read == target else next(others) for read in reads]
                wide = [
                    float32_of(array) if read.dtype == BFLOAT16 else array
                    for array, read in zip(arrays, reads, strict=True)
                ]
                with np.errstate(all="ignore"):
                    result = mapped(*wide, like=into)
                    into[...] = bfloat16_bits(result) if target.dtype == BFLOAT16 else result
            except BaseException as error:
                self._failed.append(error)
            finally:
                done.set_status(cl.command_execution_status.COMPLETE)

        cl.enqueue_barrier(stream, wait_for=[done])
        for array in (*here, into):
            _holder(array).release(stream)
        stream.flush()
        arrived.set_callback(cl.command_execution_status.COMPLETE, perform)

    def _mapped(self, region: Region, flags: int, stream: Stream) -> NDArray[Any]:
        """Queue the mapping of a region; return the array that it will be."""
        buffer, offset = self.heap.at(region.address)
        dtype = np.dtype(np.uint16) if region.dtype == BFLOAT16 else region.dtype
        strides = region.pitch, dtype.itemsize
        array: NDArray[Any]
        array, _ = cl.enqueue_map_buffer(
            stream,
            buffer,
            flags,
            offset,
            (region.rows, region.cols),
            dtype,
            strides=strides,
            is_blocking=False,
        )
        return array


def _holder(array: NDArray[Any]) -> Any:
    """Return the memory map below an array."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base


def _pitch(region: Region) -> int:
    """Return the bytes from row to row; OpenCL wants no fewer than a row has."""
    return max(region.pitch, region.width)
