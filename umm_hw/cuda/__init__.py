"""The CUDA executor: p virtual ranks of one process on its GPUs."""
