"""CuPy over host memory: the calls that the CuPy device makes, done at once, with CuPy's own argument order.

Addresses are real ones, of NumPy buffers. It shows that the device hands each call the right pointers,
pitches, leading dimensions and sizes; that calls mean on a GPU what they mean here is for one to show.
"""

import ctypes
import re
from itertools import count
from threading import Lock
from time import perf_counter
from types import ModuleType, SimpleNamespace

import numpy as np

from umm.program.functions import function
from umm_hw.bfloat16 import BFLOAT16, to_bfloat16, to_float32

TYPES = {2: np.dtype(np.float16), 14: BFLOAT16, 0: np.dtype(np.float32), 1: np.dtype(np.float64)}
NAMES = {"float16": TYPES[2], "bfloat16": BFLOAT16}
ATOMIC = Lock()
N, T, COMPUTE_32F, COMPUTE_64F, FAST_TF32, DEFAULT = 0, 1, 68, 70, 77, -1


def memory(address, nbytes):
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), np.uint8) if nbytes else None


def matrix(address, shape, strides, dtype):
    """A view of memory in any order, its strides in elements."""
    (rows, cols), item = shape, dtype.itemsize
    extent = (rows - 1) * strides[0] + (cols - 1) * strides[1] + 1
    buffer = (ctypes.c_char * (extent * item)).from_address(address)
    return np.ndarray(shape, dtype, buffer, 0, tuple(item * stride for stride in strides))


def numbers(array):
    return to_float32(array) if array.dtype == BFLOAT16 else array


def store(array, values):
    array[...] = to_bfloat16(values) if array.dtype == BFLOAT16 else values


class Runtime:
    """cupy.cuda.runtime."""

    memcpyDefault = 4  # noqa: N815  CUDA's names
    cudaDevAttrAsyncEngineCount = 40  # noqa: N815
    cudaDevAttrCanFlushRemoteWrites = 98  # noqa: N815
    CUDA_R_16F, CUDA_R_16BF, CUDA_R_32F, CUDA_R_64F = 2, 14, 0, 1

    class CUDARuntimeError(RuntimeError):
        status = 704

    def __init__(self, devices):
        self.devices, self.current, self.kept, self.times = devices, 0, {}, {}
        self.peers = set()

    def getDeviceCount(self):  # noqa: N802
        return self.devices

    def getDeviceProperties(self, device):  # noqa: N802
        return {"name": b"fake", "totalGlobalMem": 1 << 30, "multiProcessorCount": 4}

    def deviceGetAttribute(self, attrib, device):  # noqa: N802
        return {self.cudaDevAttrAsyncEngineCount: 3, self.cudaDevAttrCanFlushRemoteWrites: 1}[attrib]

    def deviceCanAccessPeer(self, device, peerDevice):  # noqa: N802, N803
        return int(device != peerDevice)

    def deviceEnablePeerAccess(self, peerDevice):  # noqa: N802, N803
        if (self.current, peerDevice) in self.peers:
            raise self.CUDARuntimeError
        self.peers.add((self.current, peerDevice))

    def getDevice(self):  # noqa: N802
        return self.current

    def setDevice(self, device):  # noqa: N802
        assert 0 <= device < self.devices
        self.current = device

    def malloc(self, size):
        buffer = np.full(size, 0xFF, np.uint8)
        self.kept[buffer.ctypes.data] = buffer
        return buffer.ctypes.data

    def free(self, ptr):
        del self.kept[ptr]

    def memsetAsync(self, ptr, value, size, stream):  # noqa: N802
        if size:
            memory(ptr, size)[:] = value

    def memcpyAsync(self, dst, src, size, kind, stream):  # noqa: N802
        assert kind == self.memcpyDefault
        memory(dst, size)[:] = memory(src, size)

    def memcpy2DAsync(self, dst, dpitch, src, spitch, width, height, kind, stream):  # noqa: N802
        assert kind == self.memcpyDefault
        assert min(dpitch, spitch) >= width
        for row in range(height):
            memory(dst + row * dpitch, width)[:] = memory(src + row * spitch, width)

    def eventRecord(self, event, stream):  # noqa: N802
        self.times[event] = 1e3 * perf_counter()

    def streamWaitEvent(self, stream, event, flags=0):  # noqa: N802
        assert event in self.times

    def eventElapsedTime(self, start, end):  # noqa: N802
        return float(self.times[end] - self.times[start])

    def streamSynchronize(self, stream):  # noqa: N802
        pass

    def deviceSynchronize(self):  # noqa: N802
        pass


