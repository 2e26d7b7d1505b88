"""What this host has: its BLAS kernel, its free memory, and whether an mpiexec started this process."""
