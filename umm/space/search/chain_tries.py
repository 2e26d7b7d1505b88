"""The assignments of a chain's layouts that a search has simulated, and the best of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import nan
from time import process_time
from typing import Any

from umm.algorithms.chains.lower import lower
from umm.chains import Chain
from umm.machines import Machine
from umm.schedules.schedule import Schedule
from umm.space.bounds.chain_tables import ChainTables, Place
from umm.space.bounds.chain_work import moved_bytes

PER_ACTION = 1.5e-4
"""Seconds that building and simulating an action of a long chain is taken to need, unless it needed more."""


@dataclass(frozen=True, eq=False)
class ChainChoice:
    """An assignment of layouts that was simulated.

    Attributes:
        chain: The chain in these layouts.
        options: Of the universal algorithm, for all its multiplies.
        actions: How many actions it is.
        layouts: The layout of each tensor as text.
        stationary: The matrix that stays in place of each product.
        makespan_s: Seconds of the joined schedule.
        bound_s: Its lower bound in seconds.
        fraction_of_peak: Useful flop/s over the peak of the devices used.
        memory_bytes: What the fullest rank holds: what it allocates, and the optimizer's state.
    """

    chain: Chain = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    actions: int = field(repr=False)
    layouts: dict[str, str]
    stationary: dict[str, str]
    makespan_s: float
    bound_s: float
    fraction_of_peak: float
    memory_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {x.name: getattr(self, x.name) for x in fields(self) if x.repr}

    def schedule(self, machine: Machine) -> Schedule:
        """Return its schedule on a machine."""
        return lower(self.chain, machine, stationary=self.stationary, **self.options)


class Tries:
    """What has been simulated so far.

    Attributes:
        tables: What every statement takes.
        machine: Where.
        simulate: Returns the makespan of a schedule.
        limit: Bytes a rank may hold.
        best: The best assignments that fit, fastest first.
        simulated: How many were simulated.
        respected: Whether none was faster than its bound.
    """

    def __init__(
        self,
        tables: ChainTables,
        machine: Machine,
        simulate: Callable[[Schedule], float],
        limit: int,
        top: int,
        most: int,
        until: float,
        options: Mapping[str, Any],
    ) -> None:
        self.tables, self.limit, self.machine, self.simulate = tables, limit, machine, simulate
        self._options = options
        self._top, self._left = top, most
        self._until, self._per_action = until, PER_ACTION
        self._known: dict[Place, ChainChoice | None] = {}
        self.best: list[ChainChoice] = []
        self.simulated, self.respected = 0, True

    @property
    def last(self) -> float:
        """Makespan of the last of the best, infinite while there are fewer than asked for."""
        return self.best[-1].makespan_s if len(self.best) >= self._top else float("inf")

    @property
    def exhausted(self) -> bool:
        """Whether as many actions have been simulated as may be, or the time is over."""
        return self._left <= 0 or process_time() > self._until

    def affords(self, place: Place) -> bool:
        """Whether an assignment has been simulated, or can be in half of the time that is left."""
        tables = self.tables
        actions = sum(table.work(place).actions for table in tables.statements)
        return place in self._known or 2 * actions * self._per_action <= self._until - process_time()

    def makespan(self, place: Place) -> float | None:
        """Return the makespan of an assignment, simulated if it has not been; None if it does not fit."""
        if place not in self._known:
            self._known[place] = self._tried(place)
        found = self._known[place]
        return found.makespan_s if found else None

    def laid_out(self, layouts: Mapping[str, str]) -> float | None:
        """Return the makespan of layouts that are not of the space, likewise."""
        space = self.tables.space
        stationary = "auto" if space.stationary == "best" else space.stationary
        chain = space.chain.laid_out(layouts, space.ranks or 1)
        schedule = lower(chain, self.machine, stationary=stationary, **self._options)
        return self.simulate(schedule) if int(schedule.memory_bytes.max()) <= self.limit else None

    def moved(self, choice: ChainChoice) -> list[tuple[str, Mapping[str, int]]]:
        """Return for each statement that moves something what it is, and the bytes of each tensor."""
        space = self.tables.space
        chain = space.chain.laid_out(choice.layouts, space.ranks or 1)
        found: list[tuple[str, Mapping[str, int]]] = []
        tensors = {x.name: x for x in chain.tensors}
        for statement in chain.statements:
            stays = choice.stationary.get(statement.out, "auto")
            nbytes = moved_bytes(statement, tensors, self.machine, self._options, stays)
            if nbytes:
                found.append((str(statement), nbytes))
        return found

    def _tried(self, place: Place) -> ChainChoice | None:
        begin, tables, space = process_time(), self.tables, self.tables.space
        chain, stationary = space.laid_out(place), tables.stationary(place)
        schedule = lower(chain, self.machine, stationary=stationary, **self._options)
        nbytes = int((schedule.memory_bytes + tables.state_bytes(place)).max())
        if nbytes > self.limit:
            return None
        seconds, bound = self.simulate(schedule), tables.bound(place)
        self._per_action = max(self._per_action, (process_time() - begin) / len(schedule))
        self.simulated += 1
        self._left -= len(schedule)
        self.respected = self.respected and seconds >= bound
        peak = chain.flop / (seconds * schedule.peak) if schedule.peak else nan
        choice = ChainChoice(
            chain, self._options, len(schedule), space.texts(place), stationary, seconds, bound, peak, nbytes
        )
        self.best.append(choice)
        self.best.sort(key=lambda x: (float(f"{x.makespan_s:.9e}"), x.memory_bytes, str(x.layouts)))
        del self.best[self._top :]
        return choice
