"""What the CUDA and the NVSHMEM executor share: the seam to a GPU, streams, and kernels that accumulate."""
