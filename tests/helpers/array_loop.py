"""Multiplies of own arrays without end, to be killed amid one; run by mpiexec."""

import numpy as np
from mpi4py import MPI

import umm

comm = MPI.COMM_WORLD
A = umm.DistributedMatrix.wrap(comm, "row", (96, 96), np.ones((96 // comm.size, 96)))
if comm.rank == 0:
    print("began", flush=True)
while True:
    umm.multiply(A, A, "col")
    umm.redistribute(A, "col")
