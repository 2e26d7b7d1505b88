"""One gather serves several readers: a copy is kept until its room is needed or its tensor is written."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from umm.plans.hoist import follower_of, hoist
from umm.plans.join import summed_with_next
from umm.plans.movement.gathers import bytes_of
from umm.plans.movement.multiply import Gathered
from umm.plans.partition import Do, Gather, Step, Ways, operands_of, partition
from umm.program import Statement
from umm.program.statements.multiply import is_multiply, joinable

LITTLE = 32 * 2**20  # bytes of a copy that is kept until its tensor changes, rather than gathered again
SLOTS = 2  # gathered copies that a rank keeps at least: one to multiply with while the next one comes
Key = tuple[str, bytes]  # a tensor, and the rows and columns of it that each rank needs; see `Operand.key`


def share(steps: Iterable[Step], statements: Sequence[Statement], ways: Ways) -> Iterator[Step]:
    """Yield the steps with a slot for each gather, where a copy that is there has it served, not gathered."""
    copies, busy = _Copies(), dict[int, list[Key]]()
    for step in steps:
        if isinstance(step, Gather):
            how, names = ways[step.number], operands_of(statements[step.number])
            keys = {x: names[x].key(how.blocks) for x in how.collects}
            # Both operands of a multiply stay until it is done, also those whose gather comes later.
            busy.setdefault(step.number, []).extend(keys.values())
            slot = copies.find(keys[step.matrix])
            if slot is None:
                room = copies.room(
                    [key for x in busy.values() for key in x], bytes_of(how.blocks, step.matrix)
                )
                copies.slot_of[keys[step.matrix]] = room
                yield step._replace(slot=room)
            else:
                yield step._replace(slot=slot, anew=False)
            continue
        if isinstance(step, Do):
            busy.pop(step.number, None)
            # Copies of what has just been written are stale.
            for tensor in statements[step.number].outs:
                copies.forget(tensor)
        yield step


@dataclass
class _Copies:
    """Gathered copies of tensors, until their room is needed or they change."""

    slot_of: dict[Key, int] = field(default_factory=dict)  # slot of each
    used: list[int] = field(default_factory=list)  # the slots, the one used last at the end

    def forget(self, tensor: str) -> None:
        """Drop the copies of a tensor that is written."""
        for key in [x for x in self.slot_of if x[0] == tensor]:
            del self.slot_of[key]

    def find(self, key: Key) -> int | None:
        """Return the slot of a copy with all that is needed, if there is one; it may have more."""
        serving = self._serving(key)
        if serving is None:
            return None
        slot = self.slot_of[serving]
        self.used.remove(slot)
        self.used.append(slot)
        return slot

    def room(self, busy: Iterable[Key], nbytes: int) -> int:
        """Return the slot for a new copy: one that is free, or a new one, or that used longest ago."""
        # busy: copies still needed, whose slots are not to be had. nbytes: bytes of the new one at the rank
        # that needs most; for few of them no other copy goes.
        # A small copy takes a slot of its own rather than evict one that may serve again.
        needed = self.slot_of if nbytes <= LITTLE else {self._serving(key) for key in busy}
        kept = {self.slot_of[key] for key in needed if key is not None}
        slot = next((x for x in self.used if x not in kept), None) if len(self.used) >= SLOTS else None
        if slot is None:
            slot = len(self.used)
        else:
            self.used.remove(slot)
            for key in [key for key, other in self.slot_of.items() if other == slot]:
                del self.slot_of[key]
        self.used.append(slot)
        return slot

    def _serving(self, key: Key) -> Key | None:
        """Return the key of a copy that has all that is needed of a tensor, if any does."""
        if key in self.slot_of:
            return key
        return next((x for x in self.slot_of if x[0] == key[0] and _has(x[1], key[1])), None)


def _has(copy: bytes, needed: bytes) -> bool:
    """Whether each rank that lacks something has it in copies; both as :meth:`Operand.key` has them."""
    ranks = len(needed) // _KEY
    # The key is the rectangles followed by one byte a rank, see `gathers._needed`; here it is taken apart.
    rects_held, rects = (np.frombuffer(x[:-ranks], dtype=np.int64).reshape(-1, 4) for x in (copy, needed))
    copied, lacks = (np.frombuffer(x[-ranks:], dtype=np.bool_) for x in (copy, needed))
    inside = (rects_held[:, ::2] <= rects[:, ::2]) & (rects[:, 1::2] <= rects_held[:, 1::2])
    return bool((~lacks | (copied & inside.all(axis=1))).all())


_KEY = 4 * 8 + 1
"""Bytes of a rank in what copies are known by: four numbers, and whether it lacks any of these elements."""


def gathers_anew(statements: Sequence[Statement], ways: Ways) -> dict[int, set[str]]:
    """Return which of A and B each multiply by collectives gathers, where no copy of them serves."""
    anew = {number: set[str]() for number in ways}
    # The same passes as in `planned`, without joins, which do not change what is gathered.
    for step in share(hoist([*partition(statements, ways)], statements, ways), statements, ways):
        if isinstance(step, Gather) and step.anew:
            anew[step.number].add(step.matrix)
    return anew


def paid(statements: Sequence[Statement], number: int) -> frozenset[str]:
    """Matrices of a multiply whose collectives it pays for, whatever the layouts are.

    A copy that an earlier multiply gathered may be there still, and the next one may sum this one's product.
    """
    statement, matrices = statements[number], set("ABC")
    if not is_multiply(statement):
        return frozenset(matrices)
    if number + 1 < len(statements) and joinable(statement, statements[number + 1]):
        matrices.remove("C")
    for x, name in (("A", statement.a), ("B", statement.b)):
        for earlier in reversed(statements[:number]):
            if name in earlier.outs:
                break
            if is_multiply(earlier) and name in (earlier.a, earlier.b):
                matrices.discard(x)
    # Aᵀ·A and the like gather one tensor once.
    return frozenset(matrices - {"B"} if statement.a == statement.b else matrices)


def fresh(statements: Sequence[Statement], number: int) -> frozenset[str]:
    """Return which of A and B of a multiply have been written after all multiplies before it, or by the last.

    No earlier multiply gathers such a matrix, nor gathers it ahead; see :func:`whole_where_hidden`.
    """
    statement, matrices = statements[number], set[str]()
    if not is_multiply(statement):
        return frozenset()
    for x, name in (("A", statement.a), ("B", statement.b)):
        for earlier in reversed(statements[:number]):
            if name in earlier.outs:
                matrices.add(x)
            if name in earlier.outs or is_multiply(earlier):
                break
    return frozenset(matrices)


def whole_where_hidden(statements: Sequence[Statement], ways: Ways) -> dict[int, Gathered]:
    """Return the ways with those multiplies in one piece that sum nothing and whose operands are there."""
    # Chunks hide what comes while they are multiplied. What an earlier multiply gathered, or gathers ahead
    # while it multiplies, is hidden already, and smaller multiplies only take longer.
    if all(how.chunks == 1 for how in ways.values()):
        return dict(ways)
    anew = gathers_anew(statements, ways)
    ahead = {follower_of(statements, ways, number) for number in ways}

    def hides(number: int, how: Gathered) -> bool:
        # The sum of one chunk hides behind the next; joined multiplies sum only after the last of them.
        if how.sums.groups:
            return not summed_with_next(statements, ways, number)
        # A gather that the multiply before hides gains nothing from chunks.
        return bool(anew[number]) and number not in ahead

    return {
        number: how if how.chunks == 1 or hides(number, how) else replace(how, chunks=1, turns={})
        for number, how in ways.items()
    }
