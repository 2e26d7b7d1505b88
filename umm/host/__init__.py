"""This host: BLAS kernel, pace, caches, free memory, processes, and their ranks under mpiexec."""
