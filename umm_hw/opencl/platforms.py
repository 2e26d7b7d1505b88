"""The devices of this host that OpenCL sees."""

from collections.abc import Sequence
from ctypes.util import find_library
from functools import lru_cache

import pyopencl as cl

from umm.errors import ExecutorUnavailableError
from umm_hw.opencl.context import Memory, kind_of
from umm_hw.opencl.device import OpenClDevice


@lru_cache
def visible(wanted: str = "") -> tuple[OpenClDevice, ...]:
    """Return the devices of one context: all of the first platform that has some.

    ExecutorUnavailableError if there is none.

    Args:
        wanted: ``gpu``, ``cpu``, or a part of a platform's or a device's name; if empty, GPUs come first.
    """
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        platforms = []
    every = [(platform, device) for platform in platforms for device in platform.get_devices()]
    names = [f"{kind_of(device)} {device.name.strip()} of {platform.name}" for platform, device in every]
    having = [pair for pair, name in zip(every, names, strict=True) if wanted.lower() in name.lower()]
    if not having:
        known = f"; there are {', '.join(names)}" if names else ""
        asked = f" whose name has {wanted!r}" if wanted else ""
        raise ExecutorUnavailableError(
            f"OpenCL has no device{asked}{known}; pip install pocl-binary-distribution installs the CPU's"
        )
    gpus = [pair for pair in having if pair[1].type & cl.device_type.GPU]
    first = (gpus or having)[0][0]
    devices = [device for platform, device in gpus or having if platform == first]
    return joined(devices)


def level_zero() -> str:
    """Return in words whether this host could share a GPU's memory between processes."""
    # Level Zero can (zeMemGetIpcHandle); OpenCL has no call for it, and dpctl, its Python package, offers no
    # handles yet. So ranks on a GPU are queues of one process, one for each tile of an Intel GPU.
    loader = find_library("ze_loader")
    if loader is None:
        return "no Level Zero"
    return f"Level Zero ({loader}) is there, but memory of GPUs is not shared between processes"


def joined(devices: Sequence[cl.Device]) -> tuple[OpenClDevice, ...]:
    """Return devices of one platform, which reach each other's memory."""
    memory = Memory(cl.Context(devices))
    return tuple(OpenClDevice(device, number, memory) for number, device in enumerate(devices))
