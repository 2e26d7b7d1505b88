"""A chain as steps: each multiply by collectives gathers its operands, starts its product and multiplies.

The passes beside this file (join, hoist, share, sink, bucket) are functions from steps to steps. A
writer performs the steps as they are and decides nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from umm.machines import Machine
from umm.plans.movement.choice import AUTO, of_movement, way_of
from umm.plans.movement.gathers import Operand
from umm.plans.movement.multiply import Gathered
from umm.program import Statement
from umm.program.statements.base import Tensors
from umm.program.statements.multiply import is_multiply
from umm.schedules.schedule import Schedule

Ways = Mapping[int, Gathered]  # how each multiply by collectives is done, by the number of its statement


class Asked(NamedTuple):
    """How the multiplies of a chain are asked to be done, and where."""

    stays: Mapping[str, str]  # the stationary matrix of each by the name of what it writes; `auto` of others
    movement: str | Mapping[str, str]  # of all, or by the name of what they write
    options: Mapping[str, Any]  # of one-sided ones
    machine: Machine
    tensors: Tensors  # the chain's, laid out

    @property
    def ranks(self) -> int:
        """Ranks of the chain."""
        return next(iter(self.tensors.values())).layout.ranks

    def stationary(self, product: str) -> str:
        """Return the stationary matrix of the multiplies that write a tensor."""
        return self.stays.get(product, AUTO)

    def one_sided(self, product: str) -> dict[str, Any]:
        """Return the options of the one-sided multiplies that write a tensor."""
        return {**self.options, **of_movement(way_of(self.movement, product))}


class Gather(NamedTuple):
    """An operand comes to the ranks that lack it."""

    number: int  # number of the multiply
    matrix: str  # A or B
    slot: int = -1  # room of the copy
    anew: bool = True  # whether it moves; else the copy in that room, gathered before, serves


class Start(NamedTuple):
    """C of a multiply is zeroed or scaled before products are added."""

    number: int


class Do(NamedTuple):
    """A statement is done."""

    number: int
    first: bool = True  # whether it does not add to products that the one before has left unsummed
    last: bool = True  # whether the next one does not add to its products, so that these are summed now
    # One-sided schedules of it and the next ones, where a rank adds up their products before they move; empty
    # where it does not.
    at_home: tuple[Schedule, ...] = ()
    sums: bool = True  # whether its products are summed with it; else a later `Bucket` sums them


class Bucket(NamedTuple):
    """Copies that one collective gathers, or products that one sums."""

    numbers: tuple[int, ...]  # of their statements
    sums: bool  # whether it sums


Step = Gather | Start | Do
Steps = Sequence[Step]


def partition(statements: Sequence[Statement], ways: Ways) -> Iterator[Step]:
    """Yield the steps of a chain, every multiply for itself."""
    for number in range(len(statements)):
        if number in ways:
            # Gathers are steps of their own, so that passes can move them away from their multiply.
            yield from (Gather(number, x) for x in ways[number].collects)
            yield Start(number)
        yield Do(number)


def operands_of(statement: Statement) -> dict[str, Operand]:
    """Return the tensors of a multiply as its matrices."""
    assert is_multiply(statement)
    a, b = (
        Operand(x, name, x.lower() in statement.trans) for x, name in (("A", statement.a), ("B", statement.b))
    )
    return {"A": a, "B": b, "C": Operand("C", statement.out)}
