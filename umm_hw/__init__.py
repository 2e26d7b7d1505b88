"""Real execution of schedules: NumPy, MPI, CUDA and NVSHMEM."""
