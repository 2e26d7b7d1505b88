"""The multiplies of a chain by collectives: gathered copies that several use, sums that several share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np

from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.movement.blocks import SIDES, held
from umm.plans.movement.choice import AUTO, TWO_LEVEL, chosen, in_words, moves, of_movement
from umm.plans.movement.gathers import Copies, Operand, bytes_of, sharers
from umm.plans.movement.multiply import Gathered, Products, gather_operands, multiply_blocks
from umm.plans.statements.multiplies import as_problem
from umm.program import Chain, Copy, Map, Multiply, Statement
from umm.program.multiply import Tensors, joinable
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

Gathers = Mapping[str, Mapping[int, Slice]]


@dataclass
class Moved:
    """What multiplies by collectives keep from one to the next while a chain is written.

    Attributes:
        build: Where the actions go.
        statements: Of the chain.
        plans: How each statement is done that is done so, by its number.
    """

    build: Builder
    statements: Sequence[Statement]
    plans: Mapping[int, Gathered]
    copies: Copies = field(default_factory=Copies)
    products: Products = field(default_factory=lambda: Products({}))
    ahead: dict[int, Gathers] = field(default_factory=dict)

    def write(self, number: int, again: bool, beside: Callable[[], None]) -> None:
        """Write a multiply, after the gathers of the next one, which come while this one multiplies.

        Args:
            number: Of the statement.
            again: Whether an earlier statement has written to what it writes.
            beside: Writes what else moves while it multiplies, behind these gathers.
        """
        statement, how = self.statements[number], self.plans[number]
        assert isinstance(statement, Multiply)
        names, operands = operands_of(statement), self._gathers(number, ())
        if not self.joins(number):
            self._start(statement, how, again)
        follower = follower_of(self.statements, self.plans, number)
        if follower is not None:
            busy = [names[x].key(how.blocks) for x in how.collects]
            self.ahead[follower] = self._gathers(follower, busy)
        beside()
        multiply_blocks(
            self.build, how, names, operands, self.products,
            alpha=statement.alpha, beta=statement.beta,
            first=not self.joins(number), last=not self.joins(number + 1),
        )  # fmt: skip

    def takes_along(self, number: int) -> bool:
        """Whether a copy may be written with the multiply after it, behind what that gathers."""
        others = range(number, len(self.statements))
        follows = next((x for x in others if not isinstance(self.statements[x], Copy)), -1)
        if follows not in self.plans or not self.plans[follows].collects:
            return False
        multiplies = [follows, follower_of(self.statements, self.plans, follows)]
        gathered = {
            operands_of(self.statements[x])[side].tensor
            for x in multiplies
            if x is not None
            for side in self.plans[x].collects
        }
        return self.statements[number].out not in gathered

    def _start(self, statement: Multiply, how: Gathered, again: bool) -> None:
        """Set what products are added to: β times what was there, or zero where a rank adds none."""
        if not how.sums.groups or not (again or statement.beta):
            return
        for rank, tile, replica in self.build.layout(statement.out).filled():
            target = self.build.tile(statement.out, *tile, replica)
            if how.sums.in_place and (replica or not statement.beta):
                if statement.beta or not how.blocks.works[rank]:
                    self.build.map("zero", target)
            elif statement.beta not in (0.0, 1.0):
                self.build.map("scale", target, target, factor=statement.beta)

    def joins(self, number: int) -> bool:
        """Whether a multiply adds to the products of the statement before, so that both are summed once."""
        return number > 0 and summed_with_next(self.statements, self.plans, number - 1)

    def forget(self, tensors: Iterable[str]) -> None:
        """Drop the gathered copies of tensors that are written."""
        for tensor in tensors:
            self.copies.forget(tensor)

    def _gathers(self, number: int, busy: Sequence[tuple[str, bytes]]) -> Gathers:
        if number in self.ahead:
            return self.ahead.pop(number)
        statement, how = self.statements[number], self.plans[number]
        assert isinstance(statement, Multiply)
        return gather_operands(self.build, how, operands_of(statement), self.copies, busy)


def gathers_anew(statements: Sequence[Statement], plans: Mapping[int, Gathered]) -> dict[int, set[str]]:
    """Return which of A and B each multiply by collectives gathers, where no copy of them is left.

    The order and the room are those of :class:`Moved`, without writing an action.

    Args:
        statements: Of the chain.
        plans: How each multiply that is done so is done, by the number of its statement.
    """
    copies, found = Copies(), dict[int, set[str]]()

    def gather(number: int, busy: Sequence[tuple[str, bytes]]) -> None:
        if number in found:
            return
        how, names, found[number] = plans[number], operands_of(statements[number]), set()
        kept = [*busy]
        for x in "AB":
            kept += [names[y].key(how.blocks) for y in how.collects]
            key = names[x].key(how.blocks)
            if x in how.collects and copies.find(key) is None:
                copies.held[key] = copies.room(kept, bytes_of(how.blocks, x)), {}
                found[number].add(x)

    for number, statement in enumerate(statements):
        if number in plans:
            how, names = plans[number], operands_of(statement)
            gather(number, ())
            follower = follower_of(statements, plans, number)
            if follower is not None:
                gather(follower, [names[x].key(how.blocks) for x in how.collects])
        for tensor in statement.outs:
            copies.forget(tensor)
    return found


def follower_of(statements: Sequence[Statement], plans: Mapping[int, Gathered], number: int) -> int | None:
    """Return the next multiply by collectives, if what it gathers is not written between."""
    written = {statements[number].out}
    for other in range(number + 1, len(statements)):
        statement = statements[other]
        if other in plans and isinstance(statement, Multiply):
            names = operands_of(statement)
            gathers = {names[x].tensor for x in plans[other].collects}
            return other if gathers and not gathers & written else None
        written.update(statement.outs)
    return None


def in_turns(statements: Sequence[Statement], summed: Mapping[int, bool]) -> list[int]:
    """Return the numbers of statements in the order in which they are written.

    A product that is not summed, and that nothing waits for, comes after the next ones that are summed by a
    collective: their sums go on beside it. So gradients by weights follow that by a layer's input, where
    tensors are cut as Megatron cuts them, but not where the weights' gradients are summed.

    Args:
        statements: Of the chain.
        summed: For the number of each multiply by collectives whether its product is summed.

    Source: Shoeybi et al. (2019) and Megatron-LM, which overlaps that sum with the gradients by weights.
    """
    order = list(range(len(statements)))
    for number in (x for x in range(len(statements)) if summed.get(x)):
        waiting = [x for x in _waiting(statements, order, number) if not summed.get(x, True)]
        order = [x for x in order if x not in waiting]
        at = order.index(number) + 1
        order[at:at] = waiting
    return order


def ahead(statements: Sequence[Statement], order: Sequence[int], plans: Mapping[int, Gathered]) -> list[int]:
    """Return an order in which each copy comes as soon as nothing needs what it overwrites: a prefetch.

    Collectives that run one after another do so in the order in which they are written. FSDP issues the
    gather of the next layer's weights before it sums this one's gradients. Multiplies whose products are
    summed together stay together. Before a multiply that gathers what maps have just written, a copy comes
    directly, so that it can follow that gather.

    Args:
        statements: Of the chain.
        order: Their numbers, in an order that is right.
        plans: How each multiply by collectives is done, by the number of its statement.

    Source: Zhao et al. (2023), PyTorch FSDP, section 3.3.2.
    """
    found = list[int]()
    for number in order:
        at, one = len(found), statements[number]
        if isinstance(one, Copy):
            while at and _may_swap(statements[found[at - 1]], one):
                at -= 1
            while at and at < len(found) and summed_with_next(statements, plans, found[at - 1]):
                at += 1
            at = _behind_maps(statements, found, at, plans)
        found.insert(at, number)
    return found


def _behind_maps(
    statements: Sequence[Statement], order: Sequence[int], at: int, plans: Mapping[int, Gathered]
) -> int:
    """Return the place of a copy behind the maps it is before, if a multiply follows that gathers."""
    follows = next((x for x in range(at, len(order)) if not isinstance(statements[order[x]], Map | Copy)), -1)
    gathers = follows > at and order[follows] in plans and plans[order[follows]].collects
    return follows if gathers else at


def _may_swap(before: Statement, copy: Copy) -> bool:
    """Whether a copy may come before a statement; copies keep their order."""
    touched = {*before.reads, *before.outs}
    return not isinstance(before, Copy) and copy.out not in touched and copy.x not in before.outs


def may_change_turns(statements: Sequence[Statement]) -> tuple[set[int], set[int]]:
    """Return which statements may come later than they are written in a chain, and which before these."""
    later, earlier = set[int](), set[int]()
    for number, statement in enumerate(statements):
        waiting = _waiting(statements, range(len(statements)), number)
        if isinstance(statement, Multiply) and waiting:
            later.update(waiting)
            earlier.add(number)
    return later, earlier


def _waiting(statements: Sequence[Statement], order: Sequence[int], number: int) -> list[int]:
    """Return the multiplies before one, with only others between, that may as well come after it."""
    found, between = list[int](), [statements[number]]
    for other in reversed(order[: order.index(number)]):
        one = statements[other]
        if not isinstance(one, Multiply):
            break
        read = any(one.out in x.reads for x in statements if x is not one)
        written = {name for x in between for name in x.outs}
        if not read and not written & {one.out, *one.reads}:
            found.insert(0, other)
        between.append(one)
    return found


def moved_by(chain: Chain, plans: Mapping[int, Gathered], machine: Machine) -> str:
    """Return how multiplies by collectives move what they need and make: ``X gathered by level``."""
    said: dict[str, dict[str, None]] = {}
    for number, how in plans.items():
        operands = operands_of(chain.statements[number])
        for x, what in moves(how, machine).items():
            said.setdefault(what, {})[operands[x].tensor] = None
    return "; ".join(f"{', '.join(names)} {what}" for what, names in said.items())


def movement_of(
    statement: Statement, tensors: Tensors, machine: Machine, stationary: str, movement: str
) -> str:
    """Return how one statement of a chain moves what it needs and makes; nothing if not by collectives."""
    if not isinstance(statement, Multiply) or statement.is_batch:
        return ""
    how = chosen(as_problem(statement, tensors), machine, stationary, movement).how
    return in_words(how, machine, {x: of.tensor for x, of in operands_of(statement).items()}) if how else ""


def operands_of(statement: Statement) -> dict[str, Operand]:
    """Return the tensors of a multiply as its matrices."""
    assert isinstance(statement, Multiply)
    a, b = (
        Operand(x, name, x.lower() in statement.trans) for x, name in (("A", statement.a), ("B", statement.b))
    )
    return {"A": a, "B": b, "C": Operand("C", statement.out)}


def paid(statements: Sequence[Statement], number: int) -> frozenset[str]:
    """Return which matrices of a multiply cost it what their collectives take, whatever the layouts are.

    A copy that an earlier multiply gathered may be there still, and the next one may sum this one's product.
    """
    statement, found = statements[number], set("ABC")
    if not isinstance(statement, Multiply):
        return frozenset(found)
    if number + 1 < len(statements) and joinable(statement, statements[number + 1]):
        found.remove("C")
    for x, name in (("A", statement.a), ("B", statement.b)):
        for earlier in reversed(statements[:number]):
            if name in earlier.outs:
                break
            if isinstance(earlier, Multiply) and name in (earlier.a, earlier.b):
                found.discard(x)
    return frozenset(found - {"B"} if statement.a == statement.b else found)


def fresh(statements: Sequence[Statement], number: int) -> frozenset[str]:
    """Return which of A and B of a multiply have been written after all multiplies before it, or by the last.

    No earlier multiply gathers such a matrix, nor gathers it ahead; see :func:`_whole_where_nothing_hides`.
    """
    statement, found = statements[number], set[str]()
    if not isinstance(statement, Multiply):
        return frozenset()
    for x, name in (("A", statement.a), ("B", statement.b)):
        for earlier in reversed(statements[:number]):
            if name in earlier.outs:
                found.add(x)
            if name in earlier.outs or isinstance(earlier, Multiply):
                break
    return frozenset(found)


def alike(one: Gathered, other: Gathered) -> bool:
    """Whether the products of two multiplies lie alike, and are not whole."""
    same = (one.blocks.of("C") == other.blocks.of("C")).all() and (
        one.blocks.works == other.blocks.works
    ).all()
    split = [x.blocks.split if x.blocks.split in SIDES["C"] else "" for x in (one, other)]
    in_place = one.sums.in_place == other.sums.in_place and split[0] == split[1]
    return bool(one.sums.groups) and bool(same) and in_place


def way_of(movement: str | Mapping[str, str], product: str) -> str:
    """Return the movement of the multiplies that write a tensor, where it may be said of each or of all.

    >>> way_of("chunks", "H"), way_of({"H": "gathered"}, "H"), way_of({"H": "gathered"}, "Y")
    ('chunks', 'gathered', 'auto')
    """
    return movement if isinstance(movement, str) else movement.get(product, AUTO)


def in_pairs(of: Mapping[str, str]) -> str:
    """Return what is chosen for each product as a text: ``H=A,Y=B``."""
    return ",".join(f"{name}={value}" for name, value in of.items())


def plans_of(
    chain: Chain, machine: Machine, stays: Mapping[str, str], movement: str | Mapping[str, str]
) -> dict[int, Gathered]:
    """Return how each multiply that goes by collectives is done, by the number of its statement."""
    found, tensors = {}, {x.name: x for x in chain.tensors}
    for number, statement in enumerate(chain.statements):
        if isinstance(statement, Multiply) and not statement.is_batch:
            problem = as_problem(statement, tensors)
            way = way_of(movement, statement.out)
            how = chosen(problem, machine, stays.get(statement.out, "auto"), way).how
            if how is not None:
                found[number] = how
    return _whole_where_nothing_hides(chain.statements, found)


def _whole_where_nothing_hides(
    statements: Sequence[Statement], plans: Mapping[int, Gathered]
) -> dict[int, Gathered]:
    """Return the plans with those multiplies in one piece that sum nothing and whose operands are there.

    Chunks hide what comes while they are multiplied. What an earlier multiply gathered, or gathers ahead
    while it multiplies, is hidden already, and smaller multiplies only take longer.
    """
    if all(how.chunks == 1 for how in plans.values()):
        return dict(plans)
    anew = gathers_anew(statements, plans)
    ahead = {follower_of(statements, plans, number) for number in plans}

    def hides(number: int, how: Gathered) -> bool:
        if how.sums.groups:
            return not summed_with_next(statements, plans, number)
        return bool(anew[number]) and number not in ahead

    return {
        number: how if how.chunks == 1 or hides(number, how) else replace(how, chunks=1, turns={})
        for number, how in plans.items()
    }


def summed_with_next(statements: Sequence[Statement], plans: Mapping[int, Gathered], number: int) -> bool:
    """Whether the next multiply adds to the products of this one, so that both are summed once."""
    return number in plans and number + 1 in plans and joinable(*statements[number : number + 2]) and (
        alike(plans[number], plans[number + 1])
    )  # fmt: skip


def fingerprint(
    chain: Chain,
    plans: Mapping[int, Gathered],
    stays: Mapping[str, str],
    movement: str | Mapping[str, str] = AUTO,
) -> bytes:
    """Return what two layouts of a chain have in common if their schedules take the same time.

    A tensor that collectives move whole, and that is only read or written only once, may be cut along rows,
    columns or both: the same ranks exchange as many bytes in the same order, and nothing waits for a part of
    it. So of such a tensor the sizes of its tiles count, and of all others the layout.

    Args:
        chain: Laid out.
        plans: How each multiply by collectives is done, by the number of its statement.
        stays: The stationary matrix of each multiply by the name of what it writes.
        movement: Of all multiplies, or by the name of what they write.
    """
    order = in_turns(chain.statements, {number: how.sums.adds for number, how in plans.items()})
    statements = [chain.statements[number] for number in order]
    hows = {at: plans[number] for at, number in enumerate(order) if number in plans}
    whole, copies = _moved_whole(statements, hows), dict[tuple[str, bytes], int]()
    anew = gathers_anew(statements, hows)
    said: list[object] = [order, sorted(stays.items())]
    alone = (x.out for i, x in enumerate(chain.statements) if i not in plans)
    ways = [of_movement(way_of(movement, out)) for out in alone]
    said += [(way["movement"] == TWO_LEVEL, way.get("prefetch")) for way in ways]
    for tensor in chain.tensors:
        said += [tensor.layout.elements_of_rank.tobytes()]
        said += [] if tensor.name in whole else _key(tensor.layout)
    for number, how in hows.items():
        names, blocks = operands_of(statements[number]), how.blocks
        joins = number > 0 and summed_with_next(statements, hows, number - 1)
        said += [number, joins, blocks.stationary, how.chunks, sorted(anew[number])]
        said += [how.along, sorted(how.turns.items())] if how.chunks > 1 else []
        said += [how.library, *(x.tobytes() for x in blocks.sizes)]
        said += [blocks.of(x).tobytes() for x in "ABC" if names[x].tensor not in whole]
        for x in how.collects:
            own, need = held(blocks.problem.layout(x)), blocks.of(x)
            assert own is not None
            said += [x, copies.setdefault(names[x].key(blocks), len(copies)), bytes_of(blocks, x)]
            for ranks, owners in sharers(blocks, x):
                rect = need[ranks[0]]
                low, high = np.maximum(own[owners, ::2], rect[::2]), np.minimum(own[owners, 1::2], rect[1::2])
                said += [ranks, owners, (high - low).prod(axis=1).tobytes()]
        said += [how.sums.in_place]
        for group in how.sums.groups:
            # What is cut again, for its copies, is cut along its rows if they divide.
            sides = group.own[:, 1::2] - group.own[:, ::2]
            cut = how.sums.in_place or group.copies > 1
            said += [group.ranks, group.copies, (sides if cut else sides.prod(axis=1)).tobytes()]
            said += [group.number.tobytes()]
    return blake2b(repr(said).encode()).digest()


def _key(layout: Layout) -> list[object]:
    """Return what makes a layout of one shape the one it is."""
    edges = (layout.row_edges, layout.col_edges, layout.owners, layout.replica_of_rank)
    return [x.tobytes() for x in edges]


def _moved_whole(statements: Sequence[Statement], plans: Mapping[int, Gathered]) -> set[str]:
    """Return the tensors of which no part is waited for: see :func:`fingerprint`."""
    found = {name for number in plans for name in (*statements[number].reads, *statements[number].outs)}
    written = set[str]()
    for number, statement in enumerate(statements):
        names = {*statement.reads, *statement.outs}
        if number not in plans or plans[number].chunks > 1:
            found -= names
            continue
        again = statement.out in written and not summed_with_next(statements, plans, number - 1)
        if again or (isinstance(statement, Multiply) and statement.beta and statement.out not in written):
            found.discard(statement.out)
        written.add(statement.out)
    read = {name for x in statements for name in x.reads if name != x.out}
    return found - (written & read)
