"""A GPU by CuPy: streams, events, 2-D copies, cuBLAS with leading dimensions, and the accumulate kernels."""

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.errors import InfeasibleError, InputError
from umm.units import format_bytes
from umm_hw.bfloat16 import BFLOAT16, bfloat16_bits, dtype_name, float32_of
from umm_hw.blocks import Mapped
from umm_hw.devices.device import Device, Event, Region, Stream
from umm_hw.devices.expressions import numbers_of
from umm_hw.gpu.accumulate_kernels import OPTIONS, SOURCE, THREADS, kernel_name
from umm_hw.gpu.map_kernels import MAP_THREADS, map_grid, map_name, map_source, width_of

_MEMORY_ALLOCATION = 2  # cudaErrorMemoryAllocation
_NATIVE_ATOMICS = 3  # CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
_PEER_ACCESS_ALREADY_ENABLED = 704  # cudaErrorPeerAccessAlreadyEnabled


def device_count() -> int:
    """Return the number of visible GPUs; CUDA starts here.

    ImportError if CuPy is not installed. Exception if cuPy's CUDARuntimeError if there is no driver or no
    GPU.
    """
    # Streams beyond this many share hardware queues; it would be 8.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    from cupy.cuda import runtime

    count: int = runtime.getDeviceCount()
    return count


def atomics_problem(number: int, other: int) -> str | None:
    """Return why kernels of one GPU cannot add atomically to memory of another; None if they can."""
    supported = ctypes.c_int(0)
    ctypes.CDLL("libcuda.so.1").cuDeviceGetP2PAttribute(
        ctypes.byref(supported), _NATIVE_ATOMICS, number, other
    )
    if not supported.value:
        return f"the link from GPU {number} to GPU {other} carries no atomic adds"
    return None


