"""The points beside the one that is shown: bounds first, then a search's proof, then each exactly."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from time import monotonic
from typing import Any

import numpy as np

from umm.algorithms.scheduling import schedule
from umm.arrays import Bools, Floats, Ints
from umm.errors import InputError, UmmError
from umm.executor import executor
from umm.explorer.background import Question, Send
from umm.host.collector import without_collector
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.numbers import whole_in
from umm.plans.multiply.options import COMPLETE, Options
from umm.schedules.schedule import Schedule
from umm.space import Choice, Found, Space, search
from umm.space.assignments import Assignments, Place
from umm.space.bounds.closed_form import Bounds, closed_form
from umm.space.points import MultiplyPoints
from umm.space.pricing.multiplies import MultiplyPricer
from umm.space.search.effort import MAX_LISTED
from umm.space.search.found import front
from umm.space.search.search import best_of
from umm.space.search.uncertainty import ties
from umm.space.search.walk import BestFirst
from umm.units import gap_in_words

TOP = 40  # how many of the best of a multiply are proven and ranked; of a chain ten
RANGES = 10  # how many of them get the range of their makespan
NEAR = 1.01
"""The part of the front that advice is taken from comes first: what takes this many times the best."""
MOST_EXACT = 10_000  # of a space with more points only those are simulated that a proof needs
MOST_PAIRS = 4e8  # a space with more points times pairs of ranks is not priced: it would take minutes
MAX_SCHEME_ACTIONS = 100_000
"""Actions of a chain's own layouts that are simulated before its search begins: one to three seconds."""
EVERY = 0.25  # seconds between two messages


class Multiplies:
    """The numbers of a multiply's points, from 0."""

    tensors = (("A",), ("B",), ("C",))

    def __init__(self, points: MultiplyPoints) -> None:
        self.points = points

    @cached_property
    def factors(self) -> Ints:
        """Replication factors of A, B and C, shape (3, points)."""
        return factors_of(self.points)

    def parts(self, number: int) -> tuple[dict[str, str], str, Options]:
        """Return the layouts of a point, its stationary matrix and its options."""
        options, stationary, *layouts = self.points.parts(int(self.points.allowed[number]))
        return dict(zip("ABC", map(str, layouts), strict=True)), stationary, options

    def number(self, layouts: Mapping[str, Layout], stationary: str, options: Options) -> int | None:
        """Return the point with these layouts, however they are written; None if the space has none."""
        # With one replica of C no ending differs from another, and the first counts.
        points = self.points
        if stationary not in points.stationary:
            return None
        known = points.options
        if layouts["C"].replicas == 1:
            options, known = replace(options, final=COMPLETE), [replace(x, final=COMPLETE) for x in known]
        if options not in known:
            return None
        at = [
            numbers_of.get(layout) for numbers_of, layout in zip(self._numbers, layouts.values(), strict=True)
        ]
        if None in at:
            return None
        place = (known.index(options), points.stationary.index(stationary), *at)
        flat = np.ravel_multi_index(place, points.shape)  # type: ignore[arg-type]
        number = int(np.searchsorted(points.allowed, flat))
        return number if number < len(points) and points.allowed[number] == flat else None

    def number_of(self, choice: Choice) -> int:
        """Return the number of a point that a search has found."""
        layouts = dict(zip("ABC", choice.problem.layouts, strict=True))
        number = self.number(layouts, choice.kept, choice.options)
        assert number is not None
        return number

    @cached_property
    def _numbers(self) -> list[dict[Layout, int]]:
        return [{layout: i for i, layout in enumerate(layouts)} for layouts in self.points.choices]


