"""The outcome of a program on each rank: its result or its error."""

from typing import Any

Outcome = tuple[bool, Any]  # whether it went well, and the result or the error


def results(outcomes: list[Outcome]) -> list[Any]:
    """Return a program's results by rank, or raise the error of the lowest rank that has one.

    >>> results([(True, 3), (True, 4)])
    [3, 4]
    """
    for went_well, result in outcomes:
        if not went_well:
            raise result
    return [result for _, result in outcomes]
