"""The universal algorithm beside current practice: one table, one start, one budget, a verdict."""
