"""Sums over replicas that hold partial sums: by the collective that they are, done as that is done alone."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.collectives import library
from umm.plans.collectives.collective import fastest_of, known, ways
from umm.plans.collectives.way import Exchange, Shares
from umm.plans.movement.blocks import held, size_of
from umm.plans.movement.choice import LIBRARY
from umm.plans.statements.lowering import Context, write
from umm.plans.statements.pieces import clear, sum_in_place
from umm.program import Chain, Sum
from umm.program.tensors import Tensor
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

DONE = {"all-reduce": "all-reduced", "reduce-scatter": "reduce-scattered", "reduce": "reduced"}


class Groups(NamedTuple):
    """A sum as collectives of groups of ranks, each of which has the same rows and columns of X."""

    what: str  # all-reduce, reduce-scatter or reduce
    ranks: tuple[tuple[int, ...], ...]  # of each group, ascending


@write.register
def _(statement: Sum, build: Builder, context: Context) -> str:
    """Write a sum as the collective that it is, or tile by tile."""
    x, out, written = build.layout(statement.x), build.layout(statement.out), statement.out in context.written
    groups = collectives_of(x, out) if x.replicas > 1 else None
    if groups is not None:
        given = {rank: build.own(statement.x, rank) for ranks in groups.ranks for rank in ranks}
        return sum_groups(build, groups, x, statement.out, given, context, alone=statement.out == statement.x)
    if statement.out == statement.x:
        sum_in_place(build, statement.x)
        return ""
    for _, tile, replica in out.filled():
        target = build.tile(statement.out, *tile, replica)
        if written:
            build.map("zero", target)
        for source in range(x.replicas):
            for other in x.overlapping_tiles(target.rows, target.cols):
                # Each replica of the sum begins with another one of X, so that not all read the same ranks at
                # once.
                piece = build.tile(statement.x, *other, (source + replica) % x.replicas)
                piece = piece.cut(target.rows, target.cols)
                build.accumulate(piece, target.cut(piece.rows, piece.cols))
    return ""


def sum_groups(
    build: Builder,
    groups: Groups,
    x: Layout,
    out: str,
    given: Mapping[int, Slice],
    context: Context,
    alone: bool = False,
) -> str:
    """Write a sum as the collectives of some groups, in the way that takes least; return it in words.

    Args:
        alone: Whether it is summed in place.
    """
    layout, tensor = build.layout(out), build.tensors[build.number(out)]
    key = (str(x), x.cuts), (str(layout), layout.cuts)
    only = context.asked.movement == LIBRARY
    way, zeroed = _fastest(groups, x, layout, key, tensor.dtype, build.machine, alone, only)
    if out in context.written and not alone:
        clear(build, out)
    # A rank has as many accumulates in flight as a collective alone has.
    before, build.lanes["accumulate"] = build.lanes["accumulate"], build.machine.copy_engines
    try:
        _write_groups(build, groups, way, given, out, zeroed)
    finally:
        build.lanes["accumulate"] = before
    named = build.machine.library.name if way == library.LIBRARY and build.machine.library else way
    return f"{DONE[groups.what]} by {named}"


def collectives_of(x: Layout, out: Layout) -> Groups | None:
    """Return the collectives that a sum of X's replicas is; None where it is none.

    Each rank has one tile of X and of the result: the same, as in an all-reduce; a part of it, all of which
    make it up, as in a reduce-scatter; or one rank all of it, as in a reduce.

    >>> collectives_of(Layout.parse("row@4", (8, 6), 4), Layout.parse("col", (8, 6), 4))
    Groups(what='reduce-scatter', ranks=((0, 1, 2, 3),))
    >>> collectives_of(*(Layout.parse("row@2x2:-r", (8, 6), 4) for _ in range(2)))
    Groups(what='all-reduce', ranks=((0, 2), (1, 3)))
    """
    given, gets = held(x), held(out)
    if given is None or gets is None:
        return None
    members: dict[tuple[int, ...], list[int]] = {}
    for rank, (rect, size) in enumerate(zip(given.tolist(), size_of(given).tolist(), strict=True)):
        if size:
            members.setdefault(tuple(rect), []).append(rank)
    sizes, kinds = size_of(gets), set[str]()
    for rect, ranks in members.items():
        filled = [rank for rank in ranks if sizes[rank]]
        inside = all(
            gets[rank, i] >= rect[i] and gets[rank, i + 1] <= rect[i + 1] for rank in filled for i in (0, 2)
        )
        if inside and all((gets[rank] == rect).all() for rank in ranks):
            kinds.add("all-reduce")
        elif inside and out.replicas == 1 and sizes[ranks].sum() == (rect[1] - rect[0]) * (rect[3] - rect[2]):
            kinds.add("reduce" if len(filled) == 1 else "reduce-scatter")
        else:
            return None
    # All groups have to be one kind of collective, and no rank outside them may own part of the result.
    if len(kinds) != 1 or sizes.sum() != sizes[[rank for ranks in members.values() for rank in ranks]].sum():
        return None
    return Groups(kinds.pop(), tuple(map(tuple, members.values())))


@lru_cache(maxsize=512)
def _fastest(
    groups: Groups, x: Layout, out: Layout, key: object, dtype: str, machine: Machine, alone: bool, only: bool
) -> tuple[str, bool]:
    """Return the way that takes least, of those among which one for a collective alone is looked for.

    Where ranks keep running sums, also whether they are zero at first: else what is given is copied there.

    Args:
        key: Of both layouts: equal ones may number their tiles otherwise, where some are empty.
        alone: Whether it is summed in place.
        only: Whether it is the machine's library, where that can do it.
    """
    names = known(groups.what, machine, x.ranks, groups.ranks)
    names = [library.LIBRARY] if only and library.LIBRARY in names else names
    # Zeroed room lets a rank's own part arrive in any order but costs a pass; which is faster depends on
    # sizes.
    zeroed = (True, False) if groups.what != "all-reduce" else (not alone,)
    choices = [(way, zero) for way in names for zero in (zeroed if ways()[way].relays else zeroed[:1])]
    if len(choices) == 1:
        return choices[0]
    tensors: tuple[Tensor, ...] = (Tensor("X", x, dtype, "both"),)
    if not alone:
        tensors = (Tensor("X", x, dtype, "input"), Tensor("Y", out, dtype, "output"))
    # The candidates are simulated alone, all groups at once, since groups may share links.
    result = tensors[-1].name
    program = Chain(groups.what, tensors, (Sum(result, "X"),), x.ranks)

    def made(way: str, zero: bool) -> Schedule:
        build = Builder(way, program, machine, accumulate_lanes=machine.copy_engines)
        given = {rank: build.own("X", rank) for ranks in groups.ranks for rank in ranks}
        _write_groups(build, groups, way, given, result, zero)
        return build.schedule()

    schedules = {f"{way} {zero}": made(way, zero) for way, zero in choices}
    best = fastest_of(schedules).name
    return choices[[*schedules].index(best)]


def _write_groups(
    build: Builder, groups: Groups, way: str, parts: Mapping[int, Slice], out: str, zeroed: bool
) -> None:
    """Write the collectives of all groups in one way, running sums from zero or from the operands."""
    write, relays = ways()[way].writers[groups.what], ways()[way].relays
    for ranks in groups.ranks:
        given, gets = {rank: parts[rank] for rank in ranks}, {rank: build.own(out, rank) for rank in ranks}
        if groups.what == "all-reduce":
            write(Exchange(build, ranks, given.__getitem__, gets.__getitem__, zeroed=zeroed))
            continue
        # Relays keep running sums, for which what is given is no room.
        kept = {
            rank: build.temporary(rank, out, part.rows, part.cols) for rank, part in given.items() if relays
        }
        for piece in kept.values() if zeroed else ():
            build.map("zero", piece)
        if groups.what == "reduce":
            root = next(rank for rank in ranks if gets[rank].elements)
            room = kept.__getitem__ if kept else None
            write(Exchange(build, ranks, given.__getitem__, gets[root], room, zeroed))
        else:
            cuts = Shares(given, gets), Shares(kept, gets) if kept else None
            write(Exchange(build, ranks, cuts[0], gets.__getitem__, cuts[1], zeroed))
