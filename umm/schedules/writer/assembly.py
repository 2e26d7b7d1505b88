"""Consecutive rows of a schedule while it is being built, and how parts become one schedule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints, offsets_of
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Buffers, first_tiles, joined
from umm.schedules.table.details import Details
from umm.schedules.table.platform import Platform
from umm.schedules.table.table import Data, check_moved


@dataclass(frozen=True, eq=False)
class Rows:
    """Consecutive actions as columns; see :class:`umm.schedules.table.table.Schedule` for their meaning.

    Attributes:
        numbers: Rank, lane, src, dst and nbytes of each action, shape (5, actions): one array, because
            joining parts costs by the array.
        waits: Number of dependencies of each action.
        after: The dependencies, one action's after another's, as table rows.
        fill: Writes the rows' details, given the details' columns cut to these rows and the number that
            its first temporary will have; returns its temporaries.
    """

    kind: NDArray[np.int8]
    numbers: Ints
    waits: Ints
    after: Ints
    seconds: NDArray[np.float64]
    fill: Callable[[Details, int], Buffers]


def no_data(details: Details, first: int) -> Buffers:
    """Leave the details as they are, for rows that touch no data; see :class:`Rows`."""
    return joined([])


def assemble(
    parts: Sequence[Rows],
    problem: Problem,
    stationary: str,
    shared: Platform,
    options: Mapping[str, Any],
    pools: Callable[[], list[Ints]],
) -> Schedule:
    """Return the schedule whose table is these parts, one below the other."""

    def make_data() -> Data:
        details = Details.empty(sum(len(part.kind) for part in parts))
        temporaries: list[Buffers] = []
        start, first = 0, first_tiles(problem.tensors)[-1]
        for part in parts:
            stop = start + len(part.kind)
            temporaries.append(part.fill(details.cut(start, stop), first))
            start, first = stop, first + len(temporaries[-1])
        return Data(details, joined(temporaries))

    machine = shared.machine
    rank, lane, src, dst, nbytes = _joined([part.numbers for part in parts])
    check_moved(nbytes)
    return Schedule(
        program=problem,
        stationary=stationary,
        machine=machine.name,
        ranks=problem.p,
        interference=machine.interference,
        links=shared.links,
        routes=shared.routes,
        lanes=shared.lanes,
        kind=_joined([part.kind for part in parts]),
        rank=rank,
        lane=lane,
        after_offsets=offsets_of(_joined([part.waits for part in parts])),
        after=_joined([part.after for part in parts]),
        src=src,
        dst=dst,
        nbytes=nbytes,
        seconds=_joined([part.seconds for part in parts]),
        make_data=make_data,
        make_pools=pools,
        options=options,
        peak=machine.peak(problem.dtype) * shared.devices,
    )


def _joined(columns: list[NDArray[Any]]) -> NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=-1)
