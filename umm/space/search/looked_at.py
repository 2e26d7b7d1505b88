"""What is known of a space's points so far: bounded all at once, some built, some simulated."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from umm.machines import Machine
from umm.problem import MATRICES
from umm.schedules.bound import schedule_bound
from umm.schedules.schedule import Schedule
from umm.space.bounds.bringing import bringing
from umm.space.bounds.closed_form import Bounds, closed_form
from umm.space.choice import Choice
from umm.space.given import bring
from umm.space.points import Points

Makespan = Callable[[Schedule], float]


class Built(NamedTuple):
    """What the schedule of a point has told.

    Attributes:
        memory: Bytes of the fullest rank, with what it holds of operands that are given elsewhere.
        pool: Bytes of the largest pool.
        brings: Seconds that bringing such operands takes.
        gap: What the policy knows of better steps, or None.
        peak: flop/s of the devices used.
        content: The same where the actions of the multiply are the same.
    """

    memory: int
    pool: int
    brings: float
    gap: float | None
    peak: float
    content: bytes


@dataclass(frozen=True)
class OneSchedule:
    """The points that are one schedule: the same layouts, brought in the same time, the same actions."""

    layouts: tuple[int, int, int]
    content: bytes
    memory: int
    brings: float


class LookedAt:
    """The points of a space on a machine, with what several searches of it have found out.

    Attributes:
        points: The points.
        machine: Where they would run.
        makespan: What simulates a schedule.
        bounds: Of all points, see :func:`umm.space.bounds.closed_form.closed_form`.
        choices: The simulated points.
        rows: The points of each schedule simulated, in the order of their numbers.
        respected: Whether no makespan was below its bound.
    """

    def __init__(
        self, points: Points, machine: Machine, makespan: Makespan, bounds: Bounds | None = None
    ) -> None:
        self.points, self.machine, self.makespan = points, machine, makespan
        self.bounds = closed_form(points, machine) if bounds is None else bounds
        self.choices: dict[int, Choice] = {}
        self.rows: dict[OneSchedule, list[int]] = {}
        self.respected = True
        self._built: dict[int, Built] = {}
        self._bound: dict[bytes, float] = {}
        self._seconds: dict[bytes, float] = {}
        self._schedules: dict[int, Schedule] = {}
        self._brings: dict[tuple[str, int, str], float] = {}

    @property
    def bounded(self) -> int:
        """How many points have been built."""
        return len(self._built)

    def memory(self, point: int) -> int:
        """Return what the fullest rank allocates at a point."""
        return self._told(point).memory

    def bound(self, point: int) -> float:
        """Return a lower bound of the makespan of a point, from its schedule."""
        content = self._told(point).content
        if content not in self._bound:
            self._bound[content] = schedule_bound(self._schedule(point))
        return self._bound[content] + self._told(point).brings

    def brings(self, point: int) -> float:
        """Return what bringing operands that are given elsewhere adds to a point, in seconds."""
        options, *_ = self.points.parts(point)
        numbers = self.points.layout_numbers(point)
        return sum(
            self._bring(x, number, options.final)
            for x, number in zip(MATRICES, numbers, strict=True)
            if x in self.points.given
        )

    def _bring(self, x: str, number: int, final: str) -> float:
        inside, outside = self.points.layouts[MATRICES.index(x)][number], self.points.given[x]
        if x == "C":
            asked = (inside, outside, self.points.bare.c_dtype, final if inside.replicas > 1 else "broadcast")
        else:
            asked = (outside, inside, self.points.bare.dtype, "broadcast")
        key = (x, number, asked[-1])
        if key not in self._brings:
            source, target, dtype, final = asked
            self._brings[key] = bring(source, target, self.machine, dtype, final).seconds
        return self._brings[key]

    def drop(self, point: int) -> None:
        """Keep no longer the schedule of a point, only what it has told."""
        self._schedules.pop(point, None)

    def _schedule(self, point: int) -> Schedule:
        if point not in self._schedules:
            self._schedules[point] = self.points.multiply(point, self.machine)
        return self._schedules[point]

    def _told(self, point: int) -> Built:
        if point not in self._built:
            schedule = self._schedule(point)
            brings, held = bringing(self.points, point, self.machine)
            self._built[point] = Built(
                int((schedule.memory_bytes + held).max()),
                int(schedule.pool_bytes.max()),
                brings,
                schedule.options.get("gap"),
                schedule.peak,
                content_of(schedule),
            )
        return self._built[point]

    def simulated(self, point: int, bound: float) -> tuple[OneSchedule, Choice]:
        """Return a point with its makespan; one schedule is simulated once.

        Args:
            point: Its number.
            bound: What is known of its makespan from below.
        """
        built = self._told(point)
        options, stationary, *_ = self.points.parts(point)
        row = OneSchedule(self.points.layout_numbers(point), built.content, built.memory, built.brings)
        if point not in self.choices:
            if built.content not in self._seconds:
                self._seconds[built.content] = self.makespan(self._schedule(point))
            self.drop(point)
            seconds = self._seconds[built.content] + built.brings
            self.respected &= bound <= seconds
            problem = self.points.problem(point)
            self.choices[point] = Choice(
                problem,
                stationary,
                options,
                seconds,
                bound,
                built.memory,
                built.pool,
                problem.flop / (seconds * built.peak),
                built.gap,
            )
            self.rows[row] = sorted([*self.rows.get(row, []), point])
        return row, self.choices[point]


def content_of(schedule: Schedule) -> bytes:
    """Return the same bytes for schedules with the same actions, on the same lanes, after the same others."""
    digest = blake2b(digest_size=16)
    columns = ("kind", "rank", "lane", "after_offsets", "after", "src", "dst", "nbytes", "seconds")
    for name in columns:
        digest.update(getattr(schedule, name).tobytes())
    digest.update(schedule.lanes.rank.tobytes() + schedule.lanes.engine.tobytes())
    return digest.digest()
