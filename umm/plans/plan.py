"""From a chain to its steps, by one pass after another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from umm.machines import Machine
from umm.plans.bucket import bucket
from umm.plans.hoist import ahead, hoist
from umm.plans.join import join, join_one_sided
from umm.plans.movement.choice import COLLECTIVES, chosen, in_words, moves, way_of
from umm.plans.movement.multiply import Gathered
from umm.plans.partition import Asked, Bucket, Step, Ways, operands_of, partition
from umm.plans.share import share, whole_where_hidden
from umm.plans.sink import in_turns, sink
from umm.plans.statements.multiplies import as_problem
from umm.program import Chain, Statement
from umm.program.statements.base import Tensors
from umm.program.statements.multiply import is_product


@dataclass(frozen=True, eq=False)
class Planned:
    """A chain's statements in the order in which they are written, and the steps that do them."""

    statements: Sequence[Statement]  # in that order
    ways: Ways  # how each multiply by collectives is done
    steps: tuple[Step | Bucket, ...]  # what is done, one after another


def planned(chain: Chain, ways: Ways, asked: Asked) -> Planned:
    """Plan a chain: its statements in the order in which they are written, and their steps."""
    # Statements are reordered before steps exist; each later pass only moves or merges steps.
    order = in_turns(chain.statements, {number: how.sums.adds for number, how in ways.items()})
    if asked.movement in COLLECTIVES:
        order = ahead(chain.statements, order, ways)
    statements = [chain.statements[number] for number in order]
    ways = {at: ways[number] for at, number in enumerate(order) if number in ways}
    # Reordering may put two multiplies side by side that the chain keeps apart; these must not be joined.
    follows = [at > 0 and order[at] == order[at - 1] + 1 for at in range(len(order))]
    steps = join_one_sided([*partition(statements, ways)], statements, follows, asked)
    # Hoist before share: slots depend on the order in which copies are needed.
    steps = share(hoist([*join(steps, statements, ways)], statements, ways), statements, ways)
    # Last, as the passes before expect each copy and each sum by itself.
    sunk = sink(steps, statements, ways)
    return Planned(statements, ways, tuple(bucket(sunk, statements, ways, asked)))


def moved_by(chain: Chain, ways: Ways, machine: Machine) -> str:
    """Movement of multiplies by collectives, in words: ``X gathered by level``."""
    tensors_of: dict[str, dict[str, None]] = {}
    for number, how in ways.items():
        operands = operands_of(chain.statements[number])
        for x, what in moves(how, machine).items():
            tensors_of.setdefault(what, {})[operands[x].tensor] = None
    return "; ".join(f"{', '.join(names)} {what}" for what, names in tensors_of.items())


def movement_of(
    statement: Statement, tensors: Tensors, machine: Machine, stationary: str, movement: str
) -> str:
    """Movement of one statement in words; empty if not by collectives."""
    if not is_product(statement):
        return ""
    how = chosen(as_problem(statement, tensors), machine, stationary, movement).how
    return (
        in_words(how, machine, {x: operand.tensor for x, operand in operands_of(statement).items()})
        if how
        else ""
    )


def ways_of(
    chain: Chain, machine: Machine, stays: Mapping[str, str], movement: str | Mapping[str, str]
) -> dict[int, Gathered]:
    """Return how each multiply that goes by collectives is done, by the number of its statement."""
    ways, tensors = dict[int, Gathered](), {x.name: x for x in chain.tensors}
    for number, statement in enumerate(chain.statements):
        if is_product(statement):
            problem = as_problem(statement, tensors)
            way = way_of(movement, statement.out)
            how = chosen(problem, machine, stays.get(statement.out, "auto"), way).how
            if how is not None:
                ways[number] = how
    return whole_where_hidden(chain.statements, ways)
