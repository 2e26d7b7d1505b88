"""The OpenCL executor: queues and events on any CPU or GPU, by PoCL from a wheel if by nothing else."""
