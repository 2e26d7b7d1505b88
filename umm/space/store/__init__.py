"""Sweeps and the store they fill."""
