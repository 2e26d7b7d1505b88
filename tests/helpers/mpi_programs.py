"""Programs that go wrong on one rank, take locks, save and load; they are sent to the ranks by name."""

import os
import signal
import socket
import time
from contextlib import suppress
from importlib import import_module
from threading import Thread
from unittest.mock import patch

import numpy as np

import umm_hw
from umm import Layout
from umm_hw.matrix import DistributedMatrix
from umm_hw.mpi import memory, program


def freeze(transport, rank, silence):
    """One rank stops, the others wait for it at a barrier."""
    from umm_hw.mpi.job import watchdog  # not above: it starts MPI in whoever names a program to the ranks

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
    with patch.object(memory, "free_memory", lambda: free):
        program.perform(transport, arrays, operands)


def clock_offset(transport):
    """The offset that each rank would measure on a host of its own; here the truth is 0."""
    from umm_hw.mpi.clock import offset_to_first

    return offset_to_first(transport.comm, range(transport.size), transport.rank)


def ranks(transport):
    return transport.rank


def set_constants(transport, values):
    """Set names of modules, given as ``module:name``; those of before come back, to be set again."""
    before = {}
    for place, value in values.items():
        module, name = place.split(":")
        owner = import_module(module)
        before[place] = getattr(owner, name)
        setattr(owner, name, value)
    return before


def additions(transport, path, times):
    """Add 1 to a number in a file so many times under rank 0's lock, by two threads."""

    def add():
        for _ in range(times):
            transport.take_lock(0)
            number = int(path.read_text())
            time.sleep(1e-5)  # others run meanwhile
            path.write_text(str(number + 1))
            transport.release_lock(0)

    threads = [Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def crossed(transport, times):
    """Each of two threads takes the locks of both ranks in turns that cross those of the peer."""

    def take(first):
        for number in range(times):
            rank = (first + number) % 2
            transport.take_lock(rank)
            time.sleep(1e-5)
            transport.release_lock(rank)

    threads = [Thread(target=take, args=(first,)) for first in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return True


def save_matrices(transport, folder, texts, array, replica=0, operands=None):
    """A matrix in some layouts, by name; each replica but the one saved has other elements."""
    matrices = {x: DistributedMatrix(transport, layout(transport, text, array), array.dtype.name)
                for x, text in texts.items()}  # fmt: skip
    for matrix in matrices.values():
        matrix.scatter(array if matrix.replica == replica else np.zeros_like(array))
    umm_hw.save(folder, matrices, replica)


def load_matrix(transport, folder, name, text, like, operands=None):
    """Every replica of a matrix of a checkpoint, laid out anew."""
    matrix = DistributedMatrix(transport, layout(transport, text, like), like.dtype.name)
    umm_hw.load(folder, {name: matrix})
    result = [matrix.gather(replica) for replica in range(matrix.layout.replicas)]
    transport.barrier()
    return result


def layout(transport, text, array):
    return Layout.parse(text, array.shape, transport.size)


def save_number(transport, folder, number, operands=None):
    """Two matrices of 24 KiB all of whose elements are a number; they must not come apart."""
    array = np.full((64, 48), number, dtype=np.float64)
    save_matrices(transport, folder, {"W1": "col", "W2": "row@2"}, array)


def open_ports(transport):
    """The addresses at which this process listens, but for those of loopback."""
    result = set()
    for file in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError), socket.socket(fileno=os.dup(file)) as port:
            if port.family != socket.AF_UNIX and port.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                device = port.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0")
                if device != b"lo" and not port.getsockname()[0].startswith("127."):
                    result.add(port.getsockname())
    return result