@dataclass(frozen=True, eq=False)
class Listed:
    """The numbers of a chain's assignments, from 0."""

    points: Assignments  # the assignments
    # Those that have a number, where not all have: the simulated ones of very many.
    places: list[Place] | None = None

    @property
    def tensors(self) -> tuple[tuple[str, ...], ...]:
        """The tensors that have one layout, group by group."""
        return self.points.groups

    @cached_property
    def factors(self) -> Ints:
        """Replication factors of each group of tensors, shape (groups, assignments)."""
        shape = tuple(map(len, self.points.choices))
        at = np.array(self.places).T if self.places is not None else np.indices(shape).reshape(len(shape), -1)
        factors_of_texts = [np.array([_factor(text) for text in texts]) for texts in self.points.choices]
        return np.stack([counts[places] for counts, places in zip(factors_of_texts, at, strict=True)])

    def parts(self, number: int) -> tuple[dict[str, str], str, Options]:
        """Return the layouts of an assignment, its stationary matrices, and its options."""
        place = self.points.at(number) if self.places is None else self.places[number]
        return self.points.layouts(place), self.points.stationary, self.points.options

    def number(self, layouts: Mapping[str, Layout], stationary: str, options: Options) -> int | None:
        """Return the assignment with these layouts; None if it has no number."""
        place = self.points.place({name: str(layout) for name, layout in layouts.items()})
        if place is None or self.places is None:
            return None if place is None else number_at(self.points, place)
        return self.places.index(place) if place in self.places else None

    def number_of(self, choice: Choice) -> int:
        """Return the number of an assignment that a search has found."""
        place = self.points.place(choice.layouts)
        assert place is not None
        return number_at(self.points, place) if self.places is None else self.places.index(place)


def number_at(points: Assignments, place: Place) -> int:
    """Return the number of a place among all, that of the last group fastest."""
    return int(np.ravel_multi_index(place, tuple(map(len, points.choices))))


def _factor(text: str) -> int:
    """Return the replication factor that a layout's text says.

    >>> _factor("col"), _factor("row@4:interleaved")
    (1, 4)
    """
    return whole_in(text.partition("@")[2].partition(":")[0]) or 1


class Priced(Question):
    """The points of a space, each with a lower bound of its time or the simulated one."""

    def __init__(self, space: Space, machine: Machine, limit: int) -> None:
        super().__init__()
        self.space, self.machine, self.limit = space, machine, limit
        # The points by their numbers; None until they are priced.
        self.points: Multiplies | Listed | None = None
        self.seconds: Floats = np.zeros(0)  # makespan of each, or its bound
        self.memory: Floats = np.zeros(0)  # bytes of its fullest rank; of a bound the least it can be
        self.exact: Bools = np.zeros(0, dtype=bool)  # which are simulated
        self.top: list[Choice] = []  # the best by the search; none until they are found
        # The points of the front by ascending memory, that are proven so far; of a chain those of the
        # simulated ones.
        self.front: list[Choice] = []
        self.ranges: list[tuple[float, float]] = []  # the ranges of the first of the top, in seconds
        # What moving operands adds to them, in seconds, where a multiply's operands start in row.
        self.moves: list[float] = []
        # Of a chain what else its search has found, by the names of umm.space.Found.
        self.named: dict[str, float | None] = {}
        self.left_out: dict[str, float] = {}
        self.moved: list[tuple[str, Mapping[str, int]]] = []
        self.settled = (0, 0)  # how many of its assignments, of how many
        self.proven = False  # whether the first of the top is proven to be the best
        # Which tie, of what the first is the best, and why nothing is found, each in words if there are any.
        self.ties = self.proof = self.refusal = ""
        self.stage = ""  # what is known by now: ``priced``, ``top``, ``front``, ``factors``, ``all``
        self._began = self._left = 0.0
        self._bounds: Bounds | None = None

    def price(self) -> None:
        """Price the points here if they are few: a process takes as long again to begin and to warm up."""
        if self.stage or not self.space.is_multiply:
            return
        try:
            points = points_of(self.space)
        except UmmError:
            return  # the process says why
        if len(points) <= MOST_EXACT and len(points) * points.bare.p**2 <= MOST_PAIRS:
            self._bounds = closed_form(points, self.machine)
            self.take(_bounded(points, self._bounds))

    def asked(self) -> tuple[Any, ...]:
        """Return the process's function and arguments."""
        self._began = monotonic()
        if self.space.is_multiply:
            return look, self.space, self.machine, self.limit, self._bounds
        return look_at_chain, self.space, self.machine, self.limit

    def take(self, message: dict[str, Any]) -> None:
        """Take in bounds, simulated points, or a search's results."""
        if "points" in message:
            self.exact = np.zeros(len(message["seconds"]), dtype=bool)
            vars(self).update({x: message.pop(x) for x in ("points", "seconds", "memory")})
        if "numbers" in message:
            numbers = message.pop("numbers")
            self.seconds[numbers], self.memory[numbers] = message.pop("times"), message.pop("held")
            self.exact[numbers] = True
            count = int(self.exact.sum())
            self._left = (monotonic() - self._began) / count * (len(self.exact) - count)
        vars(self).update(message)

    @property
    def words(self) -> str:
        """The numbers of exact points and of bounds."""
        if self.refusal or self.failed:
            return self.refusal or self.failed
        if not self.space.is_multiply:
            if self.proof:
                return f"{self.proof}{'' if self.done else ' Ranges are being simulated.'}"
            done, total = self.settled
            return f"Searching… {done:,} of {total:,} assignments settled." if total else "Searching…"
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
    replicas = [np.array([layout.replicas for layout in layouts]) for layouts in points.choices]
    return np.stack([counts[at] for counts, at in zip(replicas, places, strict=True)])


