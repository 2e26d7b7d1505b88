"""The types of matrix elements, by name."""

DTYPES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of one element."""
