"""JAX Pallas' collective matmul: its lower bound exactly, its kernel and its reference as predicted."""
