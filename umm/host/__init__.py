"""What this host has: BLAS kernel, pace, caches, free memory, processes, and what an mpiexec makes of it."""
