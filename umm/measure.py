"""Run a schedule several times with an executor and keep the best run; estimate its cost before."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from umm import checks
from umm.arrays import Floats
from umm.checks import random_operands
from umm.errors import EndedEarlyError, InputError
from umm.executor import Delaying, Executor, Leader, OnHost, Operands, expect_ranks, saver
from umm.host.hardware import copy_rate, free_memory, multiply_rate
from umm.program import Chain
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace

DRAWN_PER_S = 5e8  # bytes of random matrices that NumPy draws in a second, about


@dataclass(frozen=True)
class Measured:
    """The runs of a schedule."""

    best: Trace  # the fastest run, as the paper reports
    seconds: tuple[float, ...]  # makespan of each counted run
    # How far C, or the worst output of a chain, is from the reference, if that was asked for.
    check: checks.Check | None
    complete: bool = True  # Whether all runs asked for are there; False if they were ended early.

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


@dataclass(frozen=True)
class Needs:
    """Time and memory that runs of a schedule need on this host, to a factor of two or so."""

    runs: int  # number of runs
    flop: int  # of one run
    seconds: float  # all together
    nbytes: int  # memory at its fullest
    free: int  # memory that is free now

    def scale_within(self, seconds: float = math.inf, nbytes: float = math.inf) -> int:
        """Return the least power of two by which every dimension is to be divided to stay within limits.

        Time goes with the cube of it, memory with the square.

        >>> Needs(11, 10**13, 800.0, 16 * 2**30, 20 * 2**30).scale_within(seconds=10.0)
        8
        """
        by = 1
        while self.seconds / by**3 > seconds or self.nbytes / by**2 > nbytes:
            by *= 2
        return by


def needs(schedule: Schedule, performer: Executor, *, iters: int, warmup: int, check: bool) -> Needs | None:
    """Return the needs of :func:`measure` on this host; None for ranks that are elsewhere, or on GPUs."""
    # Operands are drawn whole, every rank holds its tiles, C is gathered; a check has all of them in float64.
    if not (isinstance(performer, OnHost) and performer.on_host):
        return None
    elements = {x.name: x.shape[0] * x.shape[1] for x in schedule.tensors}
    nbytes_of = {x.name: elements[x.name] * max(4, x.itemsize) for x in schedule.tensors}
    given = [nbytes_of[x.name] for x in schedule.tensors if x.is_input]
    out = [x.name for x in schedule.tensors if x.is_output]
    results = sum(nbytes_of[name] for name in out)
    inputs, lying = sum(given), int(schedule.memory_bytes.sum())
    products = 4 * int((schedule.details.multiplied[:, :2].prod(axis=1) * (schedule.flop > 0)).max(initial=0))
    drawn = inputs + max(given, default=0)
    running = inputs + lying + 2 * results + products  # the best run's results, and those of the next
    if check:
        reference = 8 * sum(elements[x.name] for x in schedule.tensors if x.is_input or x.is_output)
        drawn = max(drawn, inputs + reference)
        running += 3 * 8 * sum(elements[name] for name in out)  # the reference, and what it is taken from
    flop, runs = int(schedule.flop.sum()), warmup + iters
    dtype = schedule.tensors[0].dtype
    each = flop / multiply_rate(dtype) + (int(schedule.payload.sum()) + lying + results) / copy_rate()
    seconds = runs * each + inputs / DRAWN_PER_S
    if check:
        seconds += flop / multiply_rate("float64") + 4 * runs * results / copy_rate()
    return Needs(runs, flop, seconds, max(drawn, running), free_memory())


def measure(
    schedule: Schedule,
    performer: Executor,
    name: str,
    *,
    iters: int,
    warmup: int,
    check: bool = False,
    operands: Mapping[str, NDArray[Any]] | None = None,
    save: Path | None = None,
    delays: Floats | None = None,
    track: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Measured:
    """Run a schedule several times with the same operands.

    InputError for less than one run, more ranks than run, or a missing operand; for a check of an executor
    that multiplies nothing, a checkpoint of one that cannot save, or delays of one without real ranks.
    EndedEarlyError on Ctrl-C after a run that counts, with the runs so far.

    Args:
        iters: Counted runs, ≥ 1.
        warmup: Runs before them that do not count.
        check: Whether to hold every run's C, or outputs, against float64 NumPy.
        operands: Those of the schedule by name, perhaps with others; random ones if None.
        save: Folder of the checkpoint that operands and results become after the last run, if any.
        delays: How late each rank is in each counted run, as :class:`umm.executor.Delaying` takes it.
        track: Gives the numbers of the runs one after another, showing how far it is.
    """
    if iters < 1 or warmup < 0:
        raise InputError(
            f"{iters} runs after {warmup} to warm up are not possible; --iters ≥ 1, --warmup ≥ 0"
        )
    if isinstance(performer, Leader):
        expect_ranks(schedule, performer.ranks)  # before operands are drawn, which may take minutes
    given, checked = _held(schedule, check, operands)
    saving = saver(performer, name) if save is not None else None
    late = _late(performer, name, save) if delays is not None else None
    best, worst_check, seconds = None, None, []
    try:
        for i in track(range(warmup + iters)):
            if saving is not None and i == warmup + iters - 1:
                trace = saving.run(schedule, given, save=save)
            elif late is not None and delays is not None and i >= warmup:
                (trace,) = late.delayed(schedule, delays[i - warmup : i - warmup + 1], given)
            else:
                trace = performer.run(schedule, given)
            if checked is not None:
                if trace.result is None:
                    raise InputError(f"executor {name} multiplies no matrices; leave out --check")
                result = checked(trace)
                if worst_check is None or not result.relative <= worst_check.relative:
                    worst_check = result
            if i < warmup:
                continue
            seconds.append(trace.makespan_s)
            if best is None or trace.makespan_s < best.makespan_s:
                best = trace
    except KeyboardInterrupt:
        if best is None:
            raise
        raise EndedEarlyError(Measured(best, tuple(seconds), worst_check, complete=False)) from None
    assert best is not None
    return Measured(best, tuple(seconds), worst_check)


def _late(performer: Executor, name: str, save: Path | None) -> Delaying:
    if not isinstance(performer, Delaying):
        raise InputError(f"executor {name} cannot delay its ranks; --executor mpi can")
    if save is not None:
        raise InputError("a run with delays saves nothing; leave out --save or --delay")
    return performer


def _held(
    schedule: Schedule, check: bool, operands: Mapping[str, NDArray[Any]] | None
) -> tuple[Operands, Callable[[Trace], checks.Check] | None]:
    """Return operands, and a function that checks a run's results against a reference, if asked for."""
    program = schedule.program
    single = program.kind == "problem"
    if operands is not None:
        given = _chosen(schedule, operands)
    elif single:
        given = dict(zip("AB", random_operands(schedule.problem), strict=True))
    else:
        given = checks.random_inputs(cast(Chain, program))
    if not check:
        return given, None
    if not single:
        chain = cast(Chain, program)
        outputs = checks.chain_reference(chain, given)
        return given, lambda trace: checks.check_outputs(chain, outputs, trace.results)
    problem = schedule.problem
    product = checks.reference_product(given["A"], given["B"])
    return given, lambda trace: checks.check_product(problem, product, trace.results["C"])


def _chosen(schedule: Schedule, operands: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the operands of a schedule among others; InputError if one is missing or has another shape."""
    arrays = {}
    for tensor in schedule.tensors:
        if tensor.is_input:
            if tensor.name not in operands:
                raise InputError(
                    f"operand {tensor.name} is missing; there are {', '.join(operands) or 'none'}"
                )
            arrays[tensor.name] = operands[tensor.name]
            if arrays[tensor.name].shape != tensor.shape:
                raise InputError(
                    f"operand {tensor.name} has shape {arrays[tensor.name].shape}, but the schedule's is "
                    f"{tensor.shape}"
                )
    return arrays
