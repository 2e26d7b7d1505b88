"""The NVSHMEM executor: a process for each rank, tiles in the symmetric memory of their GPUs."""
