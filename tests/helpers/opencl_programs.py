"""The work of processes of an OpenCL job in the tests."""

import numpy as np

from umm_hw.opencl.shared import connect
from umm_hw.symmetric.transport import SymmetricTransport
from umm_hw.transport import Block


def racing_additions(transport, elements, times):
    """Every rank adds 1 to the same elements of rank 0, again and again; return the sum at rank 0."""
    joined = connect(transport)
    memory = SymmetricTransport(joined, blocks=2)
    kind = np.dtype(np.float32)
    ones, sums = (memory.allocate([4 * elements] * memory.size) for _ in range(2))
    source, target = (
        Block(rank, heap, 0, 1, elements, elements, kind) for rank, heap in ((memory.rank, ones), (0, sums))
    )
    memory.put(np.ones((1, elements), kind), source)
    memory.barrier()
    stream = joined.device.stream()
    for _ in range(times):
        joined.device.accumulate(memory.region(source), memory.region(target), 2, stream)
    joined.device.finish(stream)
    memory.barrier()
    result = np.empty((1, elements), kind)
    memory.get(target, result)
    memory.barrier()
    memory.close()
    joined.end()
    return result[0].tolist()
