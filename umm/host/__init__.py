"""What this host has: its BLAS kernel, pace, caches, free memory, processes, and what an mpiexec makes of it."""
