"""What this host has: its BLAS kernel, pace, free memory, processes, and what an mpiexec makes of it."""
