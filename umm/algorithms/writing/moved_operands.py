"""A multiply whose operands start elsewhere: A and B are copied to where it multiplies, C at the end.

Each step waits for the whole of the one before: overlapped, the time differs little, and not always for the
better (docs/decisions/0017).
"""

from collections.abc import Mapping
from dataclasses import replace

from umm.algorithms.redistribution import redistribute
from umm.algorithms.redistribution.ways import GETS
from umm.machines import Machine
from umm.program.problem import MATRICES, Problem
from umm.program.tensors import Tensor
from umm.schedules.schedule import Schedule
from umm.schedules.writer.builder import Builder

SLOTS = "multiply"


def moves(problem: Problem) -> list[str]:
    """Return which of A, B and C do not start or end where they are multiplied."""
    pairs = zip(MATRICES, problem.layouts, problem.outside, strict=True)
    return [x for x, inside, outside in pairs if inside != outside]


def joined(problem: Problem, machine: Machine, part: Schedule, ways: Mapping[str, str]) -> Schedule:
    """Return the schedule that copies what starts elsewhere, multiplies, and copies C out.

    Args:
        problem: What is multiplied, and where its operands are given.
        machine: The machine that the part was lowered for.
        part: The multiply itself, of the same problem with nothing given.
        ways: For A, B and C the way to redistribute; one that is not named goes by gets.
    """
    inside = {x.name: Tensor(f"{x.name}.inside", x.layout, x.dtype) for x in part.tensors}
    moved = moves(problem)
    build = Builder(
        part.stationary,
        problem,
        machine,
        [inside[x] for x in moved],
        accumulate_lanes=part.options.get("max_accumulates", 2),
        options=dict(part.options) | {f"bring_{x.lower()}": ways.get(x, GETS) for x in moved},
    )
    build.reserve(SLOTS, part.pools)
    for x in moved:
        if x != "C":
            redistribute(build, x, inside[x].name, ways.get(x, GETS))
            build.barrier()
    build.append(part, {x: inside[x].name if x in moved else x for x in MATRICES}, slots=SLOTS)
    if "C" in moved:
        build.barrier()
        redistribute(build, inside["C"].name, "C", ways.get("C", GETS), str(part.options["final"]))
    # A part's slots are as large as its rules say, even where less would do.
    return replace(build.schedule(), make_pools=lambda: part.pools)
