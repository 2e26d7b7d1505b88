"""A framework's graph, or an einsum, as a chain: arrays of many dimensions are folded to matrices."""
