"""Prices the points of one multiply: bounded all at once in closed form, some built, some simulated.

And says who prices which space.
"""

import math
from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from umm.arrays import Bools
from umm.errors import InfeasibleError
from umm.executor import executor
from umm.machines import Machine
from umm.plans.movement.choice import COLLECTIVES
from umm.plans.multiply.options import PANELS, Options
from umm.plans.redistribution.fastest import Move, move
from umm.program.problem import MATRICES
from umm.schedules.bound import ROUNDING, schedule_bound
from umm.schedules.schedule import Schedule
from umm.space.bounds.closed_form import Bounds, closed_form
from umm.space.bounds.moves import given_bytes
from umm.space.bounds.transfers import looked_at
from umm.space.budget import device_share
from umm.space.choice import Choice
from umm.space.points import MultiplyPoints
from umm.space.pricing.pricer import Makespan, Pricer, Work
from umm.space.space import Space
from umm.units import format_bytes

if TYPE_CHECKING:
    from umm.space.pricing.assignments import AssignmentPricer

# Actions simulated, 12 µs each, while the shortest multiply is written: by collectives 2.5 ms, by panels 6.
STARTED_BY_BUILDER = dict.fromkeys(COLLECTIVES, 200) | {PANELS: 500}


class Built(NamedTuple):
    """Figures of the schedule of a point."""

    memory: int  # bytes of the fullest rank, operands that are given elsewhere included
    pool: int  # bytes of the largest pool
    gap: float | None  # the policy's bound on better steps, or None
    peak: float  # flop/s of the devices used
    content: bytes  # the same where the actions of the multiply are the same
    actions: int  # number of actions


class MultiplyPricer(Pricer):
    """The points of one multiply on a machine, with the results of several searches of them."""

    points: MultiplyPoints
    equals = True

    def __init__(
        self, points: MultiplyPoints, machine: Machine, makespan: Makespan, bounds: Bounds | None = None
    ) -> None:
        self.points, self.machine, self.makespan = points, machine, makespan
        only = looked_at(machine, points.ranks)
        # Of all points, see `umm.space.bounds.closed_form.closed_form`; of many ranks from those that
        # `umm.space.bounds.transfers.looked_at` chooses: the schedule of a point that comes up in a search is
        # built sooner than bounds from all ranks are found, and bounds it better.
        self.bounds = closed_form(points, machine, only) if bounds is None else bounds
        self.choices: dict[int, Choice] = {}  # the simulated points
        # The points of each schedule simulated, in the order of their numbers.
        self.rows: dict[Hashable, list[int]] = {}
        self.respected, self.work, self.built = True, Work(), 0
        self._built: dict[int, Built] = {}
        self._bound: dict[bytes, float] = {}
        self._seconds: dict[Hashable, float] = {}
        self._schedules: dict[int, Schedule] = {}
        self._moved: dict[tuple[str, int, str], Move] = {}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_schedules": {}}  # which are built again where they are asked for

    def ascending(self, limit: int, among: Bools | None = None) -> tuple[list[int], list[float]]:
        """Return the points that may fit into so many bytes a rank, by ascending bound, and the bounds."""
        able = self.bounds.memory <= limit
        fits = np.nonzero(able if among is None else able & among)[0]
        by_bound = fits[np.argsort(self.bounds.seconds[fits], kind="stable")]
        return self.points.allowed[by_bound].tolist(), self.bounds.seconds[by_bound].tolist()

    def better(self, point: int, bound: float) -> float:
        """Return a bound with the simulated moves of operands given elsewhere."""
        if not self.points.given:
            return bound
        number = int(np.searchsorted(self.points.allowed, point))
        # The closed form of the moves is exchanged for their simulated time, which is known per layout.
        return max(bound, bound - float(self.bounds.moves[number]) + self._move_seconds(point))

    def fits(self, point: int, limit: int) -> bool:
        """Return whether the fullest rank holds at most so many bytes at a point."""
        try:
            return self.memory(point) <= limit
        except InfeasibleError:  # no schedule has room for all its steps
            return False

    def text(self, point: int) -> tuple[Any, ...]:
        """Return a ranking's last tie-break."""
        return self.points.text(point)

    def alike(self, row: Hashable) -> list[tuple[str, Options]]:
        """Return the stationary matrix and the options of all points simulated that are one schedule."""
        others = [self.points.parts(point) for point in self.rows[row]]
        return [(stationary, options) for options, stationary, *_ in others]

    def memory(self, point: int) -> int:
        """Return the bytes that the fullest rank allocates at a point."""
        return self._build(point).memory

    def bound(self, point: int) -> float:
        """Return a lower bound of the makespan of a point, from its schedule and those of its moves."""
        content = self._build(point).content
        # Points whose schedules have the same content share bound and makespan, however they are written.
        if content not in self._bound:
            self._bound[content] = schedule_bound(self._schedule(point))
        return self._bound[content] + self._move_seconds(point)

    def _move_seconds(self, point: int) -> float:
        """Return a lower bound on the moves of operands, one after the other, except rounding."""
        # Where transfers empty caches, a move alone may be charged for bytes that stay in the whole schedule.
        if self.machine.refill and self.points.given:
            return float(self.bounds.moves[np.searchsorted(self.points.allowed, point)])
        return sum(move.seconds for _, move in self._moves(point)) * ROUNDING

    def _moves(self, point: int) -> list[tuple[str, Move]]:
        """Return how A, B and C are moved at a point, those that are."""
        if not self.points.given:
            return []
        final, result = self.points.parts(point)[0].final, []
        for i, (x, number) in enumerate(zip(MATRICES, self.points.layout_numbers(point), strict=True)):
            outside = self.points.given.get(x)
            if outside is None:
                continue
            inside, ending = self.points.choices[i][number], final if x == "C" else ""
            # A move depends on one matrix and its layout: a few moves serve all combinations of the three.
            if (x, number, ending) not in self._moved:
                ends = (inside, outside) if x == "C" else (outside, inside)
                dtype = self.points.bare.c_dtype if x == "C" else self.points.bare.dtype
                self._moved[x, number, ending] = move(*ends, self.machine, dtype, ending)
            if inside != outside:
                result.append((x, self._moved[x, number, ending]))
        return result

    def infeasible(self, limit: int) -> InfeasibleError:
        """Return the refusal of a limit that no point fits, with the least that would do."""
        points, machine = self.points, self.machine
        is_device = limit == device_share(machine, points.ranks)
        where = f", what a rank has of a device of {machine.name}" if is_device else ""
        least = math.inf
        # Ascending lower bounds: once one reaches the least exact memory, no later point can need less.
        for i in np.argsort(self.bounds.memory, kind="stable").tolist():
            if self.bounds.memory[i] >= least:
                break
            schedule = points.schedule(int(points.allowed[i]), machine)
            least = min(least, int(schedule.memory_bytes.max()))
        nbytes, multiple = int(least), math.ceil(100 * least / points.share) / 100
        return InfeasibleError(
            f"nothing fits {format_bytes(limit)} per rank{where}; the smallest memory that works is "
            f"{nbytes} bytes ({format_bytes(nbytes)}, {multiple:g}x the unreplicated share)"
        )

    def drop(self, point: int) -> None:
        """Drop the schedule of a point; its figures stay."""
        self._schedules.pop(point, None)

    def _schedule(self, point: int) -> Schedule:
        if point not in self._schedules:
            schedule = self._schedules[point] = self.points.schedule(point, self.machine, moves=False)
            movement = str(schedule.options.get("movement"))
            self.work.done += len(schedule) + STARTED_BY_BUILDER.get(movement, 0)
        return self._schedules[point]

    def _build(self, point: int) -> Built:
        if point not in self._built:
            schedule = self._schedule(point)
            outside = given_bytes(self.points, point) if self.points.given else 0
            self.built += 1
            self._built[point] = Built(
                int((schedule.memory_bytes + outside).max()),
                int(schedule.pool_bytes.max()),
                schedule.options.get("gap"),
                schedule.peak,
                content_of(schedule),
                len(schedule),
            )
        return self._built[point]

    def simulated(self, point: int, bound: float) -> tuple[Hashable, Choice]:
        """Return a point with its makespan; one schedule is simulated once."""
        built = self._build(point)
        ways = tuple((x, move.way) for x, move in self._moves(point))
        # Points are one schedule by the same layouts, ways to move operands, and actions.
        row = self.points.layout_numbers(point), ways, built.content, built.memory
        options, stationary, *_ = self.points.parts(point)
        if point not in self.choices:
            # Moves are part of the whole schedule, so with them the layouts count; else the multiply alone.
            same: Hashable = row if ways else built.content
            if same not in self._seconds:
                schedule = self.points.schedule(point, self.machine) if ways else self._schedule(point)
                self._seconds[same] = self.makespan(schedule)
            self.drop(point)
            seconds = self._seconds[same]
            self.respected &= bound <= seconds
            problem = self.points.program(point)
            self.choices[point] = Choice(
                problem,
                self.points.layouts(point),
                stationary,
                options,
                seconds,
                bound,
                built.memory,
                built.pool,
                problem.flop / (seconds * built.peak),
                built.gap,
                built.actions,
            )
            self.rows[row] = sorted([*self.rows.get(row, []), point])
        return row, self.choices[point]


