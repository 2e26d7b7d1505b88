"""Run a schedule several times with an executor and keep the best run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from umm.checks import check_product, random_operands, reference_product
from umm.cli.group import INTERRUPTED
from umm.cli.measured import Measured
from umm.cli.printed.output import Output
from umm.errors import ExecutorUnavailableError, InputError, UmmError
from umm.executor import Executor, Leader, executor, times_of
from umm.host.launcher import launched_rank, launched_size
from umm.schedules.table import Schedule


@contextmanager
def performing(
    ctx: click.Context, name: str, options: dict[str, Any], flags: dict[str, Any], output: Output
) -> Iterator[Executor]:
    """Give an executor for a command, and end it with the command.

    Of the ranks that mpiexec has started, rank 0 performs the command; the others do what it asks for, and
    leave the command here with its exit code.

    Args:
        ctx: The command.
        name: Name of the executor.
        options: The executor's own.
        flags: Those of the problem; without --ranks it gets the ranks that run already.
        output: Where notes go.

    Raises:
        ExecutorUnavailableError: if the executor cannot run here.
        InputError: for the one that only predicts, or an option the executor does not take.
    """
    performer = executor(name, **options)
    if times_of(performer) == "predicted":
        raise InputError(f"{name} predicts, it does not execute; use umm simulate")
    reason = performer.available()
    if reason is not None:
        raise ExecutorUnavailableError(reason)
    if not isinstance(performer, Leader):
        if launched_rank() == 0 and (launched_size() or 1) > 1:
            output.note(
                f"each of the {launched_size()} processes performs all ranks by itself; with --executor mpi "
                "they are the ranks"
            )
        yield performer
        return
    code = performer.follow()
    if code is not None:
        ctx.exit(code)
    processes = performer.processes()
    if processes:
        output.note(processes)
    if flags["ranks"] is None:
        flags["ranks"] = performer.ranks
    code = UmmError.exit_code
    try:
        yield performer
        code = 0
    except UmmError as error:
        code = error.exit_code
        raise
    except KeyboardInterrupt:
        code = INTERRUPTED
        raise
    finally:
        performer.close(code)


def measure(
    schedule: Schedule,
    performer: Executor,
    name: str,
    iters: int,
    warmup: int,
    check: bool,
    output: Output,
) -> Measured:
    """Run a schedule.

    Args:
        schedule: What to run.
        performer: Who runs it.
        name: Its name.
        iters: Counted runs, ≥ 1.
        warmup: Runs before them that do not count.
        check: Whether to hold every run's C against float64 NumPy.
        output: Where progress goes.

    Raises:
        InputError: for less than one run, or a check of an executor that multiplies nothing.
    """
    if iters < 1 or warmup < 0:
        raise InputError(
            f"{iters} runs after {warmup} to warm up are not possible; --iters ≥ 1, --warmup ≥ 0"
        )
    problem = schedule.problem
    a, b = random_operands(problem)
    reference = reference_product(a, b) if check else None
    best, worst_check, seconds = None, None, []
    with output.progress() as progress:
        for i in progress.track(range(warmup + iters), description=f"running with {name}"):
            trace = performer.run(schedule, (a, b))
            if reference is not None:
                if trace.result is None:
                    raise InputError(f"executor {name} multiplies no matrices; leave out --check")
                found = check_product(problem, reference, trace.result)
                if worst_check is None or not found.max_abs_error <= worst_check.max_abs_error:
                    worst_check = found
            if i < warmup:
                continue
            seconds.append(trace.makespan_s)
            if best is None or trace.makespan_s < best.makespan_s:
                best = trace
    assert best is not None
    return Measured(best, tuple(seconds), worst_check)
