"""For users of JAX: a function as a chain."""

from umm.jax.traced import chain

__all__ = ["chain"]
