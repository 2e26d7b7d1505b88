"""The kernels of a simulated schedule at one rank, to stand beside a profile's."""

import numpy as np

from umm.profiles.kernel import MAP, MULTIPLY, Kernel, union
from umm.schedules.table.details import KINDS
from umm.traces.trace import Trace

COLLECTIVE_OF = {
    "get": "all-gather", "put": "all-gather", "broadcast": "all-gather", "accumulate": "reduce-scatter",
    "reduce": "reduce-scatter",
}  # fmt: skip
"""The collective by which a library moves what these actions move one by one."""


def trace_kernels(trace: Trace, rank: int = 0) -> list[Kernel]:
    """Return a rank's multiplies and maps, and for each tensor that is gathered or summed one collective.

    A collective's seconds are those in which some of its transfers run.
    """
    schedule = trace.schedule
    kinds = np.array(KINDS, dtype=object)[schedule.kind]
    apart = (schedule.src != schedule.dst) & np.isin(kinds, list(COLLECTIVE_OF))
    kernels = []
    names = [x.name for x in schedule.tensors]
    tensor, batch = schedule.operand_tensors(0), schedule.details.batch
    rows, cols = (np.diff(x[:, 0], axis=1)[:, 0] for x in (schedule.details.rows, schedule.details.cols))
    mine = np.flatnonzero((schedule.rank == rank) & np.isin(kinds, ("gemm", "map")))
    for i in mine.tolist():
        m, n = int(rows[i]), int(cols[i])
        shape: tuple[int, ...] = ()
        if kinds[i] == "gemm" and batch[i] == 1 and m * n:
            shape = (m, n, round(float(schedule.flop[i]) / (2 * m * n)))
        kind = MULTIPLY if kinds[i] == "gemm" else MAP
        seconds = float(trace.end[i] - trace.start[i])
        kernels.append(Kernel(kind, names[tensor[i]], seconds, shape, start=float(trace.start[i])))
    moved = np.flatnonzero(apart & (schedule.rank == rank))
    groups: dict[tuple[str, str], list[int]] = {}
    for i in moved.tolist():
        groups.setdefault((COLLECTIVE_OF[kinds[i]], names[tensor[i]]), []).append(i)
    for (kind, name), actions in groups.items():
        spans = [
            Kernel(kind, name, float(trace.end[i] - trace.start[i]), start=float(trace.start[i]))
            for i in actions
        ]
        peers = {int(x) for i in actions for x in (schedule.src[i], schedule.dst[i])} - {rank}
        pieces = {_piece(trace, i): int(schedule.payload[i]) for i in actions}
        nbytes, ranks = sum(pieces.values()), len(peers) + 1
        # A tensor that several multiplies read may be gathered for each of them.
        calls = int(schedule.payload[actions].sum()) / nbytes
        kernels.append(
            Kernel(
                kind, name, union(spans) / calls, ranks=ranks, nbytes=nbytes * ranks // (ranks - 1),
                calls=calls, start=min(x.start for x in spans), group=tuple(sorted({rank, *peers})),
            )
        )  # fmt: skip
    return sorted(kernels, key=lambda x: x.start)


def _piece(trace: Trace, action: int) -> tuple[int, ...]:
    """Return a transfer's ends, and the rows and columns that it writes."""
    schedule = trace.schedule
    sides = (x[action, 0].tolist() for x in (schedule.details.rows, schedule.details.cols))
    return (int(schedule.src[action]), int(schedule.dst[action]), *(x for side in sides for x in side))
