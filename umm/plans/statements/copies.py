"""Copies of a chain: redistributions, each by itself."""

from collections.abc import Iterable

from umm.plans.collectives.hierarchical import WAY as BY_LEVEL
from umm.plans.collectives.library import BY_LIBRARY
from umm.plans.movement.choice import COLLECTIVES, LIBRARY
from umm.plans.redistribution import groups
from umm.plans.redistribution.fastest import able, move
from umm.plans.redistribution.pieces import pieces_of
from umm.plans.redistribution.ways import redistribute
from umm.plans.statements.lowering import Context, write
from umm.program import Copy, Statement
from umm.schedules.writer.builder import Builder


@write.register
def _(statement: Copy, build: Builder, context: Context) -> None:
    """Write a copy."""
    # By the machine's library, or by level between nodes as multiplies gather, where these are asked for and
    # can do it; else by the fastest way. By level all would exchange what nodes have copies of.
    movement = context.asked.movement
    x, out = build.layout(statement.x), build.layout(statement.out)
    dtype = build.tensors[build.number(statement.x)].dtype
    way = BY_LIBRARY.name if movement == LIBRARY else BY_LEVEL.name
    levels = movement in COLLECTIVES and x.replicas == 1 and not build.machine.fabric.tiers
    if not ((movement == LIBRARY or levels) and way in able(x, out, build.machine, dtype)):
        way = move(x, out, build.machine, dtype).way
    redistribute(build, statement.x, statement.out, way)


def write_together(build: Builder, copies: Iterable[Statement]) -> None:
    """Write copies as one gather by the machine's library."""
    pieces = [piece for x in copies for piece in pieces_of(build, x.reads[0], x.out)]
    groups.collective(build, pieces, BY_LIBRARY)
