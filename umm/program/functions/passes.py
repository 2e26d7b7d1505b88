"""Elements that NumPy goes over for a function, by kind of pass: counted on a few rows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from umm.arrays import ADD, EXP, POWER, WHERE
from umm.interval import Interval
from umm.program.functions.registry import function
from umm.program.functions.signature import Place

OF_KIND = {"where": WHERE, "power": POWER, "float_power": POWER} | dict.fromkeys(
    ("exp", "expm1", "log", "log1p", "logaddexp", "tanh", "sin", "cos", "divide", "sqrt"), EXP
)
"""Kind of each function of NumPy; of all others ``add``."""
ROWS = 8
"""Rows that are performed, at most."""


@lru_cache(maxsize=4096)
def passes(name: str, parameters: tuple[tuple[str, Any], ...], dtype: str, cols: int) -> Mapping[str, float]:
    """Return the elements that a function's NumPy form goes over for each row, by kind of pass.

    None for a function whose operands have more than rows and columns, or that cannot be cut to a few rows.

    >>> {kind: count / 64 for kind, count in passes("relu_grad", (), "float32", 64).items()}
    {'add': 2.0, 'where': 1.0}
    """
    known, count = function(name), Counter[str]()
    if not known.is_plain or any(isinstance(x, str) for _, x in parameters):
        return {}

    class Counted(np.ndarray[Any, Any]):
        """An array that counts the elements gone over."""

        def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:
            return _counted(ufunc.__name__, getattr(ufunc, method), inputs, more)

        def __array_function__(self, called: Any, types: Any, inputs: Any, more: Any) -> Any:
            return _counted(called.__name__, called, inputs, more)

    def _plain(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(_plain, value))
        return np.asarray(value) if isinstance(value, Counted) else value

    def _counted(name: str, called: Any, inputs: Sequence[Any], more: Mapping[str, Any]) -> Any:
        inputs = [_plain(x) for x in inputs]
        result = called(*inputs, **{key: _plain(x) for key, x in more.items()})
        sizes = [np.size(x) for x in (result, *inputs) if isinstance(x, np.ndarray)]
        count[OF_KIND.get(name, ADD)] += max(sizes, default=0)
        return result.view(Counted) if isinstance(result, np.ndarray) else result

    lines = {"r": ROWS, "c": cols, "1": 1}
    reads = [np.full((lines[x[0]], lines[x[1]]), 0.5, dtype).view(Counted) for x in known.operands[1:]]
    full = dict(parameters)
    if known.indexed:
        full["at"] = Place(Interval(0, ROWS), Interval(0, cols), (ROWS, cols))
    try:
        known.form(*reads, **full)
    except ValueError:
        return {}
    count[ADD] += lines[known.operands[0][0]] * lines[known.operands[0][1]]  # the result is written
    return {kind: elements / ROWS for kind, elements in count.items()}
