"""Rows of the store: points performed, each with what was asked and what came out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from typing import Any

from umm.algorithms.registry import UNIVERSAL
from umm.errors import UmmError
from umm.executor import Executor, executor
from umm.machines import Machine
from umm.space.bounds.closed_form import Bounds, closed_form
from umm.space.points import Points, Space
from umm.space.search.budget import rank_limit
from umm.space.store.columns import FACTS, LATER, Performed, config_id


@dataclass(frozen=True)
class Task:
    """Some points of one space on one machine, to be performed by one worker.

    Attributes:
        space: The space, with its number of ranks.
        machine: The machine.
        source: Executor that performs the schedules, or ``bound`` for the closed-form bound alone.
        limit: Bytes a rank may allocate; None for any number.
        points: Numbers of the points.
        seconds: Lower bound of each one's makespan.
        memory: Lower bound of each one's memory in bytes.
    """

    space: Space
    machine: Machine
    source: str
    limit: int | None
    points: list[int]
    seconds: list[float]
    memory: list[float]

    def perform(self) -> list[dict[str, Any]]:
        """Perform the task and return its rows."""
        points, rows = points_of(self.space), []
        for point, seconds, memory in zip(self.points, self.seconds, self.memory, strict=True):
            of_run = asked_of(points, point, self.machine, self.source)
            rows.append(recorded(of_run, partial(self._results, points, point, seconds, memory)))
        return rows

    def _results(self, points: Points, point: int, seconds: float, memory: float) -> Mapping[str, Any]:
        """Return the measured or predicted columns of one point."""
        limit = self.limit
        if limit is not None and memory > limit:
            return too_large(limit, int(memory))
        if self.source == "bound":
            return {"time_s": seconds, "memory_bytes": int(memory), "gap": 0.0}
        schedule = points.schedule(point, self.machine)
        memory_bytes = int(schedule.memory_bytes.max())
        if limit is not None and memory_bytes > limit:
            return too_large(limit, memory_bytes)
        run = Performed(schedule, performer(self.source).run(schedule), seconds)
        return {name: fact.of(run) for name, fact in FACTS.items()}


def asked_of(points: Points, point: int, machine: Machine, source: str) -> dict[str, Any]:
    """Return what makes a run the one it is, by its columns."""
    options, stationary, a, b, c = points.parts(point)
    bare = points.bare
    said = bare.to_dict()
    return {
        "source": source,
        "machine": machine.name,
        "machine_sha": machine.sha,
        "ranks": bare.p,
        **{name: getattr(bare, name) for name in ("m", "n", "k", "dtype")},
        "a": str(a),
        "b": str(b),
        "c": str(c),
        "algorithm": UNIVERSAL,
        "stationary": stationary,
        **{name: said[name] for name in LATER if name in said},
        **options.to_dict(),
    }


@lru_cache(maxsize=4)
def performer(source: str) -> Executor:
    """Return the executor of this name, kept for the next task."""
    return executor(source)


@lru_cache(maxsize=64)
def points_of(space: Space) -> Points:
    """Return the points of a space, kept for the next task."""
    return space.points()


def recorded(of_run: Mapping[str, Any], results: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the row of a run; one that fails says why.

    Args:
        of_run: What was asked, by its columns.
        results: Performs it, and returns what came out.
    """
    import umm

    row = {
        "config_id": config_id(of_run),
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
    """Return what a row says of a point that needs more than a rank may hold."""
    why = f"needs more than {limit} bytes per rank"
    return {"status": "too large", "error": why, "memory_bytes": memory_bytes}


class PointRuns:
    """The points of a space on a machine, as runs of a store.

    Args:
        space: The space, with its number of ranks.
        machine: The machine.
        source: Executor that performs the schedules, or ``bound`` for the closed-form bound alone.
        memory: Budget per rank.
    """

    def __init__(self, space: Space, machine: Machine, source: str, memory: str | int | None) -> None:
        self._space, self._machine, self._source = space, machine, source
        self._memory = memory

    @property
    def ids(self) -> list[str]:
        """The key of each run."""
        points = points_of(self._space)
        asked = (asked_of(points, x, self._machine, self._source) for x in points.allowed.tolist())
        return [config_id(x) for x in asked]

    @cached_property
    def _bounds(self) -> Bounds:
        return closed_form(points_of(self._space), self._machine)

    def best_first(self, numbers: list[int]) -> list[int]:
        """Return some points in the order of their bounds: an early look at the store shows the best."""
        return sorted(numbers, key=self._bounds.seconds.tolist().__getitem__)

    def task(self, numbers: Sequence[int]) -> Task:
        """Return what performs some points."""
        points, bounds, some = points_of(self._space), self._bounds, list(numbers)
        return Task(
            self._space,
            self._machine,
            self._source,
            rank_limit(self._memory, points.bare, self._machine),
            points.allowed[some].tolist(),
            bounds.seconds[some].tolist(),
            bounds.memory[some].tolist(),
        )

    def __len__(self) -> int:
        return len(points_of(self._space))
