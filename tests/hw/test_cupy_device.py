"""The calls of the CuPy device exist in CuPy, where it is installed; no GPU is needed to look."""

import inspect
import re
from pathlib import Path

import pytest
from conformance.fake_cupy import COMPUTE_32F, COMPUTE_64F, FAST_TF32, FUNCTIONS, UFUNCS, Cublas, N, T

from umm_hw.gpu import cupy_device

cupy = pytest.importorskip("cupy", reason="pip install 'umm-sim[cuda]' brings CuPy")


def called(prefix):
    """The names of a module that the device uses."""
    source = Path(cupy_device.__file__).read_text(encoding="utf-8")
    return set(re.findall(rf"\b{re.escape(prefix)}\.(\w+)", source))


def test_the_cuda_runtime_has_every_call():
    names = called("self._runtime")
    assert {"memcpy2DAsync", "eventElapsedTime", "streamWaitEvent"} <= names
    assert [name for name in sorted(names) if not hasattr(cupy.cuda.runtime, name)] == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("memcpy2DAsync", "dst dpitch src spitch width height kind stream"),
        ("memcpyAsync", "dst src size kind stream"),
        ("memsetAsync", "ptr value size stream"),
        ("eventRecord", "event stream"),
        ("streamWaitEvent", "stream event flags"),
        ("eventElapsedTime", "start end"),
    ],
)
def test_its_calls_take_their_arguments_in_this_order(name, arguments):
    """CuPy writes a signature into each docstring."""
    signature = getattr(cupy.cuda.runtime, name).__doc__.splitlines()[0]
    inside = re.search(r"\((.*)\)", signature)[1]
    assert [argument.split("=")[0].split()[-1] for argument in inside.split(", ")] == arguments.split()


def test_nvtx_and_raw_memory_are_there():
    assert {"RangePush", "RangePop"} <= set(dir(cupy.cuda.nvtx))
    assert {"UnownedMemory", "MemoryPointer", "Stream", "Event"} <= set(dir(cupy.cuda))


def test_cupy_has_what_the_functions_of_maps_use():
    """The fake one refuses them all others."""
    assert [name for name in sorted(UFUNCS | FUNCTIONS) if not hasattr(cupy, name)] == []


def test_cublas_has_gemm_with_leading_dimensions():
    try:
        from cupy_backends.cuda.libs import cublas
    except ImportError as error:
        pytest.skip(f"cuBLAS is not installed: {str(error).splitlines()[0]}")
    assert [name for name in sorted(called("cublas")) if not hasattr(cublas, name)] == []
    signature = re.search(r"\((.*)\)", cublas.gemmEx.__doc__.splitlines()[0])[1]
    taken = list(inspect.signature(Cublas.gemmEx).parameters)[1:]
    assert [argument.split()[-1] for argument in signature.split(", ")] == taken
    assert (cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_COMPUTE_64F) == (COMPUTE_32F, COMPUTE_64F)
    assert cublas.CUBLAS_COMPUTE_32F_FAST_TF32 == FAST_TF32
    assert (cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_T) == (N, T)
