"""Programs that go wrong on one rank; they are sent to the ranks by name."""

import os
import signal
import time

from umm_hw.mpi import memory, program
from umm_hw.mpi.job import watchdog


def freeze(transport, rank, silence):
    """One rank stops, the others wait for it at a barrier."""
    watchdog.SILENCE = silence
    if transport.rank == rank:
        os.kill(os.getpid(), signal.SIGSTOP)
    transport.barrier()


def die(transport, rank):
    """One rank is killed while the others wait for it."""
    if transport.rank == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    transport.barrier()


def fail(transport, rank):
    """One rank raises while the others wait for it."""
    if transport.rank == rank:
        raise ZeroDivisionError("on purpose")
    transport.barrier()


def stick(transport, arrays, limit, operands=None):
    """The first gemm of rank 1 never ends."""
    program.LEAST_LIMIT = limit
    if transport.rank == 1:
        program.multiply = lambda *_: time.sleep(60)
    program.perform(transport, arrays, operands)


def starve(transport, arrays, free, operands=None):
    """The host has less memory free than the schedule needs."""
    memory.free_memory = lambda: free
    program.perform(transport, arrays, operands)


def clock_offset(transport):
    """What a rank on another host would measure; here the truth is 0."""
    from umm_hw.mpi.clock import offset_to_first

    return offset_to_first(transport.comm, same_clock=False)


def ranks(transport):
    return transport.rank
