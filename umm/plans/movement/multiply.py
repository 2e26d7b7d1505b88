"""A multiply whose operands are gathered and whose products are summed by collectives, whole or in chunks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from umm.arrays import Ints
from umm.interval import Interval
from umm.plans.movement.blocks import SIDES, Blocks, held
from umm.plans.movement.gathers import Operand, sharers
from umm.plans.movement.sums import NO_SUMS, Sums, add_up, sums_to
from umm.schedules.table.buffers import Slice, Slices
from umm.schedules.writer.builder import Builder

IN_ORDER = 4
"""Products that wait to be summed, in room of their own: as much as a layer's gradients.

FSDP keeps these whole until they are summed; with room for less, multiplies would wait for a sum.
"""


@dataclass(frozen=True, eq=False)
class Gathered:
    """How one multiply is done."""

    blocks: Blocks  # what each rank multiplies
    sums: Sums  # how products become C
    # Parts that follow each other: the next comes, or the last is summed, while one is multiplied.
    chunks: int
    along: str  # the dimension that is cut into them: m, n or k
    # For each rank whose part it multiplies in each chunk, its own first; empty where all take the same part
    # at a time.
    turns: Mapping[int, Sequence[int]] = field(default_factory=dict)
    library: bool = False  # whether the machine's library of collectives gathers and sums

    @cached_property
    def collects(self) -> tuple[str, ...]:
        """The operands that are gathered."""
        return tuple(x for x in "AB" if self.blocks.lacks[x].any())

    def spans(self, ranks: Ints, number: int) -> Ints:
        """Range of the cut dimension that ranks multiply in a chunk, shape (ranks, 2)."""
        start, stop = self.blocks.ranges[self.along][ranks].T
        if not self.turns:
            size = np.maximum(stop - start, 0)
            return np.stack([start + size * x // self.chunks for x in (number, number + 1)], axis=1)
        # Turns exist only where exactly one operand is gathered, see `_turns`.
        (matrix,) = self.collects
        tiles = held(self.blocks.problem.layout(matrix))
        assert tiles is not None
        side = 2 * SIDES[matrix].index(self.along)
        parts = tiles[[self.turns[rank][number] for rank in ranks.tolist()], side : side + 2]
        return np.stack((np.maximum(start, parts[:, 0]), np.minimum(stop, parts[:, 1])), axis=1)


def gathered(blocks: Blocks, chunks: int = 1, near: bool = False) -> Gathered | None:
    """Return how a multiply is done by collectives; None if its sums go to others than who multiplies.

    Args:
        near: Whether those who gather from each other are in one node, so that each may begin with another's
            part: a chunk is then what one rank has of it, as in a ring.
    """
    sums = NO_SUMS if blocks.whole else sums_to(blocks.needed("C"))
    if sums is None:
        return None
    # Chunks along n or m split C into parts that can be summed while the next one is multiplied; along k each
    # chunk would touch all of C, and no sum could start early.
    if sums.groups:  # every chunk has a part of what each owner gets, so all add up at once
        rows, cols = blocks.problem.layout("C").grid_shape()
        return Gathered(blocks, sums, chunks, "n" if cols == 1 or rows > 1 else "m")
    along, turns = _turns(blocks) if chunks > 1 and near else ("k", {})
    return Gathered(blocks, sums, max(map(len, turns.values()), default=chunks), along, turns)


def _turns(blocks: Blocks) -> tuple[str, dict[int, list[int]]]:
    """Dimension, and order of owners, in which ranks multiply gathered parts; ("k", {}) if all at a time."""
    # Each begins with its own part and goes on with its neighbour's, so no two get from one at a time.
    # Source: Wang et al. (2023), Overlap communication with dependent computation via decomposition.
    lacking = [x for x in "AB" if blocks.lacks[x].any()]
    if len(lacking) != 1:
        return "k", {}
    (matrix,) = lacking
    tiles, need, turns = held(blocks.problem.layout(matrix)), blocks.of(matrix), dict[int, list[int]]()
    assert tiles is not None
    together = sharers(blocks.needed(matrix))
    rects = tiles[together[0][1]]
    side = int((rects[:, :2] == rects[0, :2]).all())  # 0 where owners have rows of it, 1 for columns
    other = [2 - 2 * side, 3 - 2 * side]
    # In a ring every rank owns one part and needs all of them; anything else falls back to chunks in step.
    for ranks, owners in together:
        all_along = (tiles[owners][:, other] == need[ranks[0]][other]).all()
        if ranks != owners or len(ranks) != len(together[0][0]) or not all_along:
            return "k", {}
        turns |= {rank: [*ranks[place:], *ranks[:place]] for place, rank in enumerate(ranks)}
    if set(turns) != set(blocks.works.nonzero()[0].tolist()):
        return "k", {}
    return SIDES[matrix][side], turns


@dataclass
class Products:
    """Where the products of multiplies that add to one tensor lie until they are summed."""

    held: dict[int, Slice]  # by rank
    number: int = 0  # how many such tensors there were before; their room alternates
    adds: bool = False  # whether C holds something that they are added to


def multiply_blocks(
    build: Builder,
    how: Gathered,
    names: Mapping[str, Operand],
    operands: Mapping[str, Mapping[int, Slice]],
    products: Products,
    *,
    alpha: float,
    beta: float,
    first: bool,
    last: bool,
) -> None:
    """Write the multiplies of all ranks, and their sums.

    Args:
        beta: Factor of what C holds; where products are summed that has been multiplied by it already.
        first: Whether this is the first of several multiplies whose products are summed together.
        last: Whether it is the last of them.
    """
    trans = [x.lower() for x in "AB" if names[x].transposed]
    out, works = names["C"], how.blocks.works.nonzero()[0].tolist()
    split = how.blocks.split
    in_parts = bool(split) and split in SIDES["C"]
    of_rank = {} if in_parts else dict(enumerate(build.owned(out.tensor)))
    unsummed, in_place = not how.sums.groups, how.sums.in_place
    if first:
        # Rotating rooms: a multiply reuses one only after its sum, which is then IN_ORDER multiplies back.
        room = products.number % IN_ORDER
        made = how.blocks.of("C").tolist()
        spans = {rank: (Interval(*made[rank][:2]), Interval(*made[rank][2:])) for rank in works}
        products.held = of_rank if in_place else build.room(out.tensor, spans, ("products", room))
        products.number, products.adds = products.number + (not in_place), bool(beta)
    # With sums β has been applied to C before, see `Writer.start`; only a product made in C itself adds to
    # it.
    start = beta if unsummed else float(products.adds and in_place)
    pieces = list(_pieces(build, how.blocks, names, works, {"C": products.held, **operands}))
    at = np.array([rank for rank, *_ in pieces], dtype=np.int64)
    columns = [Slices.of(x) for x in zip(*(piece[2:] for piece in pieces), strict=True)]
    later = np.array([split == "k" and place > 0 for _, place, *_ in pieces])
    for number in range(how.chunks) if pieces else ():
        # Chunks of k, intervals of k and joined multiplies add to a product that is begun; others begin one.
        again = later | (not first) | (how.along == "k" and number > 0)
        c, a, b = (_cut(how, names[x], at, number, slices) for x, slices in zip("CAB", columns, strict=True))
        build.gemms(c, a, b, beta=np.where(again, 1.0, start), trans=trans, alpha=alpha)
        if last:
            _write_sums(build, how, out.tensor, products, of_rank, number)


def _write_sums(
    build: Builder, how: Gathered, tensor: str, products: Products, of_rank: Mapping[int, Slice], number: int
) -> None:
    """Write the sums of a chunk."""
    # tensor: name of C. products: room of the products. of_rank: C at each rank; empty if C is split, and
    # ranks have several pieces of it.
    for group in how.sums.groups:
        for span in (None,) if of_rank else how.blocks.intervals[group.ranks[0]]:
            room = products.held
            if span is not None:
                rows, cols = (span if how.blocks.split == x else None for x in SIDES["C"])
                room = {rank: build.own(tensor, rank, rows, cols) for rank in group.ranks}
            parts = {rank: room[rank] for rank in group.ranks}
            if how.along != "k" and how.chunks > 1:
                axis = int(how.along == "n")
                parts = {rank: piece.part(number, how.chunks, axis) for rank, piece in parts.items()}
            made, places = next(iter(parts.values())), of_rank or room
            targets = {rank: places[rank].cut(made.rows, made.cols) for rank in group.ranks}
            add_up(build, group, parts, targets, products.adds, how.library)


def _pieces(
    build: Builder,
    blocks: Blocks,
    names: Mapping[str, Operand],
    works: Iterable[int],
    copies: Mapping[str, Mapping[int, Slice]],
) -> Iterator[tuple[int, int, Slice, Slice, Slice]]:
    """Yield rank, place, C, A and B of each multiply: one a rank, or one for each interval of a split one."""
    # blocks: what each rank multiplies. works: which ranks do. copies: those of the three that are not split,
    # at each rank.
    for rank in works:
        for place, span in enumerate(blocks.intervals[rank] if blocks.split else (None,)):
            slices = list[Slice]()
            for x in "CAB":
                if span is None or blocks.split not in SIDES[x]:
                    slices.append(copies[x][rank])
                    continue
                sides = [
                    span if side == blocks.split else Interval(*blocks.ranges[side][rank].tolist())
                    for side in SIDES[x]
                ]
                slices.append(build.own(names[x].tensor, rank, *names[x].stored(*sides)))
            yield rank, place, slices[0], slices[1], slices[2]


def _cut(how: Gathered, operand: Operand, ranks: Ints, number: int, slices: Slices) -> Slices:
    """Slices of C, A or B in a chunk, at some ranks."""
    x = operand.matrix
    if how.chunks == 1 or how.along not in SIDES[x]:
        return slices
    by_rows = (SIDES[x].index(how.along) == 0) != operand.transposed
    spans = slices.spans.copy()
    spans[:, slice(0, 2) if by_rows else slice(2, 4)] = how.spans(ranks, number)
    return slices.cut(spans)
