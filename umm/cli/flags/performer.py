"""From --executor and its options to an executor that lives as long as the command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from umm.cli.printed.output import Output
from umm.errors import INTERRUPTED, ExecutorUnavailableError, InputError, UmmError
from umm.executor import Executor, Leader, executor, times_of
from umm.host.launcher import launched_rank, launched_size


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
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
        raise
    finally:
        performer.close(code)
