"""One action on arrays, performed at once, for ranks on CPUs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from umm.interval import Interval
from umm.schedules.table.details import GET, Multiplied
from umm_hw.blocks import Mapped, Work
from umm_hw.float8 import name_of, quantised, widened
from umm_hw.transport import Block, Transport

Step = Callable[[], object]
Multiply = Callable[[Any, Any, Any, float, float], None]
"""Sets its third array C to α·AB + β·C of the first two and the two numbers."""


def array_step(kind: int, work: Work, ranks: Mapping[int, Transport], multiply: Multiply) -> Step:
    """Return a function that performs an action, its views made beforehand.

    Args:
        work: Its memory.
        ranks: The transports of the ranks that this process acts for, the action's own among them.
    """
    if work.writes is None:
        return _nothing
    if work.product is not None:
        return _product(work.product, work, ranks[work.writes.rank], multiply)
    if work.mapped is not None:
        actor = ranks[work.writes.rank]
        return partial(_map, work.mapped, [actor.view(x) for x in work.reads], actor.view(work.writes))
    (source,) = work.reads
    if kind == GET:
        actor = ranks[work.writes.rank]
        return partial(actor.get, source, actor.view(work.writes))
    actor = ranks[source.rank]
    return partial(actor.accumulate if work.adds else actor.put, actor.view(source), work.writes)


def members(product: Multiplied, work: Work) -> Iterator[tuple[Block, Block, Block, float]]:
    """Yield the blocks of C, A and B of each multiply of a gemm, and its β."""
    # A batch is cut into members along each operand's own axis. Members that share a block of C add up.
    assert work.writes is not None
    if product.batch == 1:
        a, b = work.reads
        yield work.writes, a, b, product.beta
        return
    blocks = (work.writes, *work.reads)
    for member in range(product.batch):
        cut = []
        for block, axis, group in zip(blocks, product.batch_axes, product.groups, strict=True):
            cut.append(_cut(block, axis, member // group, product.batch // group))
        first = member % product.groups[0] == 0
        yield cut[0], cut[1], cut[2], product.beta if first else 1.0


def _cut(block: Block, axis: int, number: int, parts: int) -> Block:
    """Return one of some equal parts of a block, along rows (0) or columns (1)."""
    spans = [Interval(0, block.rows), Interval(0, block.cols)]
    each = spans[axis].size // parts
    spans[axis] = Interval(number * each, (number + 1) * each)
    return block.cut(*spans)


def _product(product: Multiplied, work: Work, actor: Transport, multiply: Multiply) -> Step:
    calls = []
    for c, a, b, beta in members(product, work):
        left, right = actor.view(a), actor.view(b)
        if product.trans & 2:
            left = left.T
        if product.trans & 4:
            right = right.T
        calls.append(partial(multiply, left, right, actor.view(c), product.alpha, beta))
    return calls[0] if len(calls) == 1 else partial(_all, calls)


def _all(calls: Sequence[Step]) -> None:
    for call in calls:
        call()


def _map(mapped: Mapped, reads: list[Any], target: Any) -> None:
    output = mapped(*map(widened, reads))
    target[...] = output if target.dtype.names is None else quantised(output, name_of(target.dtype), axis=1)


def _nothing() -> None:
    """Take no time: barriers and local work move no data."""
