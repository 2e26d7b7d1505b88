"""The multiplies of a chain: one by the universal algorithm, a batch by the owners of what it writes."""

from collections.abc import Mapping
from typing import Any

from umm.algorithms.chains.batches import write_batch
from umm.algorithms.chains.pieces import tiles_by_rank
from umm.algorithms.universal.lowering import lowered
from umm.algorithms.universal.options import COMPLETE, COMPLETING
from umm.program import Multiply
from umm.program.multiply import Tensors
from umm.program.problem import Problem
from umm.schedules.writer.builder import Builder


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
        write_batch(build, statement)
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
    """Return options by which every replica of a product is complete; what would leave less is overruled."""
    final = options.get("final", COMPLETE)
    return {**options, "final": final if final in COMPLETING else COMPLETE}


def _start_from(build: Builder, statement: Multiply) -> None:
    """Set what a multiply adds to: β times what was there in the origin, zero in the other replicas."""
    for _, tile, replica in tiles_by_rank(build.layout(statement.out)):
        target = build.tile(statement.out, *tile, replica)
        if replica or not statement.beta:
            build.map("zero", target)
        elif statement.beta != 1:
            build.map("scale", target, target, factor=statement.beta)
