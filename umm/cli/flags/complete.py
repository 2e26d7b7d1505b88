"""What a shell completes: names of machines, types, executors, algorithms, and values of options."""

from collections.abc import Callable, Iterable

import click

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def among(find: Callable[[], Iterable[str]]) -> Complete:
    """Return what completes the last part of a comma list from names that are looked up only then."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in find() if name.startswith(last)]

    return complete


def machines() -> Iterable[str]:
    """Return the machines known by name."""
    from umm.machines import machine_names

    return machine_names()


def executors() -> Iterable[str]:
    """Return the executors that are installed."""
    from umm.executor import executor_names

    return executor_names()
