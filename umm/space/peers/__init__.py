"""What people use today beside the universal algorithm: one table, one start, one budget, a verdict."""