def _bounded(points: MultiplyPoints, bounds: Bounds) -> dict[str, Any]:
    numbered = Multiplies(points)
    return {"points": numbered, "seconds": bounds.seconds, "memory": bounds.memory, "stage": "priced"}


def look(send: Send, space: Space, machine: Machine, limit: int, bounds: Bounds | None) -> None:
    """Price a space, unless its bounds are known, and search it; it runs in a process of its own."""
    try:
        points = points_of(space)
        if len(points) * points.bare.p**2 > MOST_PAIRS:
            raise InputError(
                f"{len(points):,} points on {points.bare.p} ranks are more than this page searches; fix "
                "layouts and use umm search"
            )
        makespan = executor("sim").makespan
        looked = MultiplyPricer(points, machine, makespan, bounds)
        if bounds is None:
            send(_bounded(points, looked.bounds))
        _search(_Sending(send, looked), space, looked, limit)
    except UmmError as error:
        send({"refusal": str(error)})


def _search(send: "_Sending", space: Space, looked: MultiplyPricer, limit: int) -> None:
    """Send the best points, then the front, then the best of all factors, then of few points all."""
    looked.makespan = send.timed(looked.makespan)
    result = best_of(space, looked, limit, TOP)
    send(stage="top", top=result.top, front=front(looked, limit, reach=NEAR))
    ranked = result.top[:RANGES]
    moves = [result.bringing(choice) for choice in ranked]
    send(
        ranges=[result.sure.range(choice) for choice in ranked],
        ties=ties(result.sure, ranked),
        proven=result.proven,
        moves=[sum(x.values()) for x in moves if x is not None],
    )
    send(stage="front", front=result.frontier)
    points = looked.points
    factors = factors_of(points)
    for combination in product(*(np.unique(x).tolist() for x in factors)):
        BestFirst(
            looked, limit, 1, among=np.all(factors == np.array(combination)[:, np.newaxis], axis=0)
        ).run()
    send(stage="factors")
    if len(points) <= MOST_EXACT:
        with without_collector():
            for point in points.allowed[np.argsort(looked.bounds.seconds, kind="stable")].tolist():
                looked.simulated(point, 0.0)
        send(stage="all")


def schemes(space: Space, machine: Machine, limit: int) -> Iterator[dict[str, float | None]]:
    """Yield the makespans of a chain's own layouts by name, one more each time; None where they do not fit.

    They are what is used today, so they are there to see while a search goes on; of large chains not all.
    """
    points, simulate = space.points(), executor("sim").makespan
    assert isinstance(points, Assignments)
    actions, known = 0, dict[str, float | None]()
    for name in points.outline.layouts:
        if actions > MAX_SCHEME_ACTIONS:
            return
        try:
            made = schedule(points.outline.laid_out(name, points.ranks), machine)
        except InputError:
            continue  # they cannot be on so many ranks
        actions += len(made)
        known[name] = simulate(made) if int(made.memory_bytes.max()) <= limit else None
        yield dict(known)


