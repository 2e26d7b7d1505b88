"""The actions of a trace as a pandas frame."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints
from umm.schedules.kinds import KINDS
from umm.traces.spans import Spans

if TYPE_CHECKING:
    import pandas as pd


def action_frame(spans: Spans) -> "pd.DataFrame":
    """Return a row per action, in the order of the schedule.

    Returns:
        Columns rank, lane (by name), kind, op, peer (the other rank of a transfer), start_s, end_s, nbytes
        (payload), flop, and a_tile, b_tile, c_tile as text such as ``0,3``. Where a column has no meaning it
        is −1 or empty; a barrier has rank −1.
    """
    import pandas as pd

    schedule = spans.schedule
    lane_names = np.array([*schedule.lanes.names, ""], dtype=object)
    frame = pd.DataFrame(
        {
            "rank": schedule.rank,
            "lane": lane_names[schedule.lane],
            "kind": np.array(KINDS, dtype=object)[schedule.kind],
            "op": schedule.details.op,
            "peer": np.where(schedule.src == schedule.rank, schedule.dst, schedule.src),
            "start_s": spans.start,
            "end_s": spans.end,
            "nbytes": schedule.payload,
            "flop": schedule.flop,
        }
    )
    for number, tensor in enumerate(schedule.program.tensors):
        frame[f"{tensor.name.lower()}_tile"] = _tile_texts(schedule.touched_tiles(number))
    return frame


def _tile_texts(tiles: Ints) -> NDArray[np.object_]:
    """Return tile indices as ``row,column``, and nothing for −1."""
    width = int(tiles.max(initial=0)) + 1
    distinct, which = np.unique(tiles[:, 0] * width + tiles[:, 1], return_inverse=True)
    texts = ["" if tile < 0 else f"{tile // width},{tile % width}" for tile in distinct.tolist()]
    return np.array(texts, dtype=object)[which]
