"""The times of a schedule's actions, and the bytes they move over links."""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from umm.arrays import Floats, Ints, offsets_of, rows_of_groups
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import KINDS, TRANSFERS
from umm.schedules.table.resources import Routes

if TYPE_CHECKING:
    import pandas as pd

Times = Literal["predicted", "measured", "meaningless"]
"""What an executor's times are; meaningless: of one process in place of all ranks."""
TIMES: tuple[Times, ...] = get_args(Times)


class Span(NamedTuple):
    """When one action ran, in seconds after the run's start."""

    start: float
    end: float


@dataclass(frozen=True, eq=False)
class Spans:
    """When each action started and finished."""

    schedule: Schedule  # what was performed
    source: str  # name of the executor: sim, numpy, mpi, cuda, nvshmem or another that is installed
    start: Floats  # start of each action in seconds after the run's start; of a transfer, latency included
    end: Floats  # finish of each action
    _: KW_ONLY
    times: Times = "measured"  # whether these are predicted, measured or meaningless, as the executor says

    @cached_property
    def spans(self) -> list[Span]:
        """Rows of ``start`` and ``end``; ``spans[i]`` is that of action i."""
        return list(map(Span, self.start.tolist(), self.end.tolist()))

    @cached_property
    def makespan_s(self) -> float:
        """The last finish, in seconds."""
        return float(self.end.max(initial=0.0))


def time_by_classes(
    start: Floats, end: Floats, group: Ints, of_class: Ints, groups: int, classes: int, horizon: float
) -> Floats:
    """Return how long each group spends in every combination of classes.

    Args:
        start: Start of each span in seconds, at least 0.
        end: End of each span, at most the horizon.
        group: Group of each span, such as its rank or a link.
        of_class: Class of each span.
        horizon: The time looked at, from 0, in seconds.

    Returns:
        Seconds, shape (groups, 2**classes): column c is the time during which exactly the classes whose bit
        is set in c have at least one span in flight. Rows add up to the horizon.

    >>> start, end = np.array([0.0, 1.0]), np.array([2.0, 4.0])
    >>> time_by_classes(start, end, np.array([0, 0]), np.array([0, 1]), groups=1, classes=2, horizon=5.0)
    array([[1., 1., 2., 1.]])
    """
    both_ends = np.arange(groups).repeat(2)
    when = np.concatenate((start, end, np.tile((0.0, horizon), groups)))
    who = np.concatenate((group, group, both_ends))
    order = np.lexsort((when, who))
    when, who = when[order], who[order]
    code = np.zeros(len(when), dtype=np.int64)
    for bit in range(classes):
        mine = (of_class == bit).astype(np.int64)
        change = np.concatenate((mine, -mine, np.zeros(2 * groups, dtype=np.int64)))[order]
        code += (np.cumsum(change) > 0).astype(np.int64) << bit
    lasts = np.where(who[1:] == who[:-1], np.diff(when), 0.0)
    cells = who[:-1] * 2**classes + code[:-1]
    seconds = np.bincount(cells, weights=lasts, minlength=groups * 2**classes)
    return seconds.astype(np.float64).reshape(groups, 2**classes)


def bytes_by_kind(schedule: Schedule) -> dict[str, int]:
    """Return the payload bytes that travel between ranks, for get, put, accumulate, reduce and broadcast."""
    # What a rank copies or adds within itself is not among them.
    travels = (schedule.src != schedule.dst).nonzero()[0]
    moved = np.zeros(len(KINDS), dtype=np.int64)
    np.add.at(moved, schedule.kind[travels], schedule.payload[travels])
    return {KINDS[kind]: int(moved[kind]) for kind in TRANSFERS}


MAX_CACHED_RANKS = 16  # ranks of which the routes of all pairs are kept


def crossings(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return the actions that cross links and the links they cross, one pair for every crossing."""
    moving = np.flatnonzero(schedule.src != schedule.dst)
    which = schedule.src[moving] * schedule.ranks + schedule.dst[moving]
    if schedule.ranks <= MAX_CACHED_RANKS:
        offsets, links = _all_pairs(schedule.routes, schedule.ranks)
    else:
        pairs, which = np.unique(which, return_inverse=True)
        offsets, links = _of_pairs(schedule.routes, schedule.ranks, pairs.tolist())
    return moving.repeat(np.diff(offsets)[which]), links[rows_of_groups(offsets, which)]


@lru_cache(maxsize=8)
def _all_pairs(routes: Routes, ranks: int) -> tuple[Ints, Ints]:
    return _of_pairs(routes, ranks, range(ranks**2))


def _of_pairs(routes: Routes, ranks: int, pairs: Iterable[int]) -> tuple[Ints, Ints]:
    """Return where the links of each pair of ranks start, and the links."""
    links = [() if x // ranks == x % ranks else routes[divmod(x, ranks)] for x in pairs]
    return offsets_of([len(route) for route in links]), np.array(
        [y for x in links for y in x], dtype=np.int64
    )


def link_bytes(schedule: Schedule) -> Ints:
    """Return the bytes charged to every link: payload and the extra cost of accumulates."""
    action, link = crossings(schedule)
    carried = np.zeros(len(schedule.links.names), dtype=np.int64)
    np.add.at(carried, link, schedule.nbytes[action])
    return carried


def link_utilisation(spans: Spans) -> Floats:
    """Return for every link the share of its bytes it could have carried within the makespan, 0 to 1."""
    could = spans.schedule.links.bandwidth * spans.makespan_s
    return np.divide(link_bytes(spans.schedule), could, out=np.zeros(len(could)), where=could > 0)


def link_frame(spans: Spans) -> "pd.DataFrame":
    """Return a row per link: name, nbytes, busy_s (some transfer crosses it), utilisation; fullest first."""
    import pandas as pd

    links = spans.schedule.links
    action, link = crossings(spans.schedule)
    ends, one_class = (spans.start[action], spans.end[action]), np.zeros(len(action), dtype=np.int64)
    busy = time_by_classes(*ends, link, one_class, len(links.names), 1, spans.makespan_s)[:, 1]
    columns = {"link": links.names, "nbytes": link_bytes(spans.schedule), "busy_s": busy}
    frame = pd.DataFrame(columns | {"utilisation": link_utilisation(spans)})
    return frame.sort_values("utilisation", ascending=False, kind="stable")
