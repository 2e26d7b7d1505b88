"""The actions of a trace as a pandas frame, and the tiles they touch in words."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import tile_at
from umm.schedules.table.details import KINDS
from umm.traces.spans import Spans

if TYPE_CHECKING:
    import pandas as pd


def action_frame(spans: Spans) -> "pd.DataFrame":
    """Return a row per action, in the order of the schedule.

    Returns:
        Columns rank, lane (by name), kind, op, peer (the other rank of a transfer), start_s, end_s, nbytes
        (payload), flop, and for each tensor of the program its tile as text such as ``0,3``: a_tile, b_tile,
        c_tile of a multiply, X_tile, W1_tile and so on of a chain. Where a column has no meaning it is −1 or
        empty; a barrier has rank −1.
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
    for number, column in enumerate(tile_columns(schedule)):
        frame[column] = _tile_texts(schedule.touched_tiles(number))
    return frame


def tile_columns(schedule: Schedule) -> list[str]:
    """Return the columns of the frame that hold tiles, one for each tensor of the program."""
    names = [tensor.name for tensor in schedule.program.tensors]
    if schedule.program.kind == "problem":
        names = [name.lower() for name in names]
    return [f"{name}_tile" for name in names]


def touched_words(schedule: Schedule, actions: Ints) -> list[str]:
    """Return the tiles that each of some actions touches, the written one first: ``C(0,1) A(0,0) B(0,1)``."""
    words = []
    for operand in range(schedule.details.operands):
        of_operand = np.full(len(actions), "", dtype=object)
        tensors = schedule.operand_tensors(operand)[actions]
        for number in np.unique(tensors[tensors >= 0]).tolist():
            tensor, mine = schedule.tensors[number], np.flatnonzero(tensors == number)
            corners = (x[actions[mine], operand, 0] for x in (schedule.details.rows, schedule.details.cols))
            tiles, which = np.unique(tile_at(tensor.layout, *corners), return_inverse=True)
            width = tensor.layout.grid_shape()[1]
            names = [f"{tensor.name}({tile // width},{tile % width})" for tile in tiles.tolist()]
            of_operand[mine] = np.array(names, dtype=object)[which]
        words.append(of_operand.tolist())
    return [
        " ".join(word for word in dict.fromkeys(of_action) if word) for of_action in zip(*words, strict=True)
    ]


def _tile_texts(tiles: Ints) -> NDArray[np.object_]:
    """Return tile indices as ``row,column``, and nothing for −1."""
    width = int(tiles.max(initial=0)) + 1
    distinct, which = np.unique(tiles[:, 0] * width + tiles[:, 1], return_inverse=True)
    texts = ["" if tile < 0 else f"{tile // width},{tile % width}" for tile in distinct.tolist()]
    return np.array(texts, dtype=object)[which]
