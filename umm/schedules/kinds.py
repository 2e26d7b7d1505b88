"""The kinds of actions."""

from collections.abc import Mapping

KINDS = ("get", "put", "gemm", "accumulate", "reduce", "broadcast", "local", "barrier")
GET, PUT, GEMM, ACCUMULATE, REDUCE, BROADCAST, LOCAL, BARRIER = range(len(KINDS))
TRANSFERS = (GET, PUT, ACCUMULATE, REDUCE, BROADCAST)
NO_INTERFERENCE: Mapping[str, float] = {"get": 0.0, "accumulate": 0.0, "reduce": 0.0}
