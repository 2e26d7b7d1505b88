"""The work of every statement of a chain for all layouts of its tensors, and bounds that follow from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from umm.algorithms.chains.multiplies import as_problem
from umm.arrays import Floats
from umm.chains import Multiply, Statement
from umm.chains.statements import statement_to_dict
from umm.machines import Machine
from umm.problem import MATRICES
from umm.space.bounds.chain_work import StatementWork, statement_work
from umm.space.chain_space import ChainSpace
from umm.tensors import Tensor

Place = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StatementTable:
    """What a statement takes for every choice of the groups its tensors belong to.

    Attributes:
        groups: Numbers of these groups, ascending.
        seconds: By choice of each group, then by resource; see :class:`StatementWork`.
        works: By choice of each group.
    """

    groups: tuple[int, ...]
    seconds: Floats
    works: Mapping[Place, StatementWork]

    def work(self, place: Sequence[int]) -> StatementWork:
        """Return what it takes in an assignment."""
        return self.works[tuple(place[group] for group in self.groups)]


@dataclass(frozen=True, eq=False)
class ChainTables:
    """The tables of a chain's statements, and the bytes of its tensors.

    Attributes:
        space: Of which chain and layouts.
        statements: A table for each statement, in order.
        held: By group and choice the bytes of its tensors on each rank.
        state: Likewise those of the optimizer's state of its weights, held too.
    """

    space: ChainSpace
    statements: tuple[StatementTable, ...]
    held: tuple[Floats, ...]
    state: tuple[Floats, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of choices of each group."""
        return tuple(len(x) for x in self.space.choices)

    def busiest(self, place: Sequence[int]) -> float:
        """Return the seconds of the busiest resource of an assignment, a lower bound of its makespan."""
        rows = [table.seconds[tuple(place[x] for x in table.groups)] for table in self.statements]
        return float(np.sum(rows, axis=0).max())

    def bound(self, place: Sequence[int]) -> float:
        """Return the best lower bound of an assignment's makespan there is here."""
        return max(self.busiest(place), self.in_order(place))

    def memory(self, place: Sequence[int]) -> int:
        """Return the bytes of all tensors, and of the optimizer's state, on the fullest rank."""
        return int(self._bytes(self.held, place).max())

    def state_bytes(self, place: Sequence[int]) -> Floats:
        """Return the bytes of the optimizer's state on each rank."""
        return self._bytes(self.state, place)

    def stationary(self, place: Sequence[int]) -> dict[str, str]:
        """Return the matrix that stays in place of each product that is no batch."""
        pairs = zip(self.space.chain.statements, self.statements, strict=True)
        return {
            x.out: table.work(place).stationary
            for x, table in pairs
            if isinstance(x, Multiply) and not x.is_batch
        }

    def in_order(self, place: Sequence[int]) -> float:
        """Return a lower bound of an assignment's makespan, by the order of its statements.

        The compute lane of a rank takes statements in their order. Where a result is replicated, its sums
        begin when the last gemm of any rank has ended, and what reads it begins after the first of them.
        """
        ready: dict[str, float] = {}
        finish: Any = 0.0
        end = 0.0
        for statement, table in zip(self.space.chain.statements, self.statements, strict=True):
            work = table.work(place)
            start = max((ready.get(name, 0.0) for name in statement.reads), default=0.0)
            computes = work.span > 0
            finish = np.where(computes, np.maximum(finish, start) + work.span, finish)
            last = float(finish[computes].max(initial=start))
            ready[statement.out] = last + work.ready if work.summed else start
            end = max(end, last + work.summed)
        return end

    def all_busiest(self) -> Floats:
        """Return :meth:`busiest` of every assignment, numbered with the last group fastest."""
        found = []
        for first in range(self.shape[0]):  # not all at once, to need less memory
            total = np.zeros((*self.shape[1:], self.statements[0].seconds.shape[-1]))
            for table in self.statements:
                seconds = table.seconds[first] if 0 in table.groups else table.seconds
                total += seconds.reshape(*self._spread(table.groups)[1:], -1)
            found.append(total.max(axis=-1).reshape(-1))
        return np.concatenate(found)

    def all_memory(self) -> Floats:
        """Return :meth:`memory` of every assignment."""
        total = np.zeros((*self.shape, self.held[0].shape[-1]))
        for number, of in enumerate(self.held):
            total += of.reshape(*self._spread((number,)), -1)
        return np.asarray(total.max(axis=-1).reshape(-1))

    def _bytes(self, held: Sequence[Floats], place: Sequence[int]) -> Floats:
        return np.asarray(np.sum([of[x] for of, x in zip(held, place, strict=True)], axis=0))

    def _spread(self, groups: Sequence[int]) -> list[int]:
        return [n if group in groups else 1 for group, n in enumerate(self.shape)]


