"""This host's hardware: its BLAS, cache sizes, free memory, and current pace."""

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

# OpenBLAS's kernels with AVX-512. Its names of AMD CPUs from Zen 4 on map to these.
_WITH_AVX512 = ("skylakex", "cooperlake", "sapphirerapids")
_CPU_INFO = Path("/proc/cpuinfo")


def blas_libraries() -> list[dict[str, Any]]:
    """Return the BLAS libraries NumPy has loaded, if threadpoolctl is installed."""
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


def kernel_warning(library: str, kernel: str, flags: str | None = None) -> str | None:
    """Return a warning if the CPU has AVX-512 and OpenBLAS's kernel does not use it, down to half the rate.

    Args:
        flags: What the CPU can do, as Linux names it; this CPU's if None.

    >>> kernel_warning("openblas", "Haswell", flags="avx2 avx512f")[:47]
    "this CPU has AVX-512, but OpenBLAS's kernel Has"
    >>> kernel_warning("openblas", "SkylakeX", flags="avx2 avx512f")
    """
    able = "avx512f" in (cpu_entry("flags") if flags is None else flags).split()
    if library != "openblas" or not able or kernel.lower() in _WITH_AVX512:
        return None
    return (
        f"this CPU has AVX-512, but OpenBLAS's kernel {kernel} does not use it: down to half the rate; "
        "unset OPENBLAS_CORETYPE, or set it to SkylakeX"
    )


def cpu_entry(name: str) -> str:
    """Return an entry of Linux on the CPU, such as ``model name``; empty where it has none."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def cache_of_core() -> int:
    """Return a core's share of the largest cache that it reads through, in bytes; 0 if unknown."""
    return max((_share(index) for index in _CACHES.glob("index*")), default=0)


def _share(index: Path) -> int:
    try:
        size = (index / "size").read_text(encoding="ascii").strip()
        cores = _count((index / "shared_cpu_list").read_text(encoding="ascii").strip())
        return int(size.removesuffix("K")) * 1024 // cores if size.endswith("K") else 0
    except (OSError, ValueError, ZeroDivisionError):
        return 0


def _count(listed: str) -> int:
    """Return how many a list such as ``0-1,4`` names.

    >>> _count("0-1,4")
    3
    """
    ends = [[int(x) for x in part.split("-")] for part in listed.split(",")]
    return sum(part[-1] - part[0] + 1 for part in ends)


UNKNOWN = 2**62  # bytes: no limit is known
_CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Return the bytes that programs here can still take."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except OSError:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        most = (_CGROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text("ascii").splitlines())
        # What the control group allows beyond what is in use; a cache of files gives way.
        room = UNKNOWN if most == "max" else max(0, int(most) - used + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):
        room = UNKNOWN
    return min(free, room)


SIDE = 384
COPIED = 2**23  # bytes, more than caches hold of one core
LOOKS = 3


@lru_cache
def multiply_rate(dtype: str) -> float:
    """Return flop/s of one process that multiplies with all threads that BLAS has; half types as float32.

    Args:
        dtype: Of the factors: float64, float32, float16 or bfloat16.
    """
    kept = {"float64": np.float64, "float16": np.float16}.get(dtype, np.float32)
    factor = np.ones((SIDE, SIDE), dtype=kept)
    work = np.result_type(kept, np.float32)
    return 2 * SIDE**3 / _quickest(lambda: np.matmul(factor, factor, dtype=work))


@lru_cache
def copy_rate() -> float:
    """Return bytes/s of one process that copies."""
    source = np.ones(COPIED, dtype=np.uint8)
    target = np.empty_like(source)
    return COPIED / _quickest(lambda: np.copyto(target, source))


def _quickest(work: Callable[[], object]) -> float:
    """Return the seconds of the quickest of a few calls."""
    seconds = []
    for _ in range(LOOKS):
        began = perf_counter()
        work()
        seconds.append(perf_counter() - began)
    return max(min(seconds), 1e-9)
