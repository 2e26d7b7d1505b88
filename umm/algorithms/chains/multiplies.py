"""The multiplies of a chain: one by the universal algorithm, a batch by the owners of what it writes."""

from collections.abc import Mapping
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
    if statement.batch > 1:
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

    Members that lie whole in a tile are one gemm; of any other, the part that does is one of its own. What
    they read and the rank does not own, it gets.
    """
    tensors = {tensor.name: tensor for tensor in build.tensors}
    out = statement.members(tensors)[0]
    for rank, tile, replica in tiles_by_rank(build, statement.out):
        target = build.tile(statement.out, *tile, replica)
        span, length = (target.cols, out.cols) if out.axis else (target.rows, out.rows)
        met = range(span.start // length, -(-span.stop // length))
        regions = {number: _region(out, number, number + 1) for number in met}
        whole = [number for number in met if target.cut(*regions[number]).shape == (out.rows, out.cols)]
        if whole:
            _whole_members(build, statement, tensors, rank, target, range(whole[0], whole[-1] + 1))
        for number in set(met) - set(whole):
            into = target.cut(*regions[number])
            rows = into.rows.shift(-regions[number][0].start)
            cols = into.cols.shift(-regions[number][1].start)
            _part_of_member(build, statement, tensors, into, number, rows, cols)


def _region(members: Members, first: int, stop: int) -> tuple[Interval, Interval]:
    """Return the rows and columns of some consecutive members of an operand."""
    if members.axis:
        return Interval(0, members.rows), Interval(first * members.cols, stop * members.cols)
    return Interval(first * members.rows, stop * members.rows), Interval(0, members.cols)


def _whole_members(
    build: Builder, statement: Multiply, tensors: Tensors, rank: int, target: Slice, numbers: range
) -> None:
    """Write the gemm of some consecutive members of the output, as one batch if factors are shared evenly."""
    out, a, b = statement.members(tensors)
    first, count = numbers.start * out.group, len(numbers) * out.group
    groups = [_shared(members.group, first, count) for members in (a, b)]
    if not all(groups):
        for number in numbers:
            into = target.cut(*_region(out, number, number + 1))
            whole = Interval(0, out.rows), Interval(0, out.cols)
            _part_of_member(build, statement, tensors, into, number, whole[0], whole[1])
        return
    factors = []
    both = (statement.a, a, groups[0]), (statement.b, b, groups[1])
    for operand, (name, members, group) in enumerate(both):
        start = first // members.group
        rows, cols = _region(members, start, start + count // group)
        factors.append(gathered(build, name, rank, rows, cols, ("batch", operand, name)))
    build.gemm(
        target.cut(*_region(out, numbers.start, numbers.stop)), factors[0], factors[1],
        beta=statement.beta, alpha=statement.alpha, trans=statement.trans, batch=count,
        batch_axes=statement.batch_axes, groups=(out.group, groups[0], groups[1]),
    )  # fmt: skip


def _shared(group: int, first: int, count: int) -> int:
    """Return how many of some consecutive members share one of a factor; 0 if they differ in it."""
    if first % group == 0 and count % group == 0:
        return group
    return count if first // group == (first + count - 1) // group else 0


def _part_of_member(
    build: Builder,
    statement: Multiply,
    tensors: Tensors,
    into: Slice,
    number: int,
    rows: Interval,
    cols: Interval,
) -> None:
    """Write the gemms of a part of one member of the output: some of its rows and columns, counted in it."""
    out, a, b = statement.members(tensors)
    for share in range(out.group):
        member = number * out.group + share
        factors = []
        for operand, (name, members, needed) in enumerate(((statement.a, a, rows), (statement.b, b, cols))):
            start = member // members.group
            region = list(_region(members, start, start + 1))
            axis = operand ^ ("ab"[operand] in statement.trans)  # where m lies in A, n in B
            region[axis] = needed.shift(region[axis].start)
            factors.append(gathered(build, name, into.rank, region[0], region[1], ("batch", operand, name)))
        beta = statement.beta if share == 0 else 1.0
        build.gemm(into, factors[0], factors[1], beta=beta, alpha=statement.alpha, trans=statement.trans)
