"""The runs of a store: every point of a space on a machine, its question and its results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from itertools import repeat
from typing import Any

from umm.algorithms.scheduling import UNIVERSAL
from umm.errors import UmmError
from umm.executor import executor
from umm.host.collector import without_collector
from umm.machines import Machine
from umm.space.assignments import Assignments
from umm.space.bounds.closed_form import closed_form
from umm.space.bounds.statement_work import schedule_load
from umm.space.budget import limit_of
from umm.space.points import MultiplyPoints
from umm.space.space import Space
from umm.space.store.model import model_digest
from umm.space.store.schema import FACTS, Performed, config_id

Points = MultiplyPoints | Assignments


@dataclass(frozen=True)
class Task:
    """Some points of one space on one machine, to be performed by one worker."""

    space: Space  # the space, with its number of ranks
    machine: Machine
    source: str  # executor that performs the schedules, or `bound` for a lower bound alone
    limit: int  # bytes a rank may allocate
    points: list[int]  # places of the points among those of the space
    ids: list[str]  # the key of each one's run
    model: str  # digest of the model by which the sweep asks, whatever a worker has
    # Lower bounds of each one's makespan and memory where all points have them beforehand; else none, and
    # those of its schedule count.
    bounds: list[tuple[float, float]]

    def perform(self) -> list[dict[str, Any]]:
        """Perform the task and return its rows."""
        points, rows = points_of(self.space), []
        # No cycles are made here, so the garbage collector would only cost time.
        with without_collector():
            for place, key, bounds in zip(self.points, self.ids, self.bounds or repeat(None), strict=False):
                of_run = {"config_id": key} | asked_of(points, place, self.machine, self.source, self.model)
                rows.append(recorded(of_run, partial(self._results, points, place, bounds)))
        return rows

    def _results(self, points: Points, place: int, bounds: tuple[float, float] | None) -> Mapping[str, Any]:
        """Return the measured or predicted columns of one point."""
        # First what is known without a schedule: lowering takes most of the time of a point that is only
        # refused or bounded.
        if bounds is not None:
            seconds, memory = bounds
            if memory > self.limit:
                return too_large(self.limit, int(memory))
            if self.source == "bound":
                return {"time_s": seconds, "memory_bytes": int(memory), "gap": 0.0}
        schedule = points.listed(place, self.machine)
        # The bound on memory was from below; what the schedule allocates decides.
        memory_bytes = int(schedule.memory_bytes.max())
        if memory_bytes > self.limit:
            return too_large(self.limit, memory_bytes)
        if bounds is None:
            seconds = schedule_load(schedule, self.machine)
        if self.source == "bound":
            return {"time_s": seconds, "memory_bytes": memory_bytes, "gap": 0.0}
        run = Performed(schedule, performer(self.source).run(schedule), seconds)
        return {name: fact.of(run) for name, fact in FACTS.items()}


def asked_of(points: Points, place: int, machine: Machine, source: str, model: str) -> dict[str, Any]:
    """Return the columns that identify a run."""
    return {
        "source": source,
        "machine": machine.name,
        "machine_sha": machine.sha,
        "ranks": points.ranks,
        "algorithm": UNIVERSAL,
        "model": model,
        **points.asked(place),
    }


# Both caches serve a worker process, to which tasks of the same space come one after another.
performer, points_of = lru_cache(maxsize=4)(executor), lru_cache(maxsize=64)(Space.points)


def recorded(of_run: Mapping[str, Any], results: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the row of a run; one that fails says why.

    Args:
        of_run: Its key and what was asked, by its columns.
        results: Performs it, and returns what came out.
    """
    import umm

    row = {
        "umm_version": umm.__version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **of_run,
        "status": "ok",
    }
    try:
        return {**row, **results()}
    except UmmError as error:
        return row | {"status": "error", "error": str(error)}
    except Exception as error:  # a sweep of hours does not end with one point
        return row | {"status": "error", "error": f"{type(error).__name__}: {error}"}


def too_large(limit: int, memory_bytes: int) -> dict[str, Any]:
    """Return the columns of a point that needs more than a rank may hold."""
    why = f"needs more than {limit} bytes per rank"
    return {"status": "too large", "error": why, "memory_bytes": memory_bytes}


class Runs:
    """The points of a space on a machine, as runs of a store.

    Args:
        space: The space, with its number of ranks.
        source: Executor that performs the schedules, or ``bound`` for a lower bound alone.
        memory: Budget per rank.
    """

    def __init__(self, space: Space, machine: Machine, source: str, memory: str | int | None) -> None:
        self._space, self._machine, self._source = space, machine, source
        self._memory = memory
        self._ids: dict[int, str] = {}

    def ids(self, places: Iterable[int]) -> list[str]:
        """Return the keys of the runs of some points, found when they are first asked for."""
        points, known = points_of(self._space), self._ids
        for place in places:
            if place not in known:
                known[place] = config_id(asked_of(points, place, self._machine, self._source, model_digest()))
        return [known[x] for x in places]

    @cached_property
    def _bounds(self) -> list[tuple[float, float]]:
        """Lower bounds of the makespan and memory of every point; none where they follow from schedules."""
        points = points_of(self._space)
        if not isinstance(points, MultiplyPoints):
            return []
        bounds = closed_form(points, self._machine)
        return list(zip(bounds.seconds.tolist(), bounds.memory.tolist(), strict=True))

    def best_first(self, places: Sequence[int]) -> Sequence[int]:
        """Return some points in the order of their bounds: an early look at the store shows the best."""
        # Those of the same layouts follow each other, for they share a program.
        points, bounds = points_of(self._space), self._bounds
        if not isinstance(points, MultiplyPoints):
            return places
        # A dict keeps the order of insertion: layouts follow each other by their best point's bound.
        of_layouts: dict[tuple[int, ...], list[int]] = {}
        for place in sorted(places, key=lambda x: bounds[x][0]):
            of_layouts.setdefault(points.layout_numbers(points.allowed[place]), []).append(place)
        return [place for some in of_layouts.values() for place in some]

    def task(self, places: Sequence[int]) -> Task:
        """Return the task of some points."""
        points = points_of(self._space)
        limit = limit_of(self._memory, points.share, self._machine, points.ranks)
        # Bounds travel with the task: a worker would have to bound all points to have a few.
        bounds = [self._bounds[x] for x in places] if self._bounds else []
        ids = self.ids(places)
        return Task(
            self._space, self._machine, self._source, limit, list(places), ids, model_digest(), bounds
        )

    def __len__(self) -> int:
        return points_of(self._space).count
