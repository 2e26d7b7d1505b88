"""The multiplies of a chain: one by the universal algorithm, a batch by the owners of its members."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from umm.arrays import Floats, Ints
from umm.cost import multiply_seconds, pace_of
from umm.dtypes import product_dtype
from umm.interval import Interval
from umm.layouts.edges import Tile
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.movement.choice import FLAT, TWO_LEVEL
from umm.plans.multiply.options import COMPLETE, COMPLETING, Options
from umm.plans.multiply.policies import lowered
from umm.plans.statements.lowering import Context, write
from umm.plans.statements.pieces import clear, gathered, sum_in_place
from umm.program import Multiply, Statement
from umm.program.problem import Problem
from umm.program.statements.base import Tensors
from umm.program.statements.multiply import Members, joinable
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import ACCUMULATE, BARRIER, GEMM, GET, REDUCE, is_one_of
from umm.schedules.table.table import Data
from umm.schedules.writer.builder import Builder

Region = tuple[Interval, Interval]
Place = tuple[int, int, int, int, int]  # a rank, and the rows and columns of its tile, each half-open
COLUMNS = ("kind", "rank", "lane", "src", "dst", "nbytes", "seconds")
"""What a schedule has of each action beside its waits and details."""
MAX_CACHED_RANKS = 16
"""Ranks up to which one-sided multiplies are kept: a search meets each of them in many assignments."""


class Product(NamedTuple):
    """One gemm of a batch."""

    rank: int  # who multiplies
    tile: Tile  # the tile of the output that it writes to; replica the same
    replica: int  # see tile
    out: Region  # what it writes: rows and columns
    factors: tuple[Region, Region]  # what it reads of a and of b
    members: int  # how many members it multiplies
    groups: tuple[int, int, int]  # how many of them share one of out, of a and of b
    beta: float  # factor of what out holds


def write_batch(build: Builder, statement: Multiply) -> None:
    """Write a batch: the owner of each tile of the output multiplies the members in it, and gets the rest.

    Where replicas of the output have rows of both factors, each multiplies its own, and they add up.
    """
    names, tensors = (statement.a, statement.b), {tensor.name: tensor for tensor in build.tensors}
    by_rank = own_rows(statement, tensors)
    idle = {rank for rank, rows in (by_rank or {}).items() if not rows}
    clear(build, statement.out, idle)
    for x in products(statement, tensors):
        a, b = (
            gathered(build, name, x.rank, *region, ("batch", operand, name))
            for operand, (name, region) in enumerate(zip(names, x.factors, strict=True))
        )
        build.gemm(
            build.tile(statement.out, *x.tile, x.replica).cut(*x.out), a, b,
            beta=x.beta, alpha=statement.alpha, trans=statement.trans, batch=x.members,
            batch_axes=statement.batch_axes, groups=x.groups,
        )  # fmt: skip
    if by_rank is not None:
        sum_in_place(build, statement.out)


def own_rows(statement: Multiply, tensors: Tensors) -> dict[int, list[Interval]] | None:
    """Return the rows of both factors at each rank of a batch AᵀB whose partial products need no gets.

    Gradients by weights are such where tokens are cut over ranks and weights are not. None if some rank lacks
    columns of its tile of the output, or rows of one factor.
    """
    out, a, b = (tensors[x].layout for x in (statement.out, statement.a, statement.b))
    plain = statement.sequences == 1 and statement.groups == (1, 1, 1) and statement.batch_axes == (1, 1, 1)
    if (
        not plain
        or statement.trans != ("a",)
        or statement.beta
        or out.replicas == 1
        or a.replicas * b.replicas > 1
    ):
        return None
    columns = dict[int, Interval]()
    for rank, tile, _ in out.filled():
        rows, cols = out.tile_bounds(tile)
        if (
            rank in columns
            or rows.size < out.shape[0]
            or any(x * statement.batch % out.shape[1] for x in cols)
        ):
            return None
        columns[rank] = cols
    left, right = (_rows_beside(x, columns, out.shape[1]) for x in (a, b))
    return left if left == right else None


def _rows_beside(
    factor: Layout, columns: Mapping[int, Interval], wide: int
) -> dict[int, list[Interval]] | None:
    """Return the rows of a factor that each rank has; None of a rank without the columns of its output."""
    # columns: of the output, by rank; edges lie at the same share of all columns of the factor. wide: columns
    # of the output in all.
    result: dict[int, list[Interval]] = {x: [] for x in columns}
    for rank, tile, _ in factor.filled():
        rows, cols = factor.tile_bounds(tile)
        ends = zip(columns.get(rank, ()), cols, strict=False)
        if rank not in columns or any(x * factor.shape[1] != y * wide for x, y in ends):
            return None
        result[rank].append(rows)
    return result


def products(statement: Multiply, tensors: Tensors) -> Iterator[Product]:
    """Yield the gemms of a batch, by the owners of its output.

    Members that lie in a tile, or the same lines of each, are one gemm; of a member that is cut where it
    meets the next, the part that lies there is one of its own.
    """
    out, layout = statement.members(tensors)[0], tensors[statement.out].layout
    by_rank = own_rows(statement, tensors)
    for rank, tile, replica in layout.filled():
        rows, cols = layout.tile_bounds(tile)
        for number, span in enumerate(by_rank[rank] if by_rank is not None else ()):
            first, last = (x // out.cols for x in cols)
            factors = [
                (span, Interval(first * x.cols, last * x.cols)) for x in statement.members(tensors)[1:]
            ]
            beta = 1.0 if number else 0.0
            yield Product(
                rank, tile, replica, (rows, cols), (factors[0], factors[1]), last - first, (1, 1, 1), beta
            )
        if by_rank is not None:
            continue
        for sequence in range(rows.start // out.length, -(-rows.stop // out.length)):
            first = sequence * out.length
            lines_here = rows.intersect(Interval(first, first + out.length)).shift(-first)
            for numbers, *lines in _runs(out, lines_here, cols):
                members = range(numbers.start * out.group, numbers.stop * out.group)
                for gemm in _gemms(statement, tensors, sequence, members, (lines[0], lines[1])):
                    yield Product(rank, tile, replica, *gemm)


def _runs(out: Members, rows: Interval, cols: Interval) -> Iterator[tuple[range, Interval, Interval]]:
    """Yield the members of the output that meet a rectangle, and the lines of each: whole ones together."""
    # out: how a sequence of the output is cut. rows: of the rectangle, in the sequence.
    span, length = (cols, out.cols) if out.axis else (rows, out.rows)
    met = range(span.start // length, -(-span.stop // length))
    complete = range(-(-span.start // length), span.stop // length)
    # Whole members make one batched gemm; those cut by the edge of the tile are gemms of their own.
    for numbers in ([complete] if complete else []) + [range(x, x + 1) for x in met if x not in complete]:
        start = numbers.start * length
        lines = span.intersect(Interval(start, start + length)).shift(-start)
        yield (numbers, rows, lines) if out.axis else (numbers, lines, cols)


def _gemms(
    statement: Multiply, tensors: Tensors, sequence: int, members: range, lines: Region
) -> Iterator[tuple[Region, tuple[Region, Region], int, tuple[int, int, int], float]]:
    """Yield the gemms of consecutive members: one, if their factors go together."""
    # sequence: which part of all operands. lines: the rows and the columns that are wanted of the product of
    # each.
    out, *both = statement.members(tensors)
    factors, groups = [], [out.group if len(members) > 1 else 1]
    for operand, operand_members in enumerate(both):
        group = _shared(operand_members.group, members.start, len(members))
        axis = operand ^ ("ab"[operand] in statement.trans)  # where m lies in A, n in B
        needed = [Interval(0, operand_members.rows), Interval(0, operand_members.cols)]
        cut, needed[axis] = lines[operand] != needed[axis], lines[operand]
        # A batch needs a constant stride between members; cut members, and unevenly shared factors, have
        # none.
        if not group or (cut and axis == operand_members.axis and len(members) > group):
            for member in members:
                for gemm in _gemms(statement, tensors, sequence, range(member, member + 1), lines):
                    yield (*gemm[:-1], statement.beta if member % out.group == 0 else 1.0)
            return
        first = members.start // operand_members.group
        factors.append(
            _region(
                operand_members, sequence, range(first, first + len(members) // group), needed[0], needed[1]
            )
        )
        groups.append(group)
    first = members.start // out.group
    written = _region(out, sequence, range(first, first + len(members) // groups[0]), *lines)
    yield (
        written, (factors[0], factors[1]), len(members), (groups[0], groups[1], groups[2]), statement.beta,
    )  # fmt: skip


def _region(
    operand: Members, sequence: int, numbers: range, rows: Interval, cols: Interval
) -> tuple[Interval, Interval]:
    """Return the rows and columns of some consecutive members of an operand."""
    # operand: how a sequence of it is cut. rows: of each member, counted in it; all of them along the axis if
    # there are several members.
    first, last = numbers.start, numbers.stop - 1
    down, right = (operand.rows, 0) if operand.axis == 0 else (0, operand.cols)
    above = sequence * operand.length
    return (
        Interval(above + first * down + rows.start, above + last * down + rows.stop),
        Interval(first * right + cols.start, last * right + cols.stop),
    )


def _shared(group: int, first: int, count: int) -> int:
    """Return how many of some consecutive members share one of a factor; 0 if they differ in it."""
    # Runs of whole groups share evenly; any other run has to be within one group.
    if first % group == 0 and count % group == 0:
        return group
    return count if first // group == (first + count - 1) // group else 0


@write.register
def _(statement: Multiply, build: Builder, context: Context) -> None:
    """Write a one-sided multiply."""
    if statement.is_batch:
        write_batch(build, statement)
        return
    stationary = context.asked.stationary(statement.out)
    options = context.asked.one_sided(statement.out)
    tensors = {tensor.name: tensor for tensor in build.tensors}
    problem = as_problem(statement, tensors)
    part = one_sided_part(problem, build.machine, stationary, options, together=not statement.beside)
    if in_one_kernel(statement, tensors):
        part, _ = in_kernels_of(part, problem, build.machine, statement.besides)
    append_product(build, statement, part, context)


def append_product(build: Builder, statement: Multiply, part: Schedule, context: Context) -> None:
    """Append the schedule of a one-sided multiply, after zeros or β times its old product."""
    written, first = statement.out in context.written, context.step.first
    none: tuple[Ints, frozenset[Place]] = (np.zeros(0, dtype=np.int64), frozenset())
    # Zeros are needed only where several actions add up; a tile with a single writer is overwritten.
    anew, begun = begun_by_gemms(part) if first and written and not statement.beta else none
    if first and (written or statement.beta):
        start_from(build, statement, begun)
    build.append(
        part if context.step.last else before_sums(part),
        {"A": statement.a, "B": statement.b, "C": statement.out},
        slots="multiply",
        transposed=[x.upper() for x in statement.trans],
        alpha=statement.alpha,
        anew=anew,
    )


def one_sided_part(
    problem: Problem, machine: Machine, stationary: str, options: Mapping[str, Any], together: bool = True
) -> Schedule:
    """Return the schedule of a one-sided multiply of a chain.

    Where all operands are at their ranks, a rank multiplies for others first and for itself last, so that
    its accumulates are on their way meanwhile.

    Args:
        together: Whether one kernel multiplies a rank's tiles, see :func:`tiles_together`.
    """
    complete = Options(**completing(options))
    find = _one_sided_part if problem.p > MAX_CACHED_RANKS else _one_sided_part_of_few
    return find(problem, machine, stationary, complete, together)


def _one_sided_part(
    problem: Problem, machine: Machine, stationary: str, options: Options, together: bool
) -> Schedule:
    part = lowered(problem, machine, stationary, **options.to_dict())
    adds = (part.kind == ACCUMULATE) & (part.src != part.dst)
    # With nothing to fetch, the order of ops only decides when accumulates leave: own tiles last.
    if not (part.kind == GET).any() and adds.any() and options.offset == "index":
        part = lowered(problem, machine, stationary, **options.to_dict() | {"offset": "last"})
    return tiles_together(part, problem, machine) if together else part


_one_sided_part_of_few = lru_cache(maxsize=512)(_one_sided_part)


def tiles_together(part: Schedule, problem: Problem, machine: Machine) -> Schedule:
    """Return the schedule of a multiply whose gemms on one matrix of a rank share one kernel's seconds.

    A rank keeps its tiles of a matrix as one array. So it multiplies tiles of A under each other by the same
    of B at once, if it also owns what it writes; and at once what it owns of A and B whose products add to
    the same of its C, as those of a weight's gradient do. The gemms share the seconds of such a kernel, which
    takes no longer than they do apart.
    """
    if not may_be_together(problem):
        return part
    gemms = np.flatnonzero(part.kind == GEMM)
    d, rank, buffers = part.details.taken(gemms), part.rank[gemms], part.buffers
    buffer, spans = d.buffer[:, :3].astype(np.int64), np.concatenate([d.rows[:, :3], d.cols[:, :3]], axis=2)
    home = (buffer < part.first_temporary) & (buffers.rank[buffer] == rank[:, None])
    c, a, b = spans.transpose(1, 0, 2)
    # Gemms with equal keys differ in one dimension only: m for one B, k for one C.
    one_b = np.column_stack([rank, buffer[:, 2], b, c[:, 2:], a[:, 2:]])
    one_c = np.column_stack([rank, buffer[:, 0], c])
    seconds, c_itemsize = part.seconds.copy(), problem.itemsize("C")
    for key, owned, axis in ((one_b, home[:, :2].all(axis=1), 0), (one_c, home.all(axis=1), 2)):
        rows = np.flatnonzero(owned)
        _, first, kernel, count = np.unique(
            key[rows], axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        if count.max(initial=0) < 2:
            continue
        kernel, sizes = kernel.reshape(-1), d.multiplied[rows]
        joint = sizes[first]
        joint[:, axis] = np.bincount(kernel, sizes[:, axis])
        apart, at_once = (
            multiply_seconds(
                machine, problem.dtype, m, n, k, c_itemsize, pace=pace_of(machine, ranks, problem.p)
            )
            for (m, n, k), ranks in ((sizes.T, rank[rows]), (joint.T, rank[rows][first]))
        )
        # The joint kernel's seconds are spread over its gemms in proportion, so that the table keeps its
        # rows.
        share = np.minimum(at_once / np.bincount(kernel, apart), 1.0)
        seconds[gemms[rows]] *= np.where(count > 1, share, 1.0)[kernel]
        break
    # The details of a part serve this one too: making them takes longer than all of this.
    return replace(part, seconds=seconds, make_data=lambda: Data(part.details, part.temporaries))


def may_be_together(problem: Problem) -> bool:
    """Whether a rank has several tiles of A, which :func:`tiles_together` may multiply at once."""
    grid, places = problem.layouts[0].grid_shape(), problem.layouts[0].process_grid
    return grid[0] > places[0] or grid[1] > places[1]


def sums_with_next(
    statement: Statement, other: Statement, tensors: Tensors, options: Mapping[str, Any]
) -> bool:
    """Whether the replicas of one product are summed once for a one-sided multiply and the one after it.

    The next one adds to the same tensor, so that each rank adds both products in its own replica first.
    """
    return (
        isinstance(statement, Multiply)
        and not statement.is_batch
        and joinable(statement, other)
        and tensors[statement.out].layout.replicas > 1
        and completing(options)["movement"] == FLAT
    )


def before_sums(part: Schedule) -> Schedule:
    """Return the part of a multiply's schedule before its replicas are summed: up to the first barrier."""
    # Replicas are summed behind a barrier, see `replicas.Ending`: what stands before it is the multiply.
    barriers = np.flatnonzero(part.kind == BARRIER)
    if not len(barriers):
        return part
    stop = int(barriers[0])
    columns = {x: getattr(part, x)[:stop] for x in COLUMNS}
    offsets = part.after_offsets[: stop + 1]
    return replace(
        part,
        **columns,
        after_offsets=offsets,
        after=part.after[: offsets[-1]],
        means_of=None if part.means_of is None else part.means_of[:stop],
        make_data=lambda: Data(part.details.taken(slice(stop)), part.temporaries),
        make_amounts=part.amounts_of(slice(stop)),
    )


