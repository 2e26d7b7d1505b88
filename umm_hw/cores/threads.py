"""The system's scheduling of threads: those that move data must not wait for those that compute."""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # Linux's numbers of the system call
_ATTRIBUTES = "IIQiIQQQ"  # size, policy, flags, nice, priority, runtime, deadline, period
_SET_TIMER_SLACK = 29  # Linux's number of the option; in nanoseconds
_SLICE = 1_500_000  # nanoseconds: less than a gemm's turn, enough for the transfer of a tile


def answer_quickly() -> None:
    """Give this thread shorter turns, so that it gets one as soon as it wakes; no effect before Linux 6.12.

    A gemm uses up its whole turn of about 3 ms. A lane that wakes meanwhile on the same core would wait for
    that long to copy for some microseconds. Its share of the core stays the same.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return
    size = struct.calcsize(_ATTRIBUTES)
    ordinary = 0
    attributes = struct.pack(_ATTRIBUTES, size, ordinary, 0, 0, 0, _SLICE, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, attributes, 0)


def wake_on_time() -> None:
    """Let this thread's sleeps end when they should; Linux adds 50 µs to each by default."""
    # All ranks start a run at an agreed time, and look at flags 20 µs apart.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)


@contextmanager
def own_core(place: int, ranks: int) -> Iterator[None]:
    """Keep this thread, and those it starts meanwhile, on a core of its own, where every rank has one.

    Unless they are kept apart, two ranks that wake at once compute on one core for milliseconds while another
    rests. No effect where a host has more or fewer cores than ranks, or the system cannot bind threads.

    Args:
        place: This rank's number among those of its host.
        ranks: How many the host has.
    """
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if len(cores) != ranks:
        yield
        return
    os.sched_setaffinity(0, {sorted(cores)[place]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
