"""The fastest of several schedules that do the same, and how long the others take."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from umm.executor import executor
from umm.schedules.schedule import Schedule
from umm.units import format_seconds

Makespan = Callable[[Schedule], float]


class Fastest(NamedTuple):
    """What was found.

    Attributes:
        name: Of the fastest.
        schedule: The fastest; of equals the first.
        seconds: Makespan of each by name, the fastest first.
    """

    name: str
    schedule: Schedule
    seconds: dict[str, float]

    @property
    def verdict(self) -> str:
        """Why it is this one, in a line."""
        times = [f"{name} {format_seconds(seconds)}" for name, seconds in self.seconds.items()]
        return f"{times[0]}; {', '.join(times[1:])}" if times[1:] else f"{times[0]}; nothing else can do it"


def fastest_of(schedules: Mapping[str, Schedule], makespan: Makespan | None = None) -> Fastest:
    """Return the fastest of some schedules.

    Args:
        schedules: By name, at least one.
        makespan: What tells how long one takes, in seconds; None for the executor ``sim``.
    """
    measure = makespan or executor("sim").makespan
    seconds = {name: measure(schedule) for name, schedule in schedules.items()}
    names = sorted(seconds, key=seconds.__getitem__)
    return Fastest(names[0], schedules[names[0]], {name: seconds[name] for name in names})
