"""The schedule: the table of actions with its forms as text, JSON and arrays."""

from dataclasses import dataclass
from typing import Any

from umm.schedules.table.table import Table
from umm.units import counted


@dataclass(frozen=True, eq=False)
class Schedule(Table):
    """The actions of a distributed program and their dependencies; see :class:`Table` for its columns."""

    def to_json(self) -> str:
        """Return the schedule as JSON of schema 2, one action a line.

        ScheduleError above 200,000 actions, where .npz is the form to use.
        """
        from umm.schedules.file.codec import to_json

        return to_json(self)

    @staticmethod
    def from_json(text: str) -> "Schedule":
        """Return the schedule a JSON text holds, checked.

        ScheduleError if the text is not a schedule of schema 2, or the schedule breaks a rule.
        """
        from umm.schedules.file.codec import from_json

        return from_json(text, Schedule)

    def __reduce__(self) -> tuple[Any, ...]:
        # Functions that make its routes and operands do not pickle; the arrays of its .npz form do.
        from umm.schedules.file.arrays import from_arrays, to_arrays

        return from_arrays, (to_arrays(self), Schedule)

    def __str__(self) -> str:
        from umm.schedules.file.codec import text

        return text(self)

    def __repr__(self) -> str:
        where = f"{counted(self.ranks, 'rank')} of {self.machine}"
        return f"Schedule({self.program.name} on {where}: {counted(len(self), 'action')})"