def content_of(schedule: Schedule) -> bytes:
    """Return the same bytes for schedules with the same actions, on the same lanes, after the same others."""
    digest = blake2b(digest_size=16)
    # What the simulator reads: names, tensors and options make no difference to a makespan.
    columns = ("kind", "rank", "lane", "after_offsets", "after", "src", "dst", "nbytes", "seconds")
    for name in columns:
        digest.update(np.ascontiguousarray(getattr(schedule, name)).data)
    digest.update(schedule.lanes.rank.tobytes() + schedule.lanes.engine.tobytes())
    return digest.digest()


def assigns(pricer: Pricer) -> "TypeGuard[AssignmentPricer]":
    """Whether a pricer prices assignments of layouts to a program of several statements."""
    return not isinstance(pricer, MultiplyPricer)


def pricer_of(
    space: Space,
    machine: Machine,
    makespan: Makespan | None = None,
    progress: Callable[[int, int], None] | None = None,
    bounds: Bounds | None = None,
) -> Pricer:
    """Return who prices the points of a space on a machine.

    EndedEarlyError on Ctrl-C while a multiply's points are bounded, with the bounds so far. MachineError for
    more ranks than the machine has.

    Args:
        space: What may be chosen; without ranks it gets the machine's own number.
        makespan: What simulates a schedule, in seconds; None for the executor ``sim``.
        progress: Called with 0 and the number of points before they are priced, which may take a while.
        bounds: Of a multiply's points, where they are known.
    """
    points = space.on(machine.default_ranks).points()
    machine.check_ranks(points.ranks)
    if progress:
        progress(0, points.count)
    simulate = makespan or executor("sim").makespan
    if isinstance(points, MultiplyPoints):
        return MultiplyPricer(points, machine, simulate, bounds)
    from umm.space.pricing.assignments import AssignmentPricer  # and all of chains; a multiply does without

    return AssignmentPricer(points, machine, simulate, space.state, space.layers)
