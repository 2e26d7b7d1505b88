"""A chain of multiplies, maps, copies and sums as one schedule: each statement lowered, then joined."""