class Handle:
    """A stream or an event: a number that is its pointer."""

    numbers = count(1)

    def __init__(self, **options):
        self.ptr = next(self.numbers)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class Cublas:
    """cupy_backends.cuda.libs.cublas: column-major, as BLAS has it."""

    CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_GEMM_DEFAULT = N, T, DEFAULT
    CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32F_FAST_TF32 = COMPUTE_32F, COMPUTE_64F, FAST_TF32

    def __init__(self):
        self.computed = set()
        self.handles = count(1)

    def create(self):
        return next(self.handles)

    def gemmEx(  # noqa: N802
        self, handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype, ldc,  # noqa: N803
        computeType, algo,  # noqa: N803
    ):  # fmt: skip
        assert {transa, transb} <= {N, T}
        assert algo == DEFAULT
        assert lda >= (m if transa == N else k)
        assert ldb >= (k if transb == N else n)
        assert ldc >= m
        self.computed.add(computeType)
        scalar = np.dtype(np.float64 if computeType == COMPUTE_64F else np.float32)
        alpha, beta = (matrix(x, (1, 1), (1, 1), scalar)[0, 0] for x in (alpha, beta))
        a = matrix(A, (m, k), (1, lda) if transa == N else (lda, 1), TYPES[Atype])
        b = matrix(B, (k, n), (1, ldb) if transb == N else (ldb, 1), TYPES[Btype])
        c = matrix(C, (m, n), (1, ldc), TYPES[Ctype])
        product = alpha * (numbers(a).astype(scalar) @ numbers(b).astype(scalar))
        store(c, product + beta * numbers(c) if beta else product)


class RawModule:
    """cupy.RawModule: kernels known by their names."""

    def __init__(self, code, options):
        self.code = code

    def get_function(self, name):
        assert f"{name}(" in self.code
        if name == "hold":
            return lambda grid, block, arguments: None
        if "_of_" in name:
            return self.of_map(*re.fullmatch(r"(\w+)_of_(\w*?)_?to_(\w+)_by_(\d+)", name).groups())
        source, target = re.fullmatch(r"add_(\w+)_to_(\w+)", name).groups()
        types = [NAMES.get(x) or np.dtype(x) for x in (source, target)]

        def launch(grid, block, arguments):
            assert all(isinstance(x, np.int64) for x in arguments)
            start, stride, to, to_stride, rows, cols = map(int, arguments)
            array = matrix(start, (rows, cols), (stride, 1), types[0])
            into = matrix(to, (rows, cols), (to_stride, 1), types[1])
            with ATOMIC:
                store(into, numbers(into) + numbers(array))

        return launch

    def of_map(self, name, reads, written, width):
        form, operands = function(name), function(name).operands
        types = [NAMES.get(x) or np.dtype(x) for x in (written, *filter(None, reads.split("_")))]

        def launch(grid, block, arguments):
            numbers_of = [int(x) for x in arguments[: 3 + 2 * len(types)]]
            (to, to_row, rows, cols, full), places = numbers_of[:5], numbers_of[5:]
            parameters = dict(zip(form.parameters, arguments[3 + 2 * len(types) :], strict=True))
            assert all(isinstance(x, np.int64) == form.parameters[y].whole for y, x in parameters.items())
            assert cols % int(width) == 0
            pairs = zip([to, *places[::2]], [to_row, *places[1::2]], operands, types, strict=True)
            made = []
            for address, row, letters, dtype in pairs:
                shape = rows if letters[0] == "r" else 1, cols if letters[1] == "c" else 1
                made.append(matrix(address, shape, (row, 1), dtype))
                assert (
                    shape[1] == 1
                    or (address | row * dtype.itemsize) % (int(width) * dtype.itemsize) % 16 == 0
                )
            at = {"rows": (0, rows), "cols": (0, cols), "shape": (rows, full), "like": made[0]}
            store(
                made[0], form(*map(numbers, made[1:]), **at, **{x: y.item() for x, y in parameters.items()})
            )

        return launch


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id=-1):
        self.ptr = ptr


