"""Multiplies of own arrays without end, to be killed amid one; run by mpiexec."""

import numpy as np
from mpi4py import MPI

import umm


def main() -> None:
    comm = MPI.COMM_WORLD
    a = umm.DistributedMatrix.wrap(comm, "row", (96, 96), np.ones((96 // comm.size, 96)))
    if comm.rank == 0:
        print("began", flush=True)
    while True:
        umm.multiply(a, a, "col")
        umm.redistribute(a, "col")


if __name__ == "__main__":  # pytest imports every file for its doctests
    main()
