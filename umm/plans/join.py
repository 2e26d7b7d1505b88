"""Sums of several products are one sum."""

from collections.abc import Iterable, Iterator, Sequence

from umm.plans.movement.blocks import SIDES
from umm.plans.movement.choice import FLAT
from umm.plans.movement.multiply import Gathered
from umm.plans.partition import Asked, Do, Start, Step, Steps, Ways
from umm.plans.statements.at_home import products_at_home
from umm.plans.statements.multiplies import completing, sums_with_next
from umm.program import Multiply, Statement
from umm.program.statements.multiply import is_multiply, is_product, joinable


def join(steps: Iterable[Step], statements: Sequence[Statement], ways: Ways) -> Iterator[Step]:
    """Yield the steps with one start and one sum for multiplies by collectives that add to one product."""
    for step in steps:
        number = step.number
        joined = number in ways and number > 0 and summed_with_next(statements, ways, number - 1)
        if isinstance(step, Do) and number in ways:
            yield step._replace(first=not joined, last=not summed_with_next(statements, ways, number))
        elif not (isinstance(step, Start) and joined):
            yield step


def summed_with_next(statements: Sequence[Statement], ways: Ways, number: int) -> bool:
    """Whether the next multiply adds to the products of this one, so that both are summed once."""
    if number not in ways or number + 1 not in ways or not joinable(*statements[number : number + 2]):
        return False
    return alike(ways[number], ways[number + 1])


def summed_later(statements: Sequence[Statement], steps: Steps, asked: Asked) -> set[int]:
    """Return the numbers of sums of tokens that the next one-sided multiply can sum with its own."""
    # That is where all ranks have the tensor and nothing comes between that reads or writes it.
    done = {x.number: x for x in steps if isinstance(x, Do)}
    by_collectives = {x.number for x in steps if isinstance(x, Start)}
    result = set[int]()
    for number, statement in enumerate(statements):
        name, layout = statement.out, asked.tensors[statement.out].layout
        if not statement.moves_rows or statement.to_experts or layout.replicas < layout.ranks:
            continue
        later = (i for i in range(number + 1, len(statements)) if name in _touched(statements[i]))
        after = next(later, number)
        other = statements[after]
        if is_multiply(other) and is_product(other) and (other.out, other.beta) == (name, 1.0):
            alone = after not in by_collectives and done[after].first and not done[after].at_home
            if alone and completing(asked.one_sided(name))["movement"] == FLAT:
                result.add(number)
    return result


def _touched(statement: Statement) -> set[str]:
    return {*statement.reads, *statement.outs}


def alike(one: Gathered, other: Gathered) -> bool:
    """Whether the products of two multiplies lie alike, and are not whole."""
    # A sum adds slices of equal shape at each rank: same rectangles, same workers, same split, same room.
    same = (one.blocks.of("C") == other.blocks.of("C")).all() and (
        one.blocks.works == other.blocks.works
    ).all()
    split = [x.blocks.split if x.blocks.split in SIDES["C"] else "" for x in (one, other)]
    in_place = one.sums.in_place == other.sums.in_place and split[0] == split[1]
    return bool(one.sums.groups) and bool(same) and in_place


def join_one_sided(
    steps: Steps, statements: Sequence[Statement], follows: Sequence[bool], asked: Asked
) -> Iterator[Step]:
    """Yield the steps with one-sided multiplies that add to one product joined, at home or by one last sum.

    Args:
        follows: Whether each comes right after the one before in the chain, too.
    """
    # Only multiplies by collectives have a Start, so what remains is one-sided or no multiply.
    alone = {x.number for x in steps if isinstance(x, Do)} - {x.number for x in steps if isinstance(x, Start)}
    at_home, joined = 0, False
    for step in steps:
        statement = statements[step.number]
        if step.number < at_home:
            continue
        if not isinstance(step, Do) or step.number not in alone or not is_multiply(statement):
            joined = False
            yield step
            continue
        terms = list[Multiply]()
        # The longest run of multiplies that add to the same product; a gap in the chain ends it.
        for at in range(step.number, len(statements)):
            other = statements[at]
            adds = not terms or (follows[at] and joinable(terms[-1], other))
            if at not in alone or not adds or not is_product(other):
                break
            terms.append(other)
        options, stays = asked.one_sided(statement.out), asked.stationary(statement.out)
        parts = products_at_home(terms, asked.tensors, asked.machine, stays, options)
        # Adding up at home covers several terms in one step; joining only defers one sum to the next
        # multiply.
        joins = not parts and len(terms) > 1 and sums_with_next(statement, terms[1], asked.tensors, options)
        at_home = step.number + len(parts)
        yield step._replace(first=not joined, last=not joins, at_home=tuple(parts))
        joined = joins
