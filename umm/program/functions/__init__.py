"""The functions that a map performs: which shapes they take, how they may be cut, and their NumPy form.

A signature such as ``rc,1c->rc`` gives the shape of each operand: r rows or 1, c columns or 1. A map may
work on any cut of its tensors along r and c, except ``column_unit``. Where the result lacks a letter
(``rc->r1``), the results of pieces cut along it add up. What depends on the index is given where the piece
lies in the whole, so every layout gives the same.

To add one, from anywhere: ``register(Function("square", "rc->rc", lambda x: x * x))``.
"""

from umm.program.functions.registry import FUNCTIONS, function, register
from umm.program.functions.signature import Function, Parameter, Place

__all__ = ["FUNCTIONS", "Function", "Parameter", "Place", "function", "register"]
