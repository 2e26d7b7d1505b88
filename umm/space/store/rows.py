"""Rows of the store: points performed, each with what was asked and what came out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from umm.algorithms.registry import UNIVERSAL
from umm.errors import UmmError
from umm.executor import Executor, executor
from umm.machines import Machine
from umm.space.points import Points, Space
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
def _performer(source: str) -> Executor:
    return executor(source)


@lru_cache(maxsize=64)
def points_of(space: Space) -> Points:
    """Return the points of a space, kept for the next task."""
    return space.points()


def perform(task: Task) -> list[dict[str, Any]]:
    """Perform a task and return its rows; a point that fails becomes a row that says why."""
    import umm

    points = points_of(task.space)
    rows = []
    for point, seconds, memory in zip(task.points, task.seconds, task.memory, strict=True):
        of_run = asked_of(points, point, task.machine, task.source)
        row = {
            "config_id": config_id(of_run),
            "umm_version": umm.__version__,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            **of_run,
            "status": "ok",
        }
        try:
            row |= _results(task, points, point, seconds, memory)
        except UmmError as error:
            row |= {"status": "error", "error": str(error)}
        except Exception as error:  # a sweep of hours does not end with one point
            row |= {"status": "error", "error": f"{type(error).__name__}: {error}"}
        rows.append(row)
    return rows


def _results(task: Task, points: Points, point: int, seconds: float, memory: float) -> Mapping[str, Any]:
    """Return the measured or predicted columns of one point."""
    limit = task.limit
    too_large = {"status": "too large", "error": f"needs more than {limit} bytes per rank"}
    if limit is not None and memory > limit:
        return too_large | {"memory_bytes": int(memory)}
    if task.source == "bound":
        return {"time_s": seconds, "memory_bytes": int(memory), "gap": 0.0}
    schedule = points.schedule(point, task.machine)
    memory_bytes = int(schedule.memory_bytes.max())
    if limit is not None and memory_bytes > limit:
        return too_large | {"memory_bytes": memory_bytes}
    run = Performed(schedule, _performer(task.source).run(schedule), seconds)
    return {name: fact.of(run) for name, fact in FACTS.items()}
