"""Real execution of schedules: NumPy, MPI, CUDA, NVSHMEM and OpenCL."""

from importlib import import_module
from typing import Any

# Where each public name lives; a module is imported when one of its names is first used.
_HOMES = {
    "DistributedMatrix": "umm_hw.matrix",
    "wrap": "umm_hw.arrays.matrix",
    "save": "umm_hw.checkpoints",
    "load": "umm_hw.checkpoints",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'umm_hw' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