def in_one_kernel(statement: Multiply, tensors: Tensors) -> bool:
    """Whether a multiply is one kernel with an earlier one: both results are cut over the ranks alike."""
    if statement.beside not in tensors:
        return False
    one, other = tensors[statement.beside].layout, tensors[statement.out].layout
    return (one.grid_shape(), one.process_grid, one.replicas) == (
        other.grid_shape(), other.process_grid, other.replicas,
    )  # fmt: skip


def in_kernels_of(
    part: Schedule, problem: Problem, machine: Machine, besides: int
) -> tuple[Schedule, Floats]:
    """Return the schedule of a multiply whose gemms run in another's kernels, and the seconds saved by each.

    Such a kernel has the columns of both. What is added to it is what the wider kernel takes longer: nothing
    where tiles are fewer than units.

    Args:
        besides: Columns that the other has.
    """
    rows = np.flatnonzero(part.kind == GEMM)
    m, n, k = part.details.taken(rows).multiplied.T
    before = np.rint(n * (besides / problem.n))
    alone, other, both = (
        multiply_seconds(machine, problem.dtype, m, x, k, problem.itemsize("C"))
        for x in (n, before, n + before)
    )
    saved = np.zeros(len(part))
    # Marginal cost: what the second multiply adds to a kernel that runs anyway.
    saved[rows] = alone - (both - other)
    return replace(part, seconds=np.maximum(part.seconds - saved, 0.0)), saved


