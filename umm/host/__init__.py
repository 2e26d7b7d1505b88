"""What this host has: its BLAS kernel, pace and free memory, and whether an mpiexec started this process."""