class MemoryPointer:
    def __init__(self, mem, offset):
        self.ptr = mem.ptr + offset


class Array(np.ndarray):
    """cupy.ndarray: an array by its pointer.

    It takes part in NumPy's functions as CuPy's do: in those alone that CuPy has, never beside an array of
    NumPy's, and it never becomes one unasked.
    """

    def __new__(cls, shape, dtype, memptr, strides):
        item = np.dtype(dtype).itemsize
        if 0 in shape:
            return np.ndarray.__new__(cls, shape, dtype)
        base = matrix(memptr.ptr, shape, tuple(x // item for x in strides), np.dtype(dtype))
        return base.view(cls)

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        assert ufunc.__name__ in UFUNCS, f"{ufunc.__name__} is not among the functions of CuPy that are used"
        assert method in ("__call__", "reduce")
        if "out" in options:
            options["out"] = tuple(map(as_plain, options["out"]))
        return as_fake(getattr(ufunc, method)(*map(as_plain, inputs), **options))

    def __array_function__(self, func, types, arguments, options):
        assert func.__name__ in FUNCTIONS, f"{func.__name__} is not among the functions of CuPy that are used"
        if func is np.asarray:  # from the host to the device
            return as_fake(np.array(*arguments, **{x: y for x, y in options.items() if x != "like"}))
        plain = {name: as_plain(value) for name, value in options.items()}
        return as_fake(func(*map(as_plain, arguments), **plain))

    def __setitem__(self, key, value):
        np.ndarray.__setitem__(self.view(np.ndarray), key, as_plain(value))


# What the forms of functions and bfloat16 use; tests/hw/test_cupy_device.py looks for them in CuPy.
UFUNCS = {
    "absolute", "add", "bitwise_and", "bitwise_or", "bitwise_xor", "cos", "divide", "exp", "greater",
    "greater_equal", "isnan", "left_shift", "less", "less_equal", "log", "logaddexp", "matmul", "maximum",
    "minimum", "multiply", "negative", "power", "remainder", "right_shift", "sin", "sqrt", "square",
    "subtract",
}  # fmt: skip
FUNCTIONS = {"arange", "asarray", "empty_like", "full_like", "isneginf", "where", "zeros", "zeros_like"}


def as_plain(value):
    """An operand as NumPy's own: an array must be CuPy's, a number may be anybody's."""
    if isinstance(value, Array):
        return value.view(np.ndarray)
    assert not isinstance(value, np.ndarray), "CuPy does not mix its arrays with NumPy's"
    return value


def as_fake(result):
    return result.view(Array) if isinstance(result, np.ndarray) else result


def modules(devices):
    """The entries of sys.modules that stand for CuPy with so many GPUs."""
    cupy, cuda, libs = ModuleType("cupy"), ModuleType("cupy.cuda"), ModuleType("cupy_backends.cuda.libs")
    cuda.runtime, cuda.Stream, cuda.Event = Runtime(devices), Handle, Handle
    cuda.UnownedMemory, cuda.MemoryPointer = UnownedMemory, MemoryPointer
    cuda.nvtx = SimpleNamespace(RangePush=lambda name: None, RangePop=lambda: None)
    cupy.cuda, cupy.ndarray, cupy.RawModule = cuda, Array, RawModule
    libs.cublas = Cublas()
    return {
        "cupy": cupy,
        "cupy.cuda": cuda,
        "cupy_backends": ModuleType("cupy_backends"),
        "cupy_backends.cuda": ModuleType("cupy_backends.cuda"),
        "cupy_backends.cuda.libs": libs,
        "cupy_backends.cuda.libs.cublas": libs.cublas,
    }
