"""Digest that layouts of a chain share if their schedules take the same time."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np

from umm.layouts.layout import Layout
from umm.plans.join import summed_with_next
from umm.plans.movement.blocks import held
from umm.plans.movement.choice import AUTO, TWO_LEVEL, of_movement, way_of
from umm.plans.movement.gathers import bytes_of, sharers
from umm.plans.partition import Ways, operands_of
from umm.plans.share import gathers_anew
from umm.plans.sink import in_turns
from umm.program import Chain, Statement


def fingerprint(
    chain: Chain, ways: Ways, stays: Mapping[str, str], movement: str | Mapping[str, str] = AUTO
) -> bytes:
    """Digest that layouts of a chain share if their schedules take the same time.

    A tensor that collectives move whole, and that is only read or written only once, may be cut along rows,
    columns or both: the same ranks exchange as many bytes in the same order, and nothing waits for a part of
    it. So of such a tensor the sizes of its tiles count, and of all others the layout.
    """
    # Digest what decides the schedule, not the layouts' texts: a search simulates one layout of each class.
    order = in_turns(chain.statements, {number: how.sums.adds for number, how in ways.items()})
    statements = [chain.statements[number] for number in order]
    hows = {at: ways[number] for at, number in enumerate(order) if number in ways}
    moved_whole, copies = _moved_whole(statements, hows), dict[tuple[str, bytes], int]()
    anew = gathers_anew(statements, hows)
    parts: list[object] = [order, sorted(stays.items())]
    alone = (x.out for i, x in enumerate(chain.statements) if i not in ways)
    # Of one-sided multiplies the depth counts too, as two-level ones stage tiles.
    flat = [of_movement(way_of(movement, out)) for out in alone]
    parts += [(way["movement"] == TWO_LEVEL, way.get("prefetch")) for way in flat]
    for tensor in chain.tensors:
        parts += [tensor.layout.elements_of_rank.tobytes()]
        parts += [] if tensor.name in moved_whole else _key(tensor.layout)
    for number, how in hows.items():
        names, blocks = operands_of(statements[number]), how.blocks
        joins = number > 0 and summed_with_next(statements, hows, number - 1)
        parts += [number, joins, blocks.stationary, how.chunks, sorted(anew[number])]
        parts += [how.along, sorted(how.turns.items())] if how.chunks > 1 else []
        parts += [how.library, *(x.tobytes() for x in blocks.sizes)]
        parts += [blocks.of(x).tobytes() for x in "ABC" if names[x].tensor not in moved_whole]
        for x in how.collects:
            tiles, need = held(blocks.problem.layout(x)), blocks.of(x)
            assert tiles is not None
            # Keys contain rectangles, which differ between row cuts and column cuts; only which copies are
            # equal counts.
            parts += [x, copies.setdefault(names[x].key(blocks), len(copies)), bytes_of(blocks, x)]
            for ranks, owners in sharers(blocks.needed(x)):
                rect = need[ranks[0]]
                low, high = (
                    np.maximum(tiles[owners, ::2], rect[::2]),
                    np.minimum(tiles[owners, 1::2], rect[1::2]),
                )
                parts += [ranks, owners, (high - low).prod(axis=1).tobytes()]
        parts += [how.sums.in_place]
        for group in how.sums.groups:
            # What is cut again, for its copies, is cut along its rows if they divide.
            sides = group.own[:, 1::2] - group.own[:, ::2]
            cut = how.sums.in_place or group.copies > 1
            parts += [group.ranks, group.copies, (sides if cut else sides.prod(axis=1)).tobytes()]
            parts += [group.number.tobytes()]
    return blake2b(repr(parts).encode()).digest()


def _key(layout: Layout) -> list[object]:
    """Edges, owners and replicas of a layout."""
    edges = (layout.row_edges, layout.col_edges, layout.owners, layout.replica_of_rank)
    return [x.tobytes() for x in edges]


def _moved_whole(statements: Sequence[Statement], ways: Ways) -> set[str]:
    """Return the tensors of which no part is waited for: see :func:`fingerprint`."""
    tensors = {name for number in ways for name in (*statements[number].reads, *statements[number].outs)}
    written = set[str]()
    for number, statement in enumerate(statements):
        names = {*statement.reads, *statement.outs}
        if number not in ways or ways[number].chunks > 1:
            # One-sided statements and chunks wait for parts, so how their tensors are cut does matter.
            tensors -= names
            continue
        again = statement.out in written and not summed_with_next(statements, ways, number - 1)
        if again or (statement.out in statement.reads and statement.out not in written):
            tensors.discard(statement.out)
        written.add(statement.out)
    read = {name for x in statements for name in x.reads if name != x.out}
    return tensors - (written & read)
