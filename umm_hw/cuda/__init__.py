"""The CUDA executor: the device core on the GPUs of one process."""
