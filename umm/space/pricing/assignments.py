"""Prices assignments of layouts to a program of several statements."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np

from umm.arrays import Bools, Ints
from umm.errors import InfeasibleError
from umm.machines import Machine
from umm.plans.fingerprint import fingerprint
from umm.plans.lower import lower
from umm.plans.movement.choice import of_movement, way_of
from umm.plans.plan import movement_of, ways_of
from umm.plans.steady import of_several
from umm.program import Chain, Outline
from umm.program.layers import X
from umm.program.statements.multiply import is_product
from umm.program.systems import choices_left, in_scheme
from umm.schedules.schedule import Schedule
from umm.space.assignments import Assignments, Place
from umm.space.bounds.statement_work import moved_bytes
from umm.space.bounds.tables import Known, Tables, beside_a_layer, tables_of
from umm.space.choice import Choice
from umm.space.pricing.pricer import Makespan, Pricer, Work
from umm.units import format_bytes

WRITTEN, BOUNDED, ESTIMATED = 40, 10, 2
"""Actions that are written in the time that a statement takes beside its own, is bounded in, and estimated.

Layers on 4 to 32 ranks: 11 to 15 µs an action, and .5 ms, 80 to 210 µs and 27 µs a statement.
"""


class AssignmentPricer(Pricer):
    """The assignments of a program's layouts on a machine, with the results of several searches of them."""

    points: Assignments
    equals = False

    def __init__(
        self,
        points: Assignments,
        machine: Machine,
        makespan: Makespan,
        state: float = 0.0,
        layers: int = 1,
        known: Known | None = None,
        work: Work | None = None,
    ) -> None:
        """Price every statement.

        Args:
            state: Bytes of optimizer state for each element of a weight.
            layers: How many layers like this one there are: memory is for all, and times are of one in the
                middle.
            known: Work that is known of the same statements on the machine; it is added to.
            work: Counts what is done; begins anew if None.
        """
        self.points, self.machine, self.makespan = points, machine, makespan
        self._options = points.options.to_dict()
        self._state, self._layers = state, layers
        self._known: Known = {} if known is None else known
        # What every statement takes, for all layouts of its tensors.
        self.tables: Tables = tables_of(points, machine, self._options, state, layers, self._known)
        self.choices: dict[Place, Choice] = {}  # the simulated assignments
        self.respected, self.built, self.work = True, 0, work or Work()
        # Schedules are large and dropped once simulated; memory and identities are small and stay.
        self._schedules: dict[Place, Schedule] = {}
        self._last: tuple[Place, Chain] | None = None
        self._memory: dict[Place, int] = {}
        self._same: dict[Place, Place] = {}
        self._first: dict[bytes, Place] = {}

    def by_way(self, ways: Sequence[str]) -> "AssignmentPricer":
        """Return who prices the points with a movement for the multiplies of each product."""
        points = replace(self.points, ways=tuple(ways))
        return AssignmentPricer(
            points, self.machine, self.makespan, self._state, self._layers, self._known, self.work
        )

    def ascending(self, limit: int, among: Bools | None = None) -> tuple[list[Place], list[float]]:
        """Return the assignments that may fit by ascending bound, that of their busiest resource."""
        busiest = self.tables.all_busiest()
        able = self.tables.all_memory() <= limit
        able = able if among is None else able & among
        # Stable sort: places with equal bounds keep their number's order, and so the answer.
        order: Ints = np.argsort(np.where(able, busiest, math.inf), kind="stable")[: np.count_nonzero(able)]
        places = zip(*(x.tolist() for x in np.unravel_index(order, self.tables.shape)), strict=True)
        return list(places), busiest[order].tolist()

    def better(self, point: Place, bound: float) -> float:
        """Return a better bound of an assignment, by the order of its statements."""
        self._count(BOUNDED)
        return bound if self.tables.inner else max(bound, self.tables.in_order(point))

    def memory(self, point: Place) -> int:
        """Return the bytes of the fullest rank at an assignment."""
        point = self.same(point)
        if point not in self._memory:
            # A search asks for memory first and simulates next: the schedule
            # written for the one serves the other.
            schedule = self._schedules[point] = self._lowered(point)
            self._memory[point] = int((schedule.memory_bytes + self.tables.bytes_beside(point)).max())
            self.built += 1
        return self._memory[point]

    def fits(self, point: Place, limit: int) -> bool:
        """Return whether the fullest rank holds at most so many bytes at an assignment."""
        return self.memory(point) <= limit

    def bound(self, point: Place) -> float:
        """Return the best lower bound of an assignment there is; its schedule adds nothing."""
        self._count(BOUNDED)
        return self.tables.bound(point)

    def estimate(self, point: Place) -> float:
        """Estimate an assignment's makespan in seconds; see :meth:`Tables.in_turn`."""
        self._count(ESTIMATED)
        return self.tables.in_turn(point)

    def actions(self, point: Place) -> int:
        """Return how many actions the schedule of an assignment has, about."""
        return self.tables.actions(point)

    def known(self, point: Place) -> bool:
        """Return whether an assignment that takes the same time was simulated."""
        return self.same(point) in self.choices

    def same(self, point: Place) -> Place:
        """Return the first assignment that was looked at of those whose schedules take the same time."""
        if point not in self._same:
            self._count(BOUNDED)  # about
            chain, stays = self._program(point), self.tables.stationary(point)
            movement = self.points.movement(point)
            ways = ways_of(chain, self.machine, stays, movement)
            # Different layouts may lead to schedules that take the same time;
            # a fingerprint is far cheaper than one.
            key = fingerprint(chain, ways, stays, movement)
            self._same[point] = self._first.setdefault(key, point)
        return self._same[point]

    def simulated(self, point: Place, bound: float) -> tuple[Place, Choice]:
        """Return an assignment, and it with its makespan."""
        # One simulation serves all equal places, but each has its own bound, which has to hold as well.
        first = self.same(point)
        if first != point:
            _, alike = self.simulated(first, bound)
            self.respected = self.respected and alike.makespan_s >= bound
            self.choices[point] = replace(
                alike, program=self.points.program(point), layouts=self.points.layouts(point),
                movement=self._movement(point), bound_s=bound,
            )  # fmt: skip
        elif point not in self.choices:
            memory = self.memory(point)
            schedule = self._schedules.get(point) or self._lowered(point)
            program, layouts = self._program(point), self.points.layouts(point)
            seconds, times = self._seconds(schedule, self.points.outline, layouts, self._how(point), bound)
            self.drop(point)
            self.respected = self.respected and seconds >= bound
            self.choices[point] = Choice(
                program, layouts, self.tables.stationary(point), self.points.options,
                seconds, bound, memory, int(schedule.pool_bytes.max()),
                program.flop / (seconds * schedule.peak) if schedule.peak else nan, actions=len(schedule),
                times=times, movement=self._movement(point),
            )  # fmt: skip
        return point, self.choices[point]

    def adopt(self, point: Place, choice: Choice) -> None:
        """Take the choice of an assignment that another pricer has simulated."""
        point = self.same(point)
        self._memory[point] = choice.memory_bytes
        self.choices[point] = replace(choice, movement=self._movement(point))

    def text(self, point: Place) -> str:
        """Return a ranking's last tie-break."""
        return str(self.points.layouts(point))

    def drop(self, point: Place) -> None:
        """Keep no longer the schedule of an assignment."""
        self._schedules.pop(point, None)

    def infeasible(self, limit: int) -> InfeasibleError:
        """Return the refusal of a limit that no assignment fits, with the bytes of its tensors alone."""
        least = int(sum(nbytes.max(axis=-1).min() for nbytes in self.tables.held))
        return InfeasibleError(
            f"no layouts of chain {self.points.outline.name} fit {format_bytes(limit)} a rank; "
            f"its tensors alone take about {format_bytes(least)} or more"
        )

    def _seconds(
        self, made: Schedule, outline: Outline, layouts: Mapping[str, str], how: Any, least: float = 0.0
    ) -> tuple[float, float]:
        """Return the makespan of a layer, and this over that of its schedule.

        Of one among many it is the time that a second one adds to a model's first: its weights come while the
        layer before computes, and it waits for the sums of that layer's output.

        Args:
            outline: The layer, as its scheme runs it.
            how: As :func:`umm.plans.lower.lower` takes it.
            least: Load of its busiest resource, in seconds: two layers share idle time at their ends, so that
                the second may add less, but many cannot take less each.
        """
        alone = self.makespan(made)
        if not self.tables.inner:
            return alone, 1.0

        def several(layers: int) -> float:
            schedule = of_several(outline, layouts, self.points.ranks, self.machine, layers, **how)
            self._count(WRITTEN, len(schedule))
            return self.makespan(schedule)

        # The first reads from memory what a layer before leaves in registers: then it is not the schedule.
        first = alone if all(x.from_memory(X) == x for x in outline.statements) else several(1)
        seconds = max(least, several(2) - first)
        return seconds, seconds / alone

    @property
    def least_memory(self) -> int:
        """Bytes of the fullest rank of the assignment with the fewest, of those that were written; else 0."""
        return min(self._memory.values(), default=0)

    def outside(self, scheme: str | Mapping[str, str], limit: int) -> Choice | None:
        """Return a scheme or layouts outside the space as a choice; None if it does not fit.

        Args:
            scheme: Its name, as ``umm.schedule`` takes it, with what it changes of the program; or layouts.
            limit: Bytes that a rank may hold.
        """
        points, outline, layouts = self.points, self.points.outline, scheme
        stays = "auto" if points.stationary == "best" else points.stationary
        how: dict[str, Any] = {"stationary": stays, **self._options}
        # A scheme rewrites statements, so it is lowered from the outline and not from the tables.
        if isinstance(scheme, str):
            outline = in_scheme(scheme, outline, points.ranks)
        program = outline.laid_out(scheme, points.ranks)
        if isinstance(scheme, str):
            how |= choices_left(program, how, scheme)
            layouts = outline.layouts_of(scheme, points.ranks)
        assert isinstance(layouts, Mapping)
        made = lower(program, self.machine, **how)
        self._count(WRITTEN, len(made))
        beside = [beside_a_layer(outline, x, self._state, self._layers) for x in made.tensors]
        memory = int((made.memory_bytes + np.sum(beside, axis=0)).max())
        if memory > limit:
            return None
        seconds, times = self._seconds(made, outline, layouts, how)
        products = (x.out for x in outline.statements if is_product(x))
        return Choice(
            program, {x.name: layouts.get(x.name, "row") for x in outline.tensors},
            dict.fromkeys(products, stays), points.options, seconds, 0.0, memory, int(made.pool_bytes.max()),
            program.flop / (seconds * made.peak) if made.peak else nan, actions=len(made), times=times,
        )  # fmt: skip

    def moved(self, choice: Choice) -> list[tuple[str, Mapping[str, int]]]:
        """Return each statement that moves something in words, and the bytes of each tensor."""
        chain: Any = self.points.outline.laid_out(choice.layouts, self.points.ranks)
        moves: list[tuple[str, Mapping[str, int]]] = []
        tensors = {x.name: x for x in chain.tensors}
        assert isinstance(choice.stationary, Mapping)
        for number, statement in enumerate(chain.statements):
            stays = choice.stationary.get(statement.out, "auto")
            way = way_of(choice.movement or self.points.options.movement, statement.out)
            options = {**self._options, **of_movement(way)}
            nbytes = moved_bytes(chain.statements, number, tensors, self.machine, options, stays)
            if nbytes:
                how = movement_of(statement, tensors, self.machine, stays, way)
                moves.append((f"{statement} ({how})" if how else str(statement), nbytes))
        return moves

    def _movement(self, point: Place) -> dict[str, str]:
        """Return the movement of each product, where these are choices."""
        movement = self.points.movement(point)
        return {} if isinstance(movement, str) else movement

    def _lowered(self, point: Place) -> Schedule:
        made = lower(self._program(point), self.machine, **self._how(point))
        self._count(WRITTEN, len(made))
        return made

    def _how(self, point: Place) -> dict[str, Any]:
        """Return the options of an assignment's schedule."""
        movement = self.points.movement(point)
        return {**self._options, "stationary": self.tables.stationary(point), "movement": movement}

    def _count(self, of_each: int, more: int = 0) -> None:
        """Count work: so much for each statement, and more once."""
        self.work.done += of_each * len(self.points.outline.statements) + more

    def _program(self, point: Place) -> Chain:
        """Return the chain in the layouts of an assignment; the last one is kept."""
        if self._last is None or self._last[0] != point:
            self._last = point, self.points.program(point)
        return self._last[1]
