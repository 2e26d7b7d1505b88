"""Layouts in the words of others: DTensor, JAX, ScaLAPACK and HPF, read and written."""
