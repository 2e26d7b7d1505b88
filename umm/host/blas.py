"""Which BLAS kernel NumPy multiplies with, and whether the CPU could do better."""

from pathlib import Path
from typing import Any

# OpenBLAS's kernels with AVX-512. Its names of AMD CPUs from Zen 4 on map to these.
_WITH_AVX512 = ("skylakex", "cooperlake", "sapphirerapids")
_CPU_INFO = Path("/proc/cpuinfo")


def blas_libraries() -> list[dict[str, Any]]:
    """Return the BLAS libraries NumPy has loaded, if threadpoolctl is here to tell."""
    try:
        from threadpoolctl import threadpool_info
    except ModuleNotFoundError:
        return []
    import numpy  # noqa: F401  loads the BLAS that is asked about

    return [
        {
            "library": info["internal_api"],
            "version": info.get("version") or "",
            "kernel": info.get("architecture", "unknown kernel"),
            "threads": info["num_threads"],
        }
        for info in threadpool_info()
        if info["user_api"] == "blas"
    ]


def cpu_model() -> str:
    """Return what the CPU calls itself, or nothing where the system does not tell."""
    return _cpu_entry("model name")


def kernel_warning(library: str, kernel: str, flags: str | None = None) -> str | None:
    """Return a warning if the CPU has AVX-512 and OpenBLAS's kernel does not use it, down to half the rate.

    Args:
        library: Name of the library.
        kernel: Its kernel.
        flags: What the CPU can do, as Linux names it; this CPU's if None.

    >>> kernel_warning("openblas", "Haswell", flags="avx2 avx512f")[:47]
    "this CPU has AVX-512, but OpenBLAS's kernel Has"
    >>> kernel_warning("openblas", "SkylakeX", flags="avx2 avx512f")
    """
    able = "avx512f" in (_cpu_entry("flags") if flags is None else flags).split()
    if library != "openblas" or not able or kernel.lower() in _WITH_AVX512:
        return None
    return (
        f"this CPU has AVX-512, but OpenBLAS's kernel {kernel} does not use it: down to half the rate; "
        "unset OPENBLAS_CORETYPE, or set it to SkylakeX"
    )


def _cpu_entry(name: str) -> str:
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
