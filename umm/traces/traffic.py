"""What a schedule moves: bytes by kind, and the bytes and busy time of every link."""

from typing import TYPE_CHECKING

import numpy as np

from umm.arrays import Floats, Ints, offsets_of, rows_of_groups
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import KINDS, TRANSFERS
from umm.traces.spans import Spans, busy_time

if TYPE_CHECKING:
    import pandas as pd


def bytes_by_kind(schedule: Schedule) -> dict[str, int]:
    """Return the payload bytes that travel between ranks, for get, put, accumulate, reduce and broadcast.

    What a rank copies or adds within itself is not among them.
    """
    payload = np.where(schedule.src != schedule.dst, schedule.payload, 0)
    return {KINDS[kind]: int(payload[schedule.kind == kind].sum()) for kind in TRANSFERS}


def crossings(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return the actions that cross links and the links they cross, one pair for every crossing."""
    moving = np.flatnonzero(schedule.src != schedule.dst)
    pair = schedule.src[moving] * schedule.ranks + schedule.dst[moving]
    pairs, which = np.unique(pair, return_inverse=True)
    routes = [schedule.routes[divmod(x, schedule.ranks)] for x in pairs.tolist()]
    offsets = offsets_of([len(route) for route in routes])
    links = np.array([link for route in routes for link in route], dtype=np.int64)
    return moving.repeat(np.diff(offsets)[which]), links[rows_of_groups(offsets, which)]


def link_bytes(schedule: Schedule) -> Ints:
    """Return the bytes every link carries, as charged to it: payload and what accumulates cost above it."""
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
    frame = pd.DataFrame(
        {
            "link": links.names,
            "nbytes": link_bytes(spans.schedule),
            "busy_s": busy_time(
                spans.start[action], spans.end[action], link, len(links.names), spans.makespan_s
            ),
            "utilisation": link_utilisation(spans),
        }
    )
    return frame.sort_values("utilisation", ascending=False, kind="stable")
