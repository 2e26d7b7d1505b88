"""Remark on tensors that the movement ``library`` leaves to other ways."""

import numpy as np

from umm.machines import Machine
from umm.plans.collectives.hierarchical import CARD
from umm.plans.collectives.library import LIBRARY
from umm.plans.movement.choice import has_library
from umm.schedules.schedule import Schedule

MAX_NAMED = 6
"""Names in a remark."""


def without_library(schedule: Schedule, machine: Machine) -> str:
    """Return a remark on tensors that move between ranks without the machine's library, and why.

    Empty if all go by the library, or nothing moves.
    """
    lanes = {
        way: np.array([x.startswith(way) for x in schedule.lanes.names], np.bool_) for way in (LIBRARY, CARD)
    }
    by_library, between = (lanes[way][schedule.lane] for way in (LIBRARY, CARD))
    # Between nodes the library's bytes cross cards, on the lane of all that does.
    between &= np.isin(schedule.moved_tensors, schedule.moved_tensors[by_library])
    moves = (schedule.src >= 0) & (schedule.dst >= 0) & (schedule.src != schedule.dst)
    numbers = np.unique(schedule.moved_tensors[moves & ~by_library & ~between])
    names = list(dict.fromkeys(schedule.tensors[x].name.partition(".")[0] for x in numbers.tolist()))
    if not names:
        return ""
    listed = ", ".join(names[:MAX_NAMED]) + (
        f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    )
    if machine.library is None:
        return f"{listed} not by a library: the file of {machine.name} names none"
    name = machine.library.name
    if not has_library(machine, schedule.ranks):
        return f"{listed} not by {name}: it is modelled with a device to each rank, as many in every node"
    return f"{listed} not by {name}: they are not gathered or summed whole by ranks that need the same"
