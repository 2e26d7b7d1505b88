"""Which contender to take of some that were timed."""

from collections.abc import Sequence
from typing import Any

from umm.space.peers.contender import Contender, Timed

MARGIN = 0.01
"""By how much another way has to be faster than the first to be worth it, as a share."""


def chosen(timed: Sequence[Timed], start: Any, preferred: str = "") -> Contender:
    """Return the contender to take of some, the first of which asks for no change.

    The first is taken unless another that fits is faster by the margin; then the fastest that fits, or the
    one whose words are preferred if it is as fast but for the margin.
    """
    stay = timed[0]
    fitting = [x for x in timed[1:] if x.fits]
    best = min(fitting, key=lambda x: x.makespan_s, default=stay)
    if stay.fits and stay.makespan_s * (1 - MARGIN) <= best.makespan_s:
        return stay.contender
    for x in fitting:
        near = x.makespan_s * (1 - MARGIN) <= best.makespan_s
        if near and x.contender.in_words(start) == preferred:
            return x.contender
    return best.contender
