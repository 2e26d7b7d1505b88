"""Shared parts of experiments: points kept as they are found, published numbers, images, the ledger."""
