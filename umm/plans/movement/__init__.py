"""Operands gathered and products summed by collectives, beside one-sided gets and accumulates."""
