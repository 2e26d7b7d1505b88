"""One-sided multiplies that add to one tensor: each rank adds up its products before they move."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from umm.arrays import offsets_of
from umm.machines import Machine
from umm.plans.movement.choice import FLAT, node_count
from umm.plans.statements.multiplies import COLUMNS, as_problem, completing, one_sided_part, start_from
from umm.program import Multiply
from umm.program.problem import Problem, largest_matrix
from umm.program.statements.base import Tensors
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import first_tiles
from umm.schedules.table.details import ACCUMULATE, GEMM
from umm.schedules.table.table import Data
from umm.schedules.writer.builder import Builder


def write_sum(
    build: Builder, statements: Sequence[Multiply], parts: Sequence[Schedule], written: bool
) -> None:
    """Write multiplies that add to one tensor, each rank's products added up before they move.

    So tensor parallel training sums the gradients of a layer's input through Q, K and V.

    Args:
        parts: One-sided schedules of them; see :func:`products_at_home`.

    Source: Shoeybi et al. (2019), Megatron-LM, section 3.
    """
    first = statements[0]
    if written or first.beta:
        start_from(build, first)
    names, transposed = {"C": first.out}, list[str]()
    for x, operands in zip(statements, _operand_names(len(parts)), strict=True):
        names |= zip(operands, (x.a, x.b), strict=True)
        transposed += [name for name, letter in zip(operands, "ab", strict=True) if letter in x.trans]
    joined = _adding_first(parts, [x.alpha for x in statements])
    build.append(joined, names, slots="multiply", transposed=transposed)


def products_at_home(
    statements: Sequence[Multiply],
    tensors: Tensors,
    machine: Machine,
    stationary: str,
    options: Mapping[str, Any],
) -> list[Schedule]:
    """Return the one-sided schedules of multiplies whose products a rank can add up before they move.

    Every rank multiplies what it owns, for the same others in the same order. Empty if ranks cannot, or would
    move more than by one multiply after another.
    """
    if len(statements) < 2 or completing(options)["movement"] != FLAT or any(x.beside for x in statements):
        return []
    parts, usual = list[Schedule](), 0

    def moved(part: Schedule) -> int:
        return int(part.nbytes[part.src != part.dst].sum())

    for statement in statements:
        problem = as_problem(statement, tensors)
        part = product_at_home(problem, machine, stationary, options)
        if part is None or (parts and not _same_products(parts[0], part)):
            return []
        parts.append(part)
        usual += moved(one_sided_part(problem, machine, stationary, options))
    return parts if moved(parts[0]) <= usual else []


def product_at_home(
    problem: Problem, machine: Machine, stationary: str, options: Mapping[str, Any]
) -> Schedule | None:
    """Return a one-sided schedule by which each rank multiplies its own tiles, a product for each tile of C.

    That of its own tile comes last, so no tile is complete before its owner has multiplied all. None if there
    is no such schedule, or ranks are in several nodes, where it is one among many.
    """
    if node_count(machine, problem.p) > 1:
        return None
    usual = largest_matrix(problem) if stationary == "auto" else stationary
    # With C stationary products never move, so there is nothing to add up before.
    able = [x for x in dict.fromkeys((usual, "B", "A")) if x != "C" and stationary in ("auto", x)]
    for matrix in able:
        part = one_sided_part(problem, machine, matrix, options)
        adds = np.flatnonzero(part.kind == ACCUMULATE)
        # Exactly one accumulate a gemm, and no gets: products are all that moves.
        if 2 * len(adds) != len(part) or (part.kind[part.kind != ACCUMULATE] != GEMM).any():
            continue
        last = {int(part.rank[row]): row for row in adds.tolist()}
        to_itself = adds[part.dst[adds] == part.rank[adds]].tolist()
        # A rank's last accumulate is that to itself, or its tile would be complete before it has multiplied.
        if sorted(last.values()) == to_itself and (part.src != part.dst).any():
            return part
    return None


def _same_products(one: Schedule, other: Schedule) -> bool:
    """Whether two multiplies make products for the same tiles in the same order."""
    names = ("kind", "rank", "lane", "dst", "nbytes", "after_offsets", "after")
    same = len(one) == len(other) and all((getattr(one, x) == getattr(other, x)).all() for x in names)
    d, others = one.details, other.details
    return same and bool(
        (d.rows[:, 0] == others.rows[:, 0]).all() and (d.cols[:, 0] == others.cols[:, 0]).all()
    )


def _operand_names(count: int) -> list[tuple[str, str]]:
    """Names of A and B of each multiply in one schedule of all."""
    return [("A", "B"), *((f"A{x}", f"B{x}") for x in range(1, count))]


def _adding_first(parts: Sequence[Schedule], alphas: Sequence[float]) -> Schedule:
    """Return one schedule of multiplies that add to the products of the first before these move."""
    # parts: of each, see `products_at_home`. alphas: factor of the products of each.
    one, count = parts[0], len(parts)
    adds = one.kind == ACCUMULATE
    # Each gemm becomes one for every multiply, in a row, and the accumulate follows the last of them.
    times = np.where(adds, 1, count)
    row = np.arange(len(one)).repeat(times)
    last = times.cumsum() - 1
    number = np.arange(len(row)) - (last - times + 1)[row]  # of the multiply that a gemm is of
    waits = [
        # The first gemm waits as before, for the last row of what it waited for; further ones wait for each
        # other.
        last[one.after_of(old)] if not term else np.array([at - 1])
        for at, (old, term) in enumerate(zip(row.tolist(), number.tolist(), strict=True))
    ]
    work = tuple(
        replace(tensor, name=name)
        for part, names in zip(parts[1:], _operand_names(count)[1:], strict=True)
        for tensor, name in zip(part.tensors, names, strict=False)
    )
    first_temporary, more = one.first_temporary, first_tiles((*one.tensors, *work))
    columns = {x: getattr(one, x)[row] for x in COLUMNS}

    def data() -> Data:
        details = one.details.taken(row)
        buffer = details.buffer
        buffer[buffer >= first_temporary] += more[-1] - first_temporary
        details.alpha[:] *= np.where(columns["kind"] == GEMM, alphas[0], 1.0)
        for term in range(1, count):
            at = number == term
            theirs, first = parts[term].details.taken(row[at]), first_tiles(parts[term].tensors)
            for operand in (1, 2):
                start = more[len(one.tensors) + 2 * (term - 1) + operand - 1] - first[operand - 1]
                details.put(
                    at.nonzero()[0], operand, theirs.buffer[:, operand] + start,
                    theirs.rows[:, operand], theirs.cols[:, operand],
                )  # fmt: skip
            # β = 1: further products are added to the first one in its slot.
            details.beta[at], details.alpha[at] = 1.0, theirs.alpha * alphas[term]
        return Data(details, one.temporaries)

    for term in range(1, count):
        columns["seconds"][number == term] = parts[term].seconds[row[number == term]]
    return replace(
        one,
        **columns,
        after_offsets=offsets_of([len(x) for x in waits]),
        after=np.concatenate(waits),
        work=work,
        make_data=data,
        make_amounts=None,
    )


def without_adds(part: Schedule) -> Schedule:
    """Return the gemms alone of a multiply whose products are added to those of another before they move."""
    gemms = (part.kind == GEMM).nonzero()[0]
    return replace(
        part,
        **{x: getattr(part, x)[gemms] for x in COLUMNS},
        after_offsets=np.zeros(len(gemms) + 1, dtype=np.int64),
        after=part.after[:0],
        make_data=lambda: Data(part.details.taken(gemms), part.temporaries),
        make_amounts=part.amounts_of(gemms),
    )
