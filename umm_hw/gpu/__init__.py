"""NVIDIA's GPUs by CuPy, and the kernels that accumulate on them."""
