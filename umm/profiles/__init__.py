"""Profiles of others, read as kernels and put beside predicted ones."""
