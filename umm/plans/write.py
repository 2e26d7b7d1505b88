"""Writes the steps of multiplies by collectives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from umm.plans.movement.copies import at_ranks, gather
from umm.plans.movement.multiply import Products, multiply_blocks
from umm.plans.movement.sums import Part, add_up_together
from umm.plans.partition import Bucket, Do, Gather, Ways, operands_of
from umm.program import Multiply, Statement
from umm.program.statements.multiply import is_multiply
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder


@dataclass
class Writer:
    """Copies and products in the memory of ranks, from one step to the next."""

    build: Builder  # where the actions go
    statements: Sequence[Statement]  # in the order in which they are written
    ways: Ways  # how each multiply by collectives is done
    _rooms: dict[int, Mapping[int, Slice]] = field(default_factory=dict)  # by slot
    _copies: dict[tuple[int, str], Mapping[int, Slice]] = field(default_factory=dict)
    _products: Products = field(default_factory=lambda: Products({}))
    _unsummed: dict[int, Products] = field(default_factory=dict)  # for buckets, by number

    def gather(self, step: Gather) -> None:
        """Write a gather; where a copy serves, nothing."""
        how, operand = self.ways[step.number], operands_of(self.statements[step.number])[step.matrix]
        if step.anew:
            self._rooms[step.slot] = gather(self.build, how, operand, step.slot)
        self._copies[step.number, step.matrix] = self._rooms[step.slot]

    def start(self, number: int, again: bool) -> None:
        """Scale C by β, or zero it where a rank adds nothing, before products are added.

        Args:
            again: Whether an earlier statement has written to what it writes.
        """
        statement, how = self._multiply(number), self.ways[number]
        # Fresh tensors are zero, so the first write needs no start.
        if not how.sums.groups or not (again or statement.beta):
            return
        for rank, tile, replica in self.build.layout(statement.out).filled():
            target = self.build.tile(statement.out, *tile, replica)
            # β·C counts once: replica 0 keeps it, and the other replicas begin with zero.
            if how.sums.in_place and (replica or not statement.beta):
                if statement.beta or not how.blocks.works[rank]:
                    self.build.map("zero", target)
            elif statement.beta not in (0.0, 1.0):
                self.build.map("scale", target, target, factor=statement.beta)

    def multiply(self, step: Do) -> None:
        """Write the multiplies of all ranks, and their sums unless the next multiply adds to them."""
        statement, how = self._multiply(step.number), self.ways[step.number]
        names = operands_of(statement)
        operands = {
            x: at_ranks(self.build, how.blocks, names[x], self._copies.pop((step.number, x), {}))
            for x in "AB"
        }
        multiply_blocks(
            self.build, how, names, operands, self._products,
            alpha=statement.alpha, beta=statement.beta, first=step.first, last=step.last and step.sums,
        )  # fmt: skip
        if not step.sums:
            self._unsummed[step.number] = replace(self._products)

    def add_up(self, step: Bucket) -> None:
        """Write the sums of several multiplies, each group's as one collective."""
        products = {x: self._unsummed.pop(x) for x in step.numbers}
        owned = {x: dict(enumerate(self.build.owned(self.statements[x].out))) for x in step.numbers}
        for place in range(len(self.ways[step.numbers[0]].sums.groups)):
            groups = ((x, self.ways[x].sums.groups[place]) for x in step.numbers)
            parts = [Part(y, products[x].held, owned[x], products[x].adds) for x, y in groups]
            add_up_together(self.build, parts)

    def _multiply(self, number: int) -> Multiply:
        statement = self.statements[number]
        assert is_multiply(statement)
        return statement