class CupyDevice:
    """One of the visible GPUs; the promise is that of :class:`umm_hw.devices.device.Device`.

    Args:
        number: CUDA's number of the device in this process.

    Source: of each call, the CUDA runtime and cuBLAS references; CuPy's ``cupy.cuda.runtime`` and
    ``cupy_backends.cuda.libs.cublas`` have them under the same names.
    """

    on_cpu = False

    def __init__(self, number: int) -> None:
        import cupy
        from cupy.cuda import nvtx, runtime

        self._cupy, self._runtime, self._nvtx = cupy, runtime, nvtx
        self.number = number
        properties = self._runtime.getDeviceProperties(number)
        self.name: str = properties["name"].decode()
        self.memory: int = properties["totalGlobalMem"]
        self.copy_engines: int = self._runtime.deviceGetAttribute(
            self._runtime.cudaDevAttrAsyncEngineCount, number
        )
        self.units: int = properties["multiProcessorCount"]
        self._own = self.stream()
        self._handles: dict[int, int] = {}
        self._kernels: dict[tuple[np.dtype[Any], np.dtype[Any]], Any] = {}
        self._maps: dict[str, Any] = {}

    def reach(self, other: Device) -> str | None:
        """Enable peer access, and ask the driver whether the link carries atomic adds."""
        if other.number == self.number:
            return None
        if not self._runtime.deviceCanAccessPeer(self.number, other.number):
            return f"GPU {self.number} cannot access the memory of GPU {other.number}"
        self._select()
        try:
            self._runtime.deviceEnablePeerAccess(other.number)
        except self._runtime.CUDARuntimeError as error:
            if error.status != _PEER_ACCESS_ALREADY_ENABLED:
                raise
        return atomics_problem(self.number, other.number)

    # Memory ---------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """Allocate raw memory, outside CuPy's pool, so that its pointer is its base.

        InfeasibleError if the GPU has not so much left.
        """
        self._select()
        try:
            address: int = self._runtime.malloc(max(nbytes, 1))
        except self._runtime.CUDARuntimeError as error:
            if error.status != _MEMORY_ALLOCATION:
                raise
            free = format_bytes(self._runtime.memGetInfo()[0])
            raise InfeasibleError(
                f"{self.name} (GPU {self.number}) has {free} free, and {format_bytes(nbytes)} more is needed"
                "; fewer replicas, --granularity slice or a smaller --prefetch take less"
            ) from None
        self.zero(address, nbytes)
        return address

    def zero(self, address: int, nbytes: int) -> None:
        """Call cudaMemsetAsync and wait for it."""
        self._runtime.memsetAsync(address, 0, nbytes, self._own.ptr)
        self._runtime.streamSynchronize(self._own.ptr)

    def free(self, address: int) -> None:
        """Free raw memory."""
        self._select()
        self._runtime.free(address)

    def upload(self, array: NDArray[Any], target: Region) -> None:
        """Copy rows from the host; the stream is waited for because pageable memory is staged."""
        rows = array if array.strides[1] == array.itemsize else np.ascontiguousarray(array)
        self._copy_rows(target.address, target.pitch, rows.ctypes.data, rows.strides[0], target, self._own)
        self._runtime.streamSynchronize(self._own.ptr)

    def download(self, source: Region, array: NDArray[Any]) -> None:
        """Copy rows to the host."""
        rows = array if array.strides[1] == array.itemsize else np.empty(array.shape, array.dtype)
        self._copy_rows(rows.ctypes.data, rows.strides[0], source.address, source.pitch, source, self._own)
        self._runtime.streamSynchronize(self._own.ptr)
        if rows is not array:
            array[...] = rows

    def view(self, region: Region) -> Any:
        """Return a CuPy array; bfloat16 appears as its bits, uint16, because CuPy has no such type."""
        dtype = np.dtype(np.uint16) if region.dtype == BFLOAT16 else region.dtype
        extent = max(region.rows - 1, 0) * region.pitch + region.width
        memory = self._cupy.cuda.UnownedMemory(region.address, extent, self, self.number)
        pointer = self._cupy.cuda.MemoryPointer(memory, 0)
        return self._cupy.ndarray((region.rows, region.cols), dtype, pointer, (region.pitch, dtype.itemsize))

    def region(self, array: Any) -> Region | None:
        """Return where a CuPy array lies."""
        if not isinstance(array, self._cupy.ndarray):
            return None
        rows, cols = array.shape
        if array.size and cols > 1 and array.strides[1] != array.itemsize:
            raise InputError("the elements of a row must be adjacent; cupy.ascontiguousarray makes them so")
        return Region(array.data.ptr, rows, cols, max(array.strides[0] // array.itemsize, cols), array.dtype)

    # Streams --------------------------------------------------------------------------------------

    def stream(self) -> Stream:
        """Return a non-blocking stream."""
        self._select()
        return self._cupy.cuda.Stream(non_blocking=True)

    def event(self, timed: bool) -> Event:
        """Return an event of this device."""
        self._select()
        return self._cupy.cuda.Event(disable_timing=not timed)

    def record(self, event: Event, stream: Stream) -> None:
        """Call cudaEventRecord."""
        self._runtime.eventRecord(event.ptr, stream.ptr)

    def wait(self, stream: Stream, event: Event) -> None:
        """Call cudaStreamWaitEvent, which devices may share."""
        self._runtime.streamWaitEvent(stream.ptr, event.ptr)

    def finish(self, stream: Stream) -> None:
        """Call cudaStreamSynchronize."""
        self._runtime.streamSynchronize(stream.ptr)

    def synchronize(self) -> None:
        """Call cudaDeviceSynchronize."""
        self._select()
        self._runtime.deviceSynchronize()

    def seconds(self, start: Event, end: Event) -> float:
        """Return CUDA's milliseconds as seconds."""
        elapsed: float = self._runtime.eventElapsedTime(start.ptr, end.ptr)
        return elapsed * 1e-3

    def now(self) -> float:
        """Return ``perf_counter``."""
        return perf_counter()

    def name_range(self, name: str | None) -> None:
        """Push or pop an NVTX range of this thread."""
        if name is None:
            self._nvtx.RangePop()
        else:
            self._nvtx.RangePush(name)

    # Work -----------------------------------------------------------------------------------------

    def copy(self, source: Region, target: Region, stream: Stream) -> None:
        """Copy rows by the copy engine, also between devices; one long row where both are contiguous."""
        self._copy_rows(target.address, target.pitch, source.address, source.pitch, source, stream)

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
        """Call cublasGemmEx on the transposed product: row-major C = AB is column-major Cᵀ = BᵀAᵀ.

        A row-major matrix is its own transpose in column-major order, so cuBLAS transposes what op does.
        """
        m, n, k = c.rows, c.cols, a.rows if trans & 2 else a.cols
        from cupy_backends.cuda.libs import cublas

        double = c.dtype == np.float64
        compute = cublas.CUBLAS_COMPUTE_64F if double else cublas.CUBLAS_COMPUTE_32F
        if tf32 and a.dtype == np.float32:
            compute = cublas.CUBLAS_COMPUTE_32F_FAST_TF32
        scalars = np.array([alpha, beta], np.float64 if double else np.float32)
        b_type, a_type, c_type = (self._data_types[dtype_name(x.dtype)] for x in (b, a, c))
        self._select()
        with stream:  # CuPy sets the handle's stream to the current one before every call
            cublas.gemmEx(
                self._handle(stream),
                cublas.CUBLAS_OP_T if trans & 4 else cublas.CUBLAS_OP_N,
                cublas.CUBLAS_OP_T if trans & 2 else cublas.CUBLAS_OP_N,
                n,
                m,
                k,
                scalars.ctypes.data,
                b.address,
                b_type,
                b.stride,
                a.address,
                a_type,
                a.stride,
                scalars.ctypes.data + scalars.itemsize,
                c.address,
                c_type,
                c.stride,
                compute,
                cublas.CUBLAS_GEMM_DEFAULT,
            )

    def map(self, mapped: Mapped, reads: Sequence[Region], target: Region, stream: Stream) -> None:
        """Launch a kernel of one pass where one does it, else give CuPy's arrays to the function."""
        # What the function makes on the way is CuPy's own, by stream.
        self._select()
        launch = self._one_pass(mapped, reads, target)
        if launch is not None:
            with stream:
                launch()
            return
        with stream:
            into = self.view(target)
            arrays = [self.view(region) for region in reads]
            wide = [
                float32_of(array) if region.dtype == BFLOAT16 else array
                for array, region in zip(arrays, reads, strict=True)
            ]
            result = mapped(*wide, like=into)
            into[...] = bfloat16_bits(result) if target.dtype == BFLOAT16 else result

    def accumulate(self, source: Region, target: Region, blocks: int, stream: Stream) -> None:
        """Launch the kernel for the two types."""
        self._select()
        pair = source.dtype, target.dtype
        if pair not in self._kernels:
            self._kernels[pair] = self._module.get_function(kernel_name(*map(dtype_name, pair)))
        places = (source.address, source.stride, target.address, target.stride, source.rows, source.cols)
        with stream:
            self._kernels[pair]((blocks,), (THREADS,), tuple(map(np.int64, places)))

    def hold(self, seconds: float, stream: Stream) -> None:
        """Launch the kernel that waits, one thread of it."""
        self._select()
        with stream:
            self._module.get_function("hold")((1,), (1,), (np.int64(seconds * 1e9),))

    # Details --------------------------------------------------------------------------------------

    def _select(self) -> None:
        """Make this the current device of the thread; cheap if it is."""
        self._runtime.setDevice(self.number)

    def _copy_rows(
        self, to: int, to_pitch: int, start: int, pitch: int, shape: Region, stream: Stream
    ) -> None:
        if to_pitch == pitch == shape.width:
            nbytes = shape.rows * shape.width
            self._runtime.memcpyAsync(to, start, nbytes, self._runtime.memcpyDefault, stream.ptr)
        else:
            width, height = shape.width, shape.rows
            pitches = max(to_pitch, width), max(pitch, width)
            self._runtime.memcpy2DAsync(
                to, pitches[0], start, pitches[1], width, height, self._runtime.memcpyDefault, stream.ptr
            )

    def _one_pass(
        self, mapped: Mapped, reads: Sequence[Region], target: Region
    ) -> Callable[[], object] | None:
        """Return a function that launches the kernel of a map, None if none performs it."""
        function, regions = mapped.function, (*reads, target)
        types = tuple(dtype_name(x.dtype) for x in regions)
        rows, cols = (max(sizes) for sizes in zip(*((x.rows, x.cols) for x in regions), strict=True))
        width = width_of(regions, cols)
        key = map_name(function.name, types, width)
        if key not in self._maps:
            source = map_source(function, types, width)
            made = source and self._cupy.RawModule(code=source, options=OPTIONS)
            self._maps[key] = made.get_function(key) if made else None
        if self._maps[key] is None:
            return None
        output = (target.address, target.stride, rows, cols, mapped.shape[1])
        places = (x for read in reads for x in (read.address, read.stride))
        numbers = (*output, *places, *numbers_of(mapped, types))
        arguments = tuple(np.int64(x) if isinstance(x, (int, np.integer)) else x for x in numbers)
        return partial(self._maps[key], map_grid(function, rows, cols, width), (MAP_THREADS,), arguments)

    def _handle(self, stream: Stream) -> int:
        """Return the cuBLAS handle of a stream; each has a workspace of its own."""
        if stream.ptr not in self._handles:
            from cupy_backends.cuda.libs import cublas

            self._handles[stream.ptr] = cublas.create()
        return self._handles[stream.ptr]

    @cached_property
    def _module(self) -> Any:
        return self._cupy.RawModule(code=SOURCE, options=OPTIONS)

    @cached_property
    def _data_types(self) -> dict[str, int]:
        return {
            "float64": self._runtime.CUDA_R_64F,
            "float32": self._runtime.CUDA_R_32F,
            "float16": self._runtime.CUDA_R_16F,
            "bfloat16": self._runtime.CUDA_R_16BF,
        }
