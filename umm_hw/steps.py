"""What performs one action on arrays, at once: a multiply, a copy or an addition; for ranks on CPUs."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from umm.schedules.kinds import GEMM, GET
from umm_hw.blocks import Work
from umm_hw.transport import Transport

Step = Callable[[], object]


def array_step(kind: int, work: Work, ranks: Mapping[int, Transport], multiply: Callable[..., Any]) -> Step:
    """Return what performs an action, its views made beforehand.

    Args:
        kind: The action's kind.
        work: Its memory.
        ranks: The transports of the ranks that this process acts for, the action's own among them.
        multiply: Sets its third array to the product of the first two, or adds it if the fourth is true.
    """
    if work.writes is None:
        return _nothing
    if kind == GEMM:
        actor = ranks[work.writes.rank]
        a, b, c = (actor.view(block) for block in (*work.reads, work.writes))
        return partial(multiply, a, b, c, work.adds)
    (source,) = work.reads
    if kind == GET:
        actor = ranks[work.writes.rank]
        return partial(actor.get, source, actor.view(work.writes))
    actor = ranks[source.rank]
    return partial(actor.accumulate if work.adds else actor.put, actor.view(source), work.writes)


def _nothing() -> None:
    """Take no time: barriers and local work move no data."""
