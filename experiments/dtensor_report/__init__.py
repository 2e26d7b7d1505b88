"""A report of a day on a DTensor: layouts and local shapes, communication patterns, errors, checkpoints."""
