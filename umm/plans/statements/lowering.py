"""The lowering of one statement, found by its kind: each file beside this one registers its own."""

from collections.abc import Collection
from functools import singledispatch
from typing import NamedTuple

from umm.errors import ScheduleError
from umm.plans.partition import Asked, Do
from umm.program import Statement
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

Partial = dict[str, list[tuple[int, Slice]]]
"""Sums over some of k that ranks keep of products of experts, and the replica of the product they are of."""


class Context(NamedTuple):
    """Where a statement stands in a plan."""

    asked: Asked  # how the chain is asked to be done
    step: Do  # the step that does it
    before: Statement | None  # the statement that is written before it
    written: Collection[str]  # tensors that earlier statements have written, so that they are not zero
    # Products that only sums of each token's rows read, so that these may add up partial ones.
    combined: Collection[str]
    partial: Partial  # where ranks keep those, by the name of the product
    # Gets what it writes if replicas of that keep partial sums, which the next multiply that adds to it sums
    # with its own; None where it does not.
    unsummed: set[str] | None = None


@singledispatch
def write(statement: Statement, build: Builder, context: Context) -> str | None:
    """Write the actions of a statement; every replica of its results is complete afterwards.

    Return how its sums move, for the schedule's options; None or an empty text if not by one collective.
    """
    raise ScheduleError(f"no file of umm.plans.statements lowers a {statement.kind}")
