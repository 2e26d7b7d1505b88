"""From the name of an executor to one that performs for a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.declared import Asked
from umm.errors import INTERRUPTED, ExecutorUnavailableError, InputError, UmmError
from umm.host.launcher import launched_rank, launched_size

if TYPE_CHECKING:
    from umm.executor import Executor


@contextmanager
def performing(
    asked: Asked, name: str, options: dict[str, Any], ranks: int | None
) -> Iterator[tuple["Executor", int | None]]:
    """Give an executor for a command and the ranks it is for, and end it with the command.

    Of the ranks that mpiexec has started, rank 0 performs the command; the others do what it asks for, and
    leave the command here with its exit code. ExecutorUnavailableError if the executor cannot run here.
    InputError for the one that only predicts, or an option the executor does not take.

    Args:
        options: The executor's own.
        ranks: As asked for; None for those that run already, if some do.
    """
    from umm.executor import Leader, executor, times_of

    output, performer = asked.output, executor(name, **options)
    if times_of(performer) == "predicted":
        raise InputError(f"{name} predicts, it does not execute; use umm simulate")
    reason = performer.available()
    if reason is not None:
        raise ExecutorUnavailableError(reason)
    if not isinstance(performer, Leader):
        if launched_rank() == 0 and (launched_size() or 1) > 1:
            output.note(
                f"each of the {launched_size()} processes runs all ranks by itself; with --executor mpi "
                "they are the ranks"
            )
        yield performer, ranks
        return
    code = performer.follow()
    if code is not None:
        asked.ctx.exit(code)
    processes = performer.processes()
    if processes:
        output.note(processes)
    code = UmmError.exit_code
    try:
        yield performer, performer.ranks if ranks is None else ranks
        code = 0
    except UmmError as error:
        code = error.exit_code
        raise
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
        raise
    finally:
        performer.close(code)
