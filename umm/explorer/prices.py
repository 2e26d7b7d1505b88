"""All points of a space with their times: bounds first, then what a search proves, then each exactly."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice, product
from time import monotonic
from typing import Any

import numpy as np

from umm.algorithms.universal.options import COMPLETE, Options
from umm.arrays import Bools, Floats, Ints
from umm.errors import InputError, UmmError
from umm.executor import executor
from umm.explorer.background import Question, Send
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.schedules.schedule import Schedule
from umm.space import Choice, Space
from umm.space.bounds.closed_form import Bounds, closed_form
from umm.space.points import MultiplyPoints
from umm.space.pricing.multiplies import MultiplyPricer
from umm.space.search.found import front
from umm.space.search.search import best_of
from umm.space.search.walk import BestFirst

TOP = 40
"""How many of the best are proven and ranked."""
RANGES = 10
"""How many of them get the range of their makespan."""
NEAR = 1.01
"""The part of the front that advice is taken from comes first: what takes this many times the best."""
MOST_EXACT = 10_000
"""Of a space with more points only those are simulated that a proof needs."""
MOST_PAIRS = 4e8
"""A space with more points times pairs of ranks is not priced: it would take minutes."""
EVERY = 0.25
"""Seconds between two messages."""


class Priced(Question):
    """The points of a space, each with a lower bound of its time or the simulated one.

    Attributes:
        space: What may be chosen.
        machine: Where.
        limit: Bytes that a rank may have.
        points: The points; None until they are priced.
        seconds: Makespan of each, or its bound.
        memory: Bytes of its fullest rank; of a bound the least it can be.
        exact: Which are simulated.
        top: The best by the search, proven; none until they are.
        front: The points of the front that are proven so far, by ascending memory.
        ranges: The ranges of the first of the top, in seconds.
        stage: What is known by now: ``priced``, ``top``, ``front``, ``factors``, ``all``; empty before.
        refusal: Why nothing is found, if that is so.
    """

    def __init__(self, space: Space, machine: Machine, limit: int) -> None:
        super().__init__()
        self.space, self.machine, self.limit = space, machine, limit
        self.points: MultiplyPoints | None = None
        self.seconds: Floats = np.zeros(0)
        self.memory: Floats = np.zeros(0)
        self.exact: Bools = np.zeros(0, dtype=bool)
        self.top: list[Choice] = []
        self.front: list[Choice] = []
        self.ranges: list[tuple[float, float]] = []
        self.stage = self.refusal = ""
        self._began = self._left = 0.0
        self._bounds: Bounds | None = None

    def price(self) -> None:
        """Price the points here if they are few: a process takes as long again to begin and to warm up."""
        if self.stage:
            return
        try:
            points = points_of(self.space)
        except UmmError:
            return  # the process says why
        if len(points) <= MOST_EXACT and len(points) * points.bare.p**2 <= MOST_PAIRS:
            self._bounds = closed_form(points, self.machine)
            self.take(_told(points, self._bounds))

    def asked(self) -> tuple[Any, ...]:
        """Return what the process does."""
        self._began = monotonic()
        return look, self.space, self.machine, self.limit, self._bounds

    def take(self, message: dict[str, Any]) -> None:
        """Take in bounds, simulated points, or what a search has found."""
        if "points" in message:
            self.exact = np.zeros(len(message["points"]), dtype=bool)
        if "numbers" in message:
            numbers = message.pop("numbers")
            self.seconds[numbers], self.memory[numbers] = message.pop("times"), message.pop("held")
            self.exact[numbers] = True
            count = int(self.exact.sum())
            self._left = (monotonic() - self._began) / count * (len(self.exact) - count)
        vars(self).update(message)

    @property
    def words(self) -> str:
        """What is exact and what is a bound."""
        if self.refusal or self.failed:
            return self.refusal or self.failed
        count, exact = len(self.seconds), int(self.exact.sum())
        if not count:
            return "Pricing all points of the space."
        if exact == count:
            return f"{count:,} of {count:,} points exact."
        proven = {
            "priced": "The best are being proven",
            "top": f"The best {len(self.top)} are proven",
            "front": f"The best {len(self.top)} and the front are proven",
        }.get(self.stage, f"The best {len(self.top)}, the front and the best of all factors are proven")
        left = ""
        if self.stage == "factors" and not self.done and count <= MOST_EXACT:
            left = f", {max(1, round(self._left))} s left"
        return f"{proven}; {exact:,} of {count:,} points exact, the rest lower bounds{left}."

    @cached_property
    def factors(self) -> Ints:
        """Replication factors of A, B and C, shape (3, points)."""
        assert self.points
        return factors_of(self.points)

    def parts(self, number: int) -> tuple[tuple[str, str, str], str, Options]:
        """Return the layouts of A, B and C of a point, its stationary matrix and its options."""
        assert self.points
        options, stationary, a, b, c = self.points.parts(int(self.points.allowed[number]))
        return (str(a), str(b), str(c)), stationary, options

    def number(self, layouts: Sequence[Layout], stationary: str, options: Options) -> int | None:
        """Return the point with these layouts, however they are written; None if the space has none.

        With one replica of C no ending differs from another, and the first counts.
        """
        points = self.points
        if points is None or stationary not in self.space.stationary:
            return None
        known = points.options
        if layouts[2].replicas == 1:
            options, known = (
                replace(options, final=COMPLETE),
                [replace(x, final=COMPLETE) for x in points.options],
            )
        if options not in known:
            return None
        at = [of.get(layout) for of, layout in zip(self._numbers, layouts, strict=True)]
        if None in at:
            return None
        place = (known.index(options), self.space.stationary.index(stationary), *at)
        flat = np.ravel_multi_index(place, points.shape)  # type: ignore[arg-type]
        number = int(np.searchsorted(points.allowed, flat))
        return number if number < len(points) and points.allowed[number] == flat else None

    def number_of(self, choice: Choice) -> int:
        """Return the number of a point that a search has found."""
        number = self.number(choice.problem.layouts, choice.kept, choice.options)
        assert number is not None
        return number

    @cached_property
    def _numbers(self) -> list[dict[Layout, int]]:
        assert self.points
        return [{layout: i for i, layout in enumerate(layouts)} for layouts in self.points.choices]

    @property
    def best(self) -> Ints:
        """The points that fit, fastest first; of equals the one that needs less memory."""
        fits = np.flatnonzero(self.memory <= self.limit)
        return np.asarray(fits[np.lexsort((self.memory[fits], np.round(self.seconds[fits], 12)))])


def points_of(space: Space) -> MultiplyPoints:
    """Return the points of one multiply."""
    points = space.points()
    assert isinstance(points, MultiplyPoints)
    return points


def factors_of(points: MultiplyPoints) -> Ints:
    """Return the replication factors of A, B and C, shape (3, points)."""
    _, _, *places = np.unravel_index(points.allowed, points.shape)
    of = [np.array([layout.replicas for layout in layouts]) for layouts in points.choices]
    return np.stack([counts[at] for counts, at in zip(of, places, strict=True)])


def _told(points: MultiplyPoints, bounds: Bounds) -> dict[str, Any]:
    return {"points": points, "seconds": bounds.seconds, "memory": bounds.memory, "stage": "priced"}


def look(send: Send, space: Space, machine: Machine, limit: int, bounds: Bounds | None) -> None:
    """Price a space, unless its bounds are known, and search it; it runs in a process of its own."""
    try:
        points = points_of(space)
        if len(points) * points.bare.p**2 > MOST_PAIRS:
            raise InputError(
                f"{len(points):,} points on {points.bare.p} ranks are more than this page looks at; fix "
                "layouts and use umm search"
            )
        makespan = executor("sim").makespan
        looked = MultiplyPricer(points, machine, makespan, bounds)
        if bounds is None:
            send(_told(points, looked.bounds))
        _search(_Telling(send, looked), space, looked, limit)
    except UmmError as error:
        send({"refusal": str(error)})


def _search(tell: "_Telling", space: Space, looked: MultiplyPricer, limit: int) -> None:
    """Tell what is best, then the front, then the best of all factors, then of few points all."""
    looked.makespan = tell.timed(looked.makespan)
    found = best_of(space, looked, limit, TOP)
    tell(stage="top", top=found.top, front=front(looked, limit, reach=NEAR))
    tell(ranges=[found.sure.range(choice) for choice in found.top[:RANGES]])
    tell(stage="front", front=found.frontier)
    points = looked.points
    factors = factors_of(points)
    for of in product(*(np.unique(x).tolist() for x in factors)):
        BestFirst(looked, limit, 1, among=np.all(factors == np.array(of)[:, np.newaxis], axis=0)).run()
    tell(stage="factors")
    if len(points) <= MOST_EXACT:
        for point in points.allowed[np.argsort(looked.bounds.seconds, kind="stable")].tolist():
            looked.simulated(point, 0.0)
        tell(stage="all")


class _Telling:
    """Sends what is found, and every now and then the points that have been simulated meanwhile."""

    def __init__(self, send: Send, looked: MultiplyPricer) -> None:
        self._send, self._looked = send, looked
        self._told, self._last = 0, monotonic()

    def __call__(self, **found: Any) -> None:
        """Send what is found with all that has been simulated."""
        new = list(islice(self._looked.choices.items(), self._told, None))
        self._told, self._last = self._told + len(new), monotonic()
        if new:
            points, choices = zip(*new, strict=True)
            found["numbers"] = np.searchsorted(self._looked.points.allowed, points)
            found["times"] = np.array([x.makespan_s for x in choices])
            found["held"] = np.array([x.memory_bytes for x in choices], dtype=np.float64)
        self._send(found)

    def timed(self, makespan: Callable[[Schedule], float]) -> Callable[[Schedule], float]:
        """Return what simulates a schedule and tells now and then."""

        def simulated(schedule: Schedule) -> float:
            if monotonic() - self._last > EVERY:
                self()
            return makespan(schedule)

        return simulated
