"""Buckets: gathers of weights, or sums of their gradients, that one collective with one start does."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from umm.plans.collectives.library import BY_LIBRARY, choose
from umm.plans.movement.blocks import SIDES, groups_of, held, size_of
from umm.plans.movement.choice import LIBRARY, has_library
from umm.plans.movement.gathers import bytes_of
from umm.plans.movement.multiply import IN_ORDER
from umm.plans.partition import Asked, Bucket, Do, Gather, Start, Step, Ways, operands_of
from umm.plans.redistribution.fastest import able
from umm.program import Copy, Statement
from umm.program.statements.multiply import is_multiply

GATHER, SCATTER = "all-gather", "reduce-scatter"
Groups = tuple[tuple[int, ...], ...]


class Member(NamedTuple):
    """A copy or a sum that may share a collective."""

    what: str  # all-gather or reduce-scatter
    groups: Groups  # the ranks of each collective
    nbytes: int  # what one of them gathers or scatters


@dataclass
class _Open:
    """A bucket that may still grow."""

    groups: Groups  # the ranks of each collective
    places: list[int] = field(default_factory=list)  # of its members among the steps
    nbytes: int = 0  # of all
    tensors: set[str] = field(default_factory=set)  # what no statement may touch before the bucket is done
    rooms: int = 0  # rooms of products used since its first one


def bucket(
    steps: Iterable[Step], statements: Sequence[Statement], ways: Ways, asked: Asked
) -> Iterator[Step | Bucket]:
    """Yield the steps with copies, or sums of products, joined as far as their start outweighs their bytes.

    A bucket is done where its last member was, and grows while its bytes take less than its start, or while
    one kernel waits for all of it. Larger ones would wait for each other in vain.

    Source: Zhao et al. (2023), PyTorch FSDP, section 3.2.1; Li et al. (2020), PyTorch DDP, section 3.2.3.
    """
    steps = list(steps)
    if asked.movement != LIBRARY or not has_library(asked.machine, asked.ranks):
        yield from steps
        return
    members = [_member(x, statements, ways, asked) for x in steps]
    buckets = _buckets(steps, members, statements, ways, asked)
    bucket_of = {place: each for each in buckets if len(each) > 1 for place in each}
    for place, (step, member) in enumerate(zip(steps, members, strict=True)):
        if place not in bucket_of or member is None:
            yield step
            continue
        sums, each = member.what == SCATTER, bucket_of[place]
        if sums and isinstance(step, Do):
            yield step._replace(sums=False)
        if place == each[-1]:
            yield Bucket(tuple(steps[x].number for x in each), sums)


def _buckets(
    steps: Sequence[Step],
    members: Sequence[Member | None],
    statements: Sequence[Statement],
    ways: Ways,
    asked: Asked,
) -> list[list[int]]:
    """Return the places of each bucket's members."""
    result, growing = list[list[int]](), dict[str, _Open]()
    for place, step in enumerate(steps):
        number, member = step.number, members[place]
        statement, touches = statements[number], _touched(step, statements)
        room = isinstance(step, Do) and step.first and number in ways and not ways[number].sums.in_place
        for what, each in [*growing.items()]:
            each.rooms += room
            # A sum that waited for more than multiplies would keep room that later products need, and cards
            # idle. Its own room is used again some products later.
            late = what == SCATTER and (number not in ways or each.rooms >= IN_ORDER)
            if late or touches & each.tensors:
                del growing[what]
        if member is None:
            continue
        last, joins = growing.get(member.what), False
        if last is not None and last.groups == member.groups:
            # Whether a collective of the bytes so far starts longer than they move.
            choice = choose(asked.machine, member.what, member.groups[0], asked.ranks, last.nbytes)
            joins = choice.seconds < 2.0 * choice.wait_s
            joins = joins or _read_together(statements, steps[last.places[-1]].number, number)
        if last is None or not joins:
            # It takes the place of one that is not worth joining: a gather behind others would be late.
            last = growing[member.what] = _Open(member.groups)
            result.append(last.places)
        last.places.append(place)
        last.nbytes += member.nbytes
        last.tensors |= {*statement.outs} if member.what == SCATTER else {*statement.outs, *statement.reads}
    return result


def _read_together(statements: Sequence[Statement], one: int, other: int) -> bool:
    """Whether one kernel reads the results of two copies, such as an expert's W1 and W3."""
    first, second = (
        next((x for x in range(i + 1, len(statements)) if statements[i].out in statements[x].reads), -1)
        for i in (one, other)
    )
    return first >= 0 and (first == second or statements[second].beside == statements[first].out)


def _touched(step: Step, statements: Sequence[Statement]) -> set[str]:
    """Tensors that a step reads or writes."""
    statement = statements[step.number]
    if isinstance(step, Gather):
        return {operands_of(statement)[step.matrix].tensor}
    return {statement.out} if isinstance(step, Start) else {*statement.reads, *statement.outs}


def _member(step: Step, statements: Sequence[Statement], ways: Ways, asked: Asked) -> Member | None:
    """Return the transfers a step may share with others, if it gathers or sums by the machine's library."""
    statement = statements[step.number]
    if not isinstance(step, Do) or step.at_home:
        return None
    if isinstance(statement, Copy):
        x, out = asked.tensors[statement.x], asked.tensors[statement.out].layout
        rects = held(out)
        if rects is None or x.layout.replicas > 1:
            return None
        if BY_LIBRARY.name not in able(x.layout, out, asked.machine, x.dtype):
            return None
        gathers = [tuple(ranks) for _, ranks in groups_of(rects, size_of(rects) > 0) if len(ranks) > 1]
        return Member(GATHER, tuple(gathers), int(size_of(rects).max() * x.itemsize)) if gathers else None
    how = ways.get(step.number)
    if not is_multiply(statement) or how is None or not step.last or how.chunks > 1 or not how.library:
        return None
    sums = how.sums
    scatters = all(group.copies == 1 and len(group.ranks) > 1 for group in sums.groups)
    if not sums.groups or sums.in_place or not scatters or how.blocks.split in SIDES["C"]:
        return None
    groups = tuple(tuple(group.ranks) for group in sums.groups)
    return Member(SCATTER, groups, bytes_of(how.blocks, "C"))
