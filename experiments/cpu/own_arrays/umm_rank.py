"""One rank of umm.multiply, and of the same BLAS alone: ``mpiexec -n 4 python umm_rank.py CASES REPEAT``."""

import json
import sys
import time

import numpy as np
from mpi4py import MPI

import umm
from umm_hw.arrays.local import local_shape
from umm_hw.gemm import multiply


def timed(comm, action):
    """Seconds from when all ranks begin until the last has ended; clocks of one host are one."""
    comm.Barrier()
    begin = time.perf_counter()
    action()
    end = time.perf_counter()
    return comm.allreduce(end, MPI.MAX) - comm.allreduce(begin, MPI.MIN)


def main():
    comm = MPI.COMM_WORLD
    result = {}
    for case in json.loads(sys.argv[1]):
        m, n, k = case["m"], case["n"], case["k"]
        matrices = []
        for shape, text in zip(((m, k), (k, n), (m, n)), case["layouts"], strict=True):
            layout = umm.Layout.parse(text, shape, comm.size)
            rows, cols = local_shape(layout, comm.rank)
            full = np.random.default_rng(comm.rank).standard_normal((cols, rows)).T
            matrices.append(umm.DistributedMatrix.wrap(comm, layout, shape, full))
        a, b, c = matrices
        plan = umm.plan(a, b, c)
        # The same multiplies on one core for each rank, with all operands at hand: what BLAS alone takes.
        rows, cols = c.local.shape
        left, right, out = np.ones((k, rows)).T, np.ones((cols, k)).T, np.empty((cols, rows)).T
        planned, blas = [], []
        for _ in range(int(sys.argv[2])):
            planned.append(timed(comm, lambda: plan.multiply(a, b, c)))  # noqa: B023
            blas.append(timed(comm, lambda: multiply(right.T, left.T, out.T)))  # noqa: B023
        result[case["name"]] = {"umm": min(planned), "BLAS": min(blas), "way": plan.way, "steps": plan.steps}
    if comm.rank == 0:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