def look_at_chain(send: Send, space: Space, machine: Machine, limit: int) -> None:
    """Search the layouts of a chain, send the result, then its certainty; it runs in a process."""
    last = monotonic()

    def progress(settled: int, total: int) -> None:
        nonlocal last
        if monotonic() - last > EVERY:
            last = monotonic()
            send({"settled": (settled, total)})

    try:
        for known in schemes(space, machine, limit):
            send({"named": known})
        result = search(space, machine, memory=limit, progress=progress)
        near = f"Not proven, within {gap_in_words(result.gap)} of the best,"
        sure = "Proven best" if result.proven else near
        names = ("top", "named", "left_out", "moved", "proven")
        more = {name: getattr(result, name) for name in names}
        more["proof"] = f"{sure} of {result.priced:,} assignments, {result.simulated:,} of them simulated."
        # The simulated points that no other of them beats in time and memory, by ascending memory.
        front: list[Choice] = []
        fits = (x for x in result.pricer.choices.values() if x.memory_bytes <= limit)
        for choice in sorted(fits, key=lambda x: (x.makespan_s, x.memory_bytes)):
            if not front or choice.memory_bytes < front[-1].memory_bytes:
                front.append(choice)
        send(_numbered(result) | more | {"front": front[::-1], "stage": "top"})
        ranged = result.ranged
        send({"ranges": [result.sure.range(choice) for choice in ranged], "stage": "front",
              "ties": ties(result.sure, ranged) if len(ranged) > 1 else ""})  # fmt: skip
    except UmmError as error:
        send({"refusal": str(error)})


def _numbered(result: Found) -> dict[str, Any]:
    """Return the assignments with bounds and makespans; of very many the simulated ones alone."""
    pricer: Any = result.pricer
    points, choices = pricer.points, pricer.choices
    times = np.array([x.makespan_s for x in choices.values()])
    memory = np.array([x.memory_bytes for x in choices.values()], dtype=np.float64)
    # The numbers of the page are those of the chain's points, without the tables that they were priced from.
    numbered = result.space.points()
    assert isinstance(numbered, Assignments)
    exact = {"times": times, "held": memory}
    if points.count > MAX_LISTED:
        every = {"points": Listed(numbered, list(choices)), "seconds": times.copy(), "memory": memory.copy()}
        return every | exact | {"numbers": np.arange(len(times))}
    bounds = {"seconds": pricer.tables.all_busiest(), "memory": pricer.tables.all_memory()}
    numbers = np.array([number_at(points, place) for place in choices])
    return {"points": Listed(numbered), "numbers": numbers} | bounds | exact


class _Sending:
    """Sends results, and now and then the points that have been simulated meanwhile."""

    def __init__(self, send: Send, looked: MultiplyPricer) -> None:
        self._send, self._looked = send, looked
        self._sent, self._last = 0, monotonic()

    def __call__(self, **results: Any) -> None:
        """Send results with all points simulated so far."""
        new = list(islice(self._looked.choices.items(), self._sent, None))
        self._sent, self._last = self._sent + len(new), monotonic()
        if new:
            points, choices = zip(*new, strict=True)
            results["numbers"] = np.searchsorted(self._looked.points.allowed, points)
            results["times"] = np.array([x.makespan_s for x in choices])
            results["held"] = np.array([x.memory_bytes for x in choices], dtype=np.float64)
        self._send(results)

    def timed(self, makespan: Callable[[Schedule], float]) -> Callable[[Schedule], float]:
        """Return a function that simulates a schedule and sends now and then."""

        def simulated(schedule: Schedule) -> float:
            if monotonic() - self._last > EVERY:
                self()
            return makespan(schedule)

        return simulated
