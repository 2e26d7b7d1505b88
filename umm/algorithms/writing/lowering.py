"""An algorithm on any layouts: redistribute in, multiply on its own layouts, redistribute out."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from umm.algorithms.algorithm import Algorithm, Names
from umm.algorithms.redistribution import redistribute
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.program.problem import MATRICES, Problem
from umm.program.tensors import Tensor
from umm.schedules.schedule import Schedule
from umm.schedules.writer.builder import Builder
from umm.schedules.writer.collector import without_collector


def lowered(algorithm: Algorithm, problem: Problem, machine: Machine, given: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a problem by an algorithm.

    What lies in the algorithm's own layout already is used where it is; anything else is copied into a work
    tensor first, and C out of one at the end.

    Raises:
        ProblemError: if the algorithm cannot serve the problem.
        ScheduleError: for an option that there is none of, or a value that means nothing.
    """
    options = algorithm.chosen(given)
    algorithm.check(problem, machine, options)
    native = algorithm.native(problem, **options)
    suffix = algorithm.name.replace("-", "_")
    work = [
        Tensor(f"{tensor.name}.{suffix}", layout, tensor.dtype)
        for tensor, layout in zip(problem.tensors, native, strict=True)
        if not _lies_so(tensor.layout, layout)
    ]
    moved = {tensor.name.partition(".")[0]: tensor.name for tensor in work}
    build = Builder(algorithm.name, problem, machine, work, options=options)
    with without_collector():
        for name in MATRICES[:2]:
            if name in moved:
                redistribute(build, name, moved[name])
        algorithm.write(build, Names(*(moved.get(name, name) for name in MATRICES)), **options)
        if "C" in moved:
            redistribute(build, moved["C"], "C")
        return build.schedule()


def _lies_so(layout: Layout, native: Layout) -> bool:
    """Whether a tensor can be used where it is, by the numbers of its tiles, empty ones included."""
    return (
        layout == native
        and layout.process_grid == native.process_grid
        and layout.cuts == native.cuts
        and np.array_equal(layout.owners, native.owners)
    )
