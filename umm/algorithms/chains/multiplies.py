"""The multiplies of a chain: one by the universal algorithm, a batch by the owners of what it writes."""

from collections.abc import Iterator, Mapping
from typing import Any

from umm.algorithms.chains.gathered import gathered, tiles_by_rank
from umm.algorithms.universal.lowered import lowered
from umm.chains import Multiply
from umm.chains.multiply import Members, Tensors
from umm.interval import Interval
from umm.problem import Problem
from umm.schedules.builder import Builder
from umm.schedules.slices import Slice


def multiply(
    build: Builder, statement: Multiply, written: bool, stationary: str, options: Mapping[str, Any]
) -> None:
    """Write a multiply of a chain; every replica of what it writes is complete afterwards.

    Args:
        build: Where the actions go.
        statement: The multiply.
        written: Whether an earlier statement has written to its output, so that it is not zero.
        stationary: A, B, C or ``auto``, unless it is a batch.
        options: Of the universal algorithm.
    """
    if statement.is_batch:
        _batch(build, statement)
        return
    if written or statement.beta:
        _start_from(build, statement)
    problem = as_problem(statement, {tensor.name: tensor for tensor in build.tensors})
    build.append(
        lowered(problem, build.machine, stationary, **completing(options)),
        {"A": statement.a, "B": statement.b, "C": statement.out},
        slots="multiply",
        transposed=[x.upper() for x in statement.trans],
        alpha=statement.alpha,
    )


def as_problem(statement: Multiply, tensors: Tensors) -> Problem:
    """Return a multiply that is not a batch as a problem; what it reads transposed is laid out so."""
    out, a, b = (tensors[name] for name in (statement.out, statement.a, statement.b))
    left = a.layout.transposed if "a" in statement.trans else a.layout
    right = b.layout.transposed if "b" in statement.trans else b.layout
    return Problem(
        m=out.shape[0], n=out.shape[1], k=left.shape[1], a=left, b=right, c=out.layout,
        dtype=a.dtype, c_dtype=out.dtype, ranks=out.layout.ranks,
    )  # fmt: skip


def completing(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by which every replica of a product is complete: an all-reduce or a broadcast."""
    return {**options, "final": "broadcast" if options.get("final") == "broadcast" else "all-reduce"}


def _start_from(build: Builder, statement: Multiply) -> None:
    """Set what a multiply adds to: β times what was there in the origin, zero in the other replicas."""
    for _, tile, replica in tiles_by_rank(build, statement.out):
        target = build.tile(statement.out, *tile, replica)
        if replica or not statement.beta:
            build.map("zero", target)
        elif statement.beta != 1:
            build.map("scale", target, target, factor=statement.beta)


def _batch(build: Builder, statement: Multiply) -> None:
    """Write a batch: the owner of each tile of the output multiplies the members that lie in it.

    Members that lie in a tile, or the same lines of each, are one gemm; of a member that is cut where it
    meets the next, the part that lies there is one of its own. What they read and the rank lacks, it gets.
    """
    tensors = {tensor.name: tensor for tensor in build.tensors}
    out = statement.members(tensors)[0]
    for rank, tile, replica in tiles_by_rank(build, statement.out):
        rows, cols = build.layout(statement.out).tile_bounds(tile)
        target = build.tile(statement.out, *tile, replica)
        for sequence in range(rows.start // out.length, -(-rows.stop // out.length)):
            first = sequence * out.length
            there = rows.intersect(Interval(first, first + out.length)).shift(-first)
            for numbers, *lines in _runs(out, there, cols):
                members = range(numbers.start * out.group, numbers.stop * out.group)
                _gemm(build, statement, tensors, rank, target, sequence, members, (lines[0], lines[1]))


def _runs(out: Members, rows: Interval, cols: Interval) -> Iterator[tuple[range, Interval, Interval]]:
    """Yield the members of the output that meet a rectangle, and the lines of each: whole ones together.

    Args:
        out: How a sequence of the output is cut.
        rows: Of the rectangle, in the sequence.
        cols: Likewise.
    """
    span, length = (cols, out.cols) if out.axis else (rows, out.rows)
    met = range(span.start // length, -(-span.stop // length))
    whole = range(-(-span.start // length), span.stop // length)
    for numbers in ([whole] if whole else []) + [range(x, x + 1) for x in met if x not in whole]:
        start = numbers.start * length
        lines = span.intersect(Interval(start, start + length)).shift(-start)
        yield (numbers, rows, lines) if out.axis else (numbers, lines, cols)


def _gemm(
    build: Builder, statement: Multiply, tensors: Tensors, rank: int, target: Slice, sequence: int,
    members: range, lines: tuple[Interval, Interval], beta: float | None = None,
) -> None:  # fmt: skip
    """Write the gemm of some consecutive members of a batch; one for each if factors do not go together.

    Args:
        build: Where the actions go.
        statement: The batch.
        tensors: Its tensors.
        rank: Who multiplies.
        target: Its tile of the output.
        sequence: Which part of all operands.
        members: The members.
        lines: The rows and the columns that are wanted of the product of each.
        beta: Of what the output holds; the statement's if not said.
    """
    beta = statement.beta if beta is None else beta
    out, *both = statement.members(tensors)
    factors, groups = [], [out.group if len(members) > 1 else 1]
    for operand, (name, held) in enumerate(zip((statement.a, statement.b), both, strict=True)):
        group = _shared(held.group, members.start, len(members))
        axis = operand ^ ("ab"[operand] in statement.trans)  # where m lies in A, n in B
        needed = [Interval(0, held.rows), Interval(0, held.cols)]
        cut, needed[axis] = lines[operand] != needed[axis], lines[operand]
        if not group or (cut and axis == held.axis and len(members) > group):
            for member in members:
                again = beta if member % out.group == 0 else 1.0
                one = range(member, member + 1)
                _gemm(build, statement, tensors, rank, target, sequence, one, lines, again)
            return
        first = members.start // held.group
        region = _region(held, sequence, range(first, first + len(members) // group), *needed)
        factors.append(gathered(build, name, rank, *region, ("batch", operand, name)))
        groups.append(group)
    written = range(members.start // out.group, members.start // out.group + len(members) // groups[0])
    build.gemm(
        target.cut(*_region(out, sequence, written, *lines)), factors[0], factors[1],
        beta=beta, alpha=statement.alpha, trans=statement.trans, batch=len(members),
        batch_axes=statement.batch_axes, groups=(groups[0], groups[1], groups[2]),
    )  # fmt: skip


def _region(
    held: Members, sequence: int, numbers: range, rows: Interval, cols: Interval
) -> tuple[Interval, Interval]:
    """Return the rows and columns of some consecutive members of an operand.

    Args:
        held: How a sequence of it is cut.
        sequence: Which one.
        numbers: The members.
        rows: Of each member, counted in it; all of them along the axis if there are several members.
        cols: Likewise.
    """
    first, last = numbers.start, numbers.stop - 1
    down, right = (held.rows, 0) if held.axis == 0 else (0, held.cols)
    above = sequence * held.length
    return (
        Interval(above + first * down + rows.start, above + last * down + rows.stop),
        Interval(first * right + cols.start, last * right + cols.stop),
    )


def _shared(group: int, first: int, count: int) -> int:
    """Return how many of some consecutive members share one of a factor; 0 if they differ in it."""
    if first % group == 0 and count % group == 0:
        return group
    return count if first // group == (first + count - 1) // group else 0
