"""Early: gathers before the multiply that comes before theirs, and copies as soon as they may be written."""

from collections.abc import Iterator, Sequence

from umm.plans.join import summed_with_next
from umm.plans.partition import Do, Gather, Step, Steps, Ways, operands_of
from umm.program import Statement


def hoist(steps: Steps, statements: Sequence[Statement], ways: Ways) -> Iterator[Step]:
    """Yield the steps with the gathers of the next multiply before each multiply, which hides them."""
    early = dict[int, list[Step]]()
    for step in steps:
        if isinstance(step, Gather):
            early.setdefault(step.number, []).append(step)
    for step in steps:
        if isinstance(step, Gather):
            if step.number in early:
                yield step
            continue
        if isinstance(step, Do) and step.number in ways:
            # One multiply ahead only: gathers further ahead would need room for more copies.
            follower = follower_of(statements, ways, step.number)
            yield from early.pop(follower) if follower is not None else ()
        yield step


def follower_of(statements: Sequence[Statement], ways: Ways, number: int) -> int | None:
    """Return the next multiply by collectives, if no operand that it gathers is written between."""
    # A gather may pass statements that do not write its tensor; otherwise it would move the old values.
    written = {statements[number].out}
    for other in range(number + 1, len(statements)):
        statement = statements[other]
        if other in ways:
            names = operands_of(statement)
            gathers = {names[x].tensor for x in ways[other].collects}
            return other if gathers and not gathers & written else None
        written.update(statement.outs)
    return None


def ahead(statements: Sequence[Statement], order: Sequence[int], ways: Ways) -> list[int]:
    """Return an order in which each copy comes as early as it may overwrite its tensor: a prefetch.

    Collectives that run one after another do so in the order in which they are written. FSDP issues the
    gather of the next layer's weights before it sums this one's gradients. Multiplies whose products are
    summed together stay together. Before a multiply that gathers what maps have just written, a copy comes
    directly, so that it can follow that gather.

    Source: Zhao et al. (2023), PyTorch FSDP, section 3.3.2.
    """
    result = list[int]()
    for number in order:
        at, one = len(result), statements[number]
        if one.moves_only:
            # Bubble the copy towards the front until something before it uses its tensor or writes its
            # source.
            while at and _may_swap(statements[result[at - 1]], one):
                at -= 1
            # A copy between two joined multiplies would separate products that are summed as one.
            while at and at < len(result) and summed_with_next(statements, ways, result[at - 1]):
                at += 1
            at = _behind_maps(statements, result, at, ways)
        result.insert(at, number)
    return result


def _behind_maps(statements: Sequence[Statement], order: Sequence[int], at: int, ways: Ways) -> int:
    """Return the place of a copy behind the maps it is before, if a multiply follows that gathers."""
    light = (statements[x].moves_only or statements[x].passes for x in order[at:])  # copies and maps
    follows = next((x for x, passes in enumerate(light, at) if not passes), -1)
    gathers = follows > at and order[follows] in ways and ways[order[follows]].collects
    return follows if gathers else at


def _may_swap(before: Statement, copy: Statement) -> bool:
    """Whether a copy may come before a statement; copies keep their order."""
    touched = {*before.reads, *before.outs}
    return not before.moves_only and copy.out not in touched and not {*copy.reads} & {*before.outs}