def as_problem(statement: Multiply, tensors: Tensors) -> Problem:
    """Return a multiply that is not a batch as a problem; operands read transposed are laid out so."""
    out, a, b = (tensors[name] for name in (statement.out, statement.a, statement.b))
    left = a.layout.transposed if "a" in statement.trans else a.layout
    right = b.layout.transposed if "b" in statement.trans else b.layout
    layouts = left, right, out.layout
    cuts = tuple((x.cuts, x.text) for x in layouts)  # equal ones may be said, and number tiles, otherwise
    return _problem(layouts, cuts, product_dtype(a.dtype, b.dtype, b.stored), out.dtype)


@lru_cache(maxsize=16384)
def _problem(layouts: tuple[Layout, Layout, Layout], cuts: object, dtype: str, c_dtype: str) -> Problem:
    left, right, out = layouts
    return Problem(
        m=out.shape[0], n=out.shape[1], k=left.shape[1], a=left, b=right, c=out,
        dtype=dtype, c_dtype=c_dtype, ranks=out.ranks,
    )  # fmt: skip


def completing(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a one-sided multiply by which every replica of a product is complete."""
    # It gets slices: a tile of what another statement has made is rarely cut as the multiply needs it.
    final = options.get("final", COMPLETE)
    return {
        **options,
        "final": final if final in COMPLETING else COMPLETE,
        "movement": TWO_LEVEL if options.get("movement") == TWO_LEVEL else FLAT,
        "granularity": "slice",
    }


def begun_by_gemms(part: Schedule) -> tuple[Ints, frozenset[Place]]:
    """Return which gemms of a multiply may write a tile of C anew, and these tiles: they need no zeros."""
    # Such a tile is one gemm's, whole, and nothing else is added to it, but of replicas after a barrier.
    d, buffers = part.details, part.buffers
    names = [tensor.name for tensor in part.tensors]
    target, sums = d.buffer[:, 0], is_one_of(part.kind, (ACCUMULATE, REDUCE))
    of_c = (target >= 0) & (target < part.first_temporary)
    of_c[of_c] = buffers.tensor[target[of_c]] == names.index("C")
    gemms = (of_c & (part.kind == GEMM)).nonzero()[0]
    count = np.bincount(target[gemms], minlength=len(buffers))
    added = np.zeros(len(buffers), dtype=bool)
    # Behind a barrier reduces find the tile complete, so they do not ask for zeros.
    added[target[of_c & (sums if not (part.kind == BARRIER).any() else part.kind == ACCUMULATE)]] = True
    tiles = target[gemms]
    all_of_it = (d.rows[gemms, 0] == buffers.rows[tiles]).all(axis=1) & (
        d.cols[gemms, 0] == buffers.cols[tiles]
    ).all(axis=1)
    first = gemms[all_of_it & (count[tiles] == 1) & ~added[tiles]]
    buffers_of = target[first]
    places = zip(
        buffers.rank[buffers_of].tolist(),
        buffers.rows[buffers_of].tolist(),
        buffers.cols[buffers_of].tolist(),
        strict=True,
    )
    begun = frozenset((rank, *rows, *cols) for rank, rows, cols in places)
    return first, begun


def start_from(build: Builder, statement: Multiply, begun: Collection[Place] = ()) -> None:
    """Scale C by β in the origin and zero it in the other replicas, before a multiply adds to it.

    Args:
        begun: Tiles that gemms write anew.
    """
    for rank, tile, replica in build.layout(statement.out).filled():
        target = build.tile(statement.out, *tile, replica)
        if (rank, target.rows.start, target.rows.stop, target.cols.start, target.cols.stop) in begun:
            continue
        if replica or not statement.beta:
            build.map("zero", target)
        elif statement.beta != 1:
            build.map("scale", target, target, factor=statement.beta)
