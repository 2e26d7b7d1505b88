"""Microbenchmarks of a host or of GPUs, and the machine files written from them."""
