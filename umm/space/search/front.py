"""The front of time against memory: the points that no other beats in both, and its knee."""

import math
from collections.abc import Sequence

from umm.space.choice import Choice
from umm.space.pricing.pricer import Pricer
from umm.space.search.walk import BestFirst

REACH = 4.0
"""How many times as long as the best what a search shows of a front may take."""


def front(pricer: Pricer, limit: int, least: int = 0, reach: float = math.inf) -> list[Choice]:
    """Return the points that no other beats in both time and memory, by ascending memory.

    Each is the fastest for every budget from its own memory up to the next one's.

    Args:
        pricer: Prices the points of a space.
        limit: Most bytes a rank may hold.
        least: Points that need no more than this are left out.
        reach: So are those that take more than this many times as long as the fastest.
    """
    found: list[Choice] = []
    while limit > least:
        best = BestFirst(pricer, limit, 1)
        best.run()
        choices = best.choices()
        if not choices or choices[0].memory_bytes <= least:
            break
        if found and choices[0].makespan_s > reach * found[0].makespan_s:
            break
        found += choices
        limit = choices[0].memory_bytes - 1
    return found[::-1]


def knee(front: Sequence[Choice]) -> Choice | None:
    """Return the point of a front that lies furthest below the line between its ends; None without one.

    Before it a little memory buys much time, after it much memory buys little.

    Source: Satopää, Albrecht, Irwin and Raghavan (2011), Finding a "kneedle" in a haystack.
    """
    if len(front) < 3:
        return None
    first, last = front[0], front[-1]
    memory, seconds = last.memory_bytes - first.memory_bytes, first.makespan_s - last.makespan_s

    def above(x: Choice) -> float:
        return (x.memory_bytes - first.memory_bytes) / memory + (x.makespan_s - last.makespan_s) / seconds

    return min(front[1:-1], key=above)


def worth_more(pricer: Pricer, limit: int, most: int, now: float) -> Choice | None:
    """Return what a little more memory than a limit buys: half or more of what twice as much would.

    Args:
        pricer: Prices the points of a space.
        limit: Bytes a rank may hold now.
        most: Bytes it has at most.
        now: Makespan of the best within the limit.

    Returns:
        The point with the least memory that does, None if twice the memory saves less than a hundredth.
    """
    beyond = front(pricer, min(most, 2 * limit), limit)
    if not beyond or beyond[-1].makespan_s > 0.99 * now:
        return None
    return next(x for x in beyond if now - x.makespan_s >= (now - beyond[-1].makespan_s) / 2)
