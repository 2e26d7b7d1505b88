"""Late: multiplies that nothing waits for, behind those whose sums they hide, and copies behind gathers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from umm.plans.hoist import follower_of
from umm.plans.partition import Do, Step, Ways, operands_of
from umm.program import Statement
from umm.program.statements.multiply import is_multiply


def in_turns(statements: Sequence[Statement], summed: Mapping[int, bool]) -> list[int]:
    """Return the numbers of statements in the order in which they are written.

    A product that is not summed, and that nothing waits for, comes after the next ones that are summed by a
    collective: their sums go on beside it. So gradients by weights follow that by a layer's input, where
    tensors are cut as Megatron cuts them, but not where the weights' gradients are summed.

    Args:
        summed: For the number of each multiply by collectives whether its product is summed.

    Source: Shoeybi et al. (2019) and Megatron-LM, which overlaps that sum with the gradients by weights.
    """
    order = list(range(len(statements)))
    for number in (x for x in range(len(statements)) if summed.get(x)):
        # Only products without a sum of their own move back; one-sided multiplies count as summed.
        waiting = [x for x in _waiting(statements, order, number) if not summed.get(x, True)]
        order = [x for x in order if x not in waiting]
        at = order.index(number) + 1
        order[at:at] = waiting
    return order


def may_change_turns(statements: Sequence[Statement]) -> tuple[set[int], set[int]]:
    """Return which statements may come later than they are written in a chain, and which before these."""
    later, earlier = set[int](), set[int]()
    for number, statement in enumerate(statements):
        waiting = _waiting(statements, range(len(statements)), number)
        if is_multiply(statement) and waiting:
            later.update(waiting)
            earlier.add(number)
    return later, earlier


def _waiting(statements: Sequence[Statement], order: Sequence[int], number: int) -> list[int]:
    """Return the multiplies before one, with only others between, that may as well come after it."""
    result, between = list[int](), [statements[number]]
    for other in reversed(order[: order.index(number)]):
        one = statements[other]
        if not is_multiply(one):
            break
        read = any(one.out in x.reads for x in statements if x is not one)
        # Moving a multiply back past others is safe if they write neither what it writes nor what it reads.
        written = {name for x in between for name in x.outs}
        if not read and not written & {one.out, *one.reads}:
            result.insert(0, other)
        between.append(one)
    return result


def sink(steps: Iterable[Step], statements: Sequence[Statement], ways: Ways) -> Iterator[Step]:
    """Yield the steps with each copy before a multiply behind the gathers of that and of the next one."""
    waiting = list[Step]()
    for step in steps:
        if not isinstance(step, Do):
            yield step
        elif statements[step.number].moves_only:
            waiting.append(step)
            if not _may_wait(step.number, statements, ways):
                yield from waiting
                waiting.clear()
        else:
            yield from waiting
            waiting.clear()
            yield step


def _may_wait(number: int, statements: Sequence[Statement], ways: Ways) -> bool:
    """Whether a copy may be written with the multiply after it, behind its gathers."""
    others = range(number, len(statements))
    # A copy that waits lets the next multiply's gathers go first on the same links.
    follows = next((x for x in others if not statements[x].moves_only), -1)
    if follows not in ways or not ways[follows].collects:
        return False
    touched = {*statements[follows].outs}
    for x in (follows, follower_of(statements, ways, follows)):
        if x is not None:
            touched |= {operands_of(statements[x])[side].tensor for side in ways[x].collects}
    return statements[number].out not in touched
