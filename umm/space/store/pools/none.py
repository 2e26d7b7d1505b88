"""This process alone."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class Here(Executor):
    """Performs what is submitted at once, before it returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Return a future that is done; an interruption ends the caller."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def pool(jobs: int | None) -> Executor:
    """Return the pool; there is one job, whatever is asked for."""
    return Here()
