"""autoparallel's model of NCCL within a node of Hopper or Blackwell (meta-pytorch/autoparallel, BSD, 2026).

Its ``cost_models/nccl_cost_model.py`` has a start and a rate by operation and ranks, from nccl-tests on eight
H100; Blackwell has twice the rates. Its A100 goes through NCCL's tuning loop, which is not repeated here.
"""

import numpy as np

RANKS = (2, 4, 8)
HALVES = ((537e9, 434e9, 394e9), (8e-6, 17e-6, 30e-6))
SUMS = ((324e9, 236e9, 267e9), (10e-6, 15e-6, 31e-6))
POINTS = {"all-gather": HALVES, "reduce-scatter": HALVES, "all-reduce": SUMS}
"""Bytes/s and seconds to begin, of each number of ranks."""
EXCHANGE = {"h": 380e9, "b": 675e9}
EXCHANGE_START = 50e-6


def seconds(system: str, operation: str, nbytes: float, ranks: int) -> float | None:
    """Return the seconds of a collective on a system as AIConfigurator calls it; None of A100.

    >>> seconds("h100_sxm", "all-reduce", 267e9, 8)
    1.000031
    """
    family = system.removeprefix("g")[0]
    if family not in EXCHANGE:
        return None
    if operation not in POINTS:
        return EXCHANGE_START + nbytes / EXCHANGE[family]
    rates, starts = POINTS[operation]
    rate = float(np.interp(ranks, RANKS, rates)) * (2 if family == "b" else 1)
    return float(np.interp(ranks, RANKS, starts)) + nbytes / rate
