"""The kinds of actions, and where each kind's operands lie."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints

KINDS = ("get", "put", "gemm", "accumulate", "reduce", "broadcast", "local", "barrier", "map")
GET, PUT, GEMM, ACCUMULATE, REDUCE, BROADCAST, LOCAL, BARRIER, MAP = range(len(KINDS))
TRANSFERS = (GET, PUT, ACCUMULATE, REDUCE, BROADCAST)
NO_INTERFERENCE: Mapping[str, float] = {"get": 0.0, "accumulate": 0.0, "reduce": 0.0}


def operand_ranks(kind: NDArray[np.int8], rank: Ints, src: Ints, dst: Ints) -> Ints:
    """Return the rank where each operand of each action lies, shape (actions, 4); −1 for local and barrier.

    A transfer writes at its destination and reads at its source; everything else stays at its rank.
    """
    places = np.repeat(rank[:, None], 4, axis=1)
    transfer = np.isin(kind, TRANSFERS)
    places[transfer] = src[transfer, None]
    places[transfer, 0] = dst[transfer]
    places[np.isin(kind, (LOCAL, BARRIER))] = -1
    return places
