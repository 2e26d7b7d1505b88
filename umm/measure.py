"""Run a schedule several times with an executor and keep the best run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from umm.chains import Chain
from umm.checks import (
    Check,
    chain_reference,
    check_outputs,
    check_product,
    random_inputs,
    random_operands,
    reference_product,
)
from umm.errors import InputError
from umm.executor import Executor, Operands
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace


@dataclass(frozen=True)
class Measured:
    """The runs of a schedule.

    Attributes:
        best: The fastest run, as the paper reports.
        seconds: Makespan of each counted run.
        check: How far C, or the worst output of a chain, is from the reference, if that was asked for.
    """

    best: Trace
    seconds: tuple[float, ...]
    check: Check | None

    def record(self) -> dict[str, Any]:
        """Return the runs as plain values; without a check its two are None."""
        return {
            "best_s": min(self.seconds),
            "mean_s": float(np.mean(self.seconds)),
            "std_s": float(np.std(self.seconds)),
            "iters": len(self.seconds),
            "max_abs_error": self.check and self.check.max_abs_error,
            "ok": self.check and self.check.ok,
        }


def measure(
    schedule: Schedule,
    performer: Executor,
    name: str,
    *,
    iters: int,
    warmup: int,
    check: bool = False,
    track: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Measured:
    """Run a schedule several times on random operands.

    Args:
        schedule: What to run.
        performer: Who runs it.
        name: Its name.
        iters: Counted runs, ≥ 1.
        warmup: Runs before them that do not count.
        check: Whether to hold every run's C, or outputs, against float64 NumPy.
        track: Gives the numbers of the runs one after another, showing how far it is.

    Raises:
        InputError: for less than one run, or a check of an executor that multiplies nothing.
    """
    if iters < 1 or warmup < 0:
        raise InputError(
            f"{iters} runs after {warmup} to warm up are not possible; --iters ≥ 1, --warmup ≥ 0"
        )
    operands, checked = _held(schedule, check)
    best, worst_check, seconds = None, None, []
    for i in track(range(warmup + iters)):
        trace = performer.run(schedule, operands)
        if checked is not None:
            if trace.result is None:
                raise InputError(f"executor {name} multiplies no matrices; leave out --check")
            found = checked(trace)
            if worst_check is None or not found.relative <= worst_check.relative:
                worst_check = found
        if i < warmup:
            continue
        seconds.append(trace.makespan_s)
        if best is None or trace.makespan_s < best.makespan_s:
            best = trace
    assert best is not None
    return Measured(best, tuple(seconds), worst_check)


def _held(schedule: Schedule, check: bool) -> tuple[Operands, Callable[[Trace], Check] | None]:
    """Return random operands, and what holds the results of a run against a reference, if asked for."""
    program = schedule.program
    if isinstance(program, Chain):
        given = random_inputs(program)
        if not check:
            return given, None
        outputs = chain_reference(program, given)
        return given, lambda trace: check_outputs(program, outputs, trace.results)
    problem = schedule.problem
    a, b = random_operands(problem)
    if not check:
        return (a, b), None
    product = reference_product(a, b)
    return (a, b), lambda trace: check_product(problem, product, trace.results["C"])