def chain_tables(space: ChainSpace, machine: Machine, options: Mapping[str, Any]) -> ChainTables:
    """Return the tables of a chain; equal multiplies and equal statements are priced once."""
    ranks = space.ranks or 1
    group_of = {name: number for number, names in enumerate(space.groups) for name in names}
    laid = {
        x.name: [x.laid_out(text, ranks) for text in space.choices[group_of[x.name]]]
        for x in space.chain.tensors
    }
    known: dict[object, StatementWork] = {}
    found: list[tuple[Place, dict[Place, StatementWork]]] = []
    for statement in space.chain.statements:
        names = dict.fromkeys((statement.out, *statement.reads))
        groups = tuple(sorted({group_of[x] for x in names}))
        stays, works = _stays(space, statement), {}
        for place in product(*(range(len(space.choices[x])) for x in groups)):
            chosen = dict(zip(groups, place, strict=True))
            tensors = {x: laid[x][chosen[group_of[x]]] for x in names}
            key = stays, _work_key(statement, tensors)
            if key not in known:
                known[key] = _least(statement, tensors, machine, options, stays)
            works[place] = known[key]
        found.append((groups, works))
    tables = []
    for number, (groups, works) in enumerate(found):
        seconds = _seconds(space, number, [works for _, works in found])
        shape = [len(space.choices[x]) for x in groups]
        tables.append(StatementTable(groups, seconds.reshape(*shape, -1), works))
    state = [
        np.sum([_elements(laid[x]) * space.state for x in names if x in space.chain.weights], axis=0)
        + np.zeros((len(choices), ranks))
        for names, choices in zip(space.groups, space.choices, strict=True)
    ]
    held = [
        np.sum([[x.nbytes_of_rank for x in laid[name]] for name in names], axis=0) + of
        for names, of in zip(space.groups, state, strict=True)
    ]
    return ChainTables(space, tuple(tables), tuple(held), tuple(state))


def _stays(space: ChainSpace, statement: Statement) -> str:
    """Return which matrix a statement keeps in place, or ``best``, where it alone writes its product."""
    writers = [x for x in space.chain.statements if x.out == statement.out and isinstance(x, Multiply)]
    free = isinstance(statement, Multiply) and not statement.is_batch and len(writers) == 1
    return "auto" if space.stationary == "best" and not free else space.stationary


def _least(
    statement: Statement,
    tensors: Mapping[str, Tensor],
    machine: Machine,
    options: Mapping[str, Any],
    stationary: str,
) -> StatementWork:
    """Return the work of a statement; with ``best`` the least of those with each matrix in place."""
    if stationary != "best":
        return statement_work(statement, tensors, machine, options, stationary)
    works = [statement_work(statement, tensors, machine, options, x) for x in ("auto", *MATRICES)]
    return min(works, key=lambda work: float(np.append(work.seconds, work.span + work.summed).max()))


def _elements(laid: Sequence[Tensor]) -> Floats:
    return np.array([x.layout.elements_of_rank for x in laid], dtype=np.float64)


def _seconds(space: ChainSpace, number: int, works: Sequence[Mapping[Place, StatementWork]]) -> Floats:
    """Return the seconds of a statement by choice and by resource; the last ones are ranks in their order.

    A rank's spans of statements do not overlap. Where the next statement reads a replicated result, a rank
    waits for the first of its sums between the two; and all is over when the last statement's are.
    """
    statements, own = space.chain.statements, works[number].values()
    if number + 1 == len(statements):
        return np.array([np.append(work.seconds, work.span + work.summed) for work in own])
    waits = np.zeros(space.ranks or 1)
    if statements[number].out in statements[number + 1].reads:
        waits += np.all([work.span > 0 for work in works[number + 1].values()], axis=0)
    return np.array([np.append(work.seconds, work.span + waits * work.ready) for work in own])


def _work_key(statement: Statement, tensors: Mapping[str, Tensor]) -> object:
    """Return what the work of a statement depends on, whatever its tensors are called."""
    if isinstance(statement, Multiply) and not statement.is_batch:
        return as_problem(statement, tensors)
    number = {name: i for i, name in enumerate(tensors)}
    said = statement_to_dict(statement)
    named = [number[name] for name in (statement.out, *statement.reads)]
    rest = {key: value for key, value in said.items() if key not in ("out", "a", "b", "x", "reads")}
    return (str(rest), str(named), *((x.shape, x.dtype, str(x.layout)) for x in tensors.values()))
