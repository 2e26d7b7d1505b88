"""Transfers as the closed-form bounds count them: bytes, messages, and how long lanes are busy with them."""

from dataclasses import dataclass

import numpy as np

from umm.arrays import Floats
from umm.machines.curves import MessageSizes


@dataclass(frozen=True, eq=False)
class Transfers:
    """Transfers of one matrix; axes as in :class:`umm.space.bounds.combinations.Combinations`.

    Attributes:
        number: How many a rank makes.
        seconds: What they take one after another, each alone on its route.
        shortest: The shortest of them, infinite if there is none.
        at_least: How long every op of the rank waits for one of them; 0 if some op needs none.
        on_links: How long each link is busy with those of all ranks.
    """

    number: Floats
    seconds: Floats
    shortest: Floats
    at_least: Floats
    on_links: Floats


def busiest_lane(transfers: list[Transfers], lanes: int) -> Floats:
    """Return how long the busiest of a rank's lanes is busy at least, transfers dealt out in turn."""
    number: Floats = np.asarray(sum(t.number for t in transfers))
    seconds: Floats = np.asarray(sum(t.seconds for t in transfers))
    shortest = np.minimum.reduce(np.broadcast_arrays(*(t.shortest for t in transfers)))
    shortest = np.where(number > 0, shortest, 0.0)
    return np.asarray(np.maximum(seconds / lanes, np.ceil(number / lanes) * shortest))


def least_slowdown(sizes: MessageSizes | None, largest: int) -> float:
    """Return the least factor by which messages of up to some bytes are charged more for their size."""
    if sizes is None or largest < 1:
        return 1.0
    smaller = [size for size in np.exp2(sizes.log_sizes).tolist() if size < largest]
    return float(sizes.slowdown([*smaller, largest], True).min())  # anything may come from a cache
