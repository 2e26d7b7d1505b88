"""Which assumed number of a machine decides between a schedule and others of the same problem."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from umm.errors import MachineError
from umm.machines import Machine
from umm.machines.settings import numbers, with_settings
from umm.program.problem import MATRICES, Problem
from umm.schedules.schedule import Schedule
from umm.space.search.uncertainty import TOLERANCE

MOST_ACTIONS = 4000
"""Above this many actions of all schedules together nothing is tried: it would take seconds."""

REACH = 2.0
"""One number at half or twice what it is moves no makespan by more than this factor."""

Lower = Callable[[Machine], Schedule]


class Decides(NamedTuple):
    """An assumed number by which another schedule becomes the fastest.

    Attributes:
        key: The number's name in the machine file.
        value: What it is assumed to be.
        then: What it would have to be: ``half of it``, ``twice that``, or an end of its range.
        wins: Which schedule is the fastest then.
        over: Which is the fastest now.
        saving: Share of the makespan by which it is ahead.
    """

    key: str
    value: str
    then: str
    wins: str
    over: str
    saving: float

    def __str__(self) -> str:
        return (
            f"{self.key} = {self.value} is assumed; at {self.then} {self.wins} wins over "
            f"{self.over}, by {100 * self.saving:.2g} %."
        )


def deciding(
    machine: Machine,
    problem: Problem,
    lower: Callable[..., Schedule],
    found: Lower | None,
    makespan: Callable[[Schedule], float],
) -> Decides | None:
    """Return the assumed number that decides between stationary matrices, or else what a search finds.

    Args:
        machine: With its numbers as they are.
        problem: With its layouts.
        lower: Makes the schedule that was asked for; takes another stationary matrix by keyword.
        found: Makes the one that a search finds to be better, if there is one.
        makespan: Predicts the seconds of a schedule.
    """
    ways = {f"stationary {x}": partial(lower, stationary=x) for x in MATRICES}
    number = decides(machine, problem.dtype, ways, makespan)
    if number or found is None:
        return number
    both = {"what was asked": lower, "what the search finds now": found}
    return decides(machine, problem.dtype, both, makespan)


def decides(
    machine: Machine, dtype: str, lower: Mapping[str, Lower], makespan: Callable[[Schedule], float]
) -> Decides | None:
    """Return the assumed number that turns round which of some schedules is the fastest; the worst of them.

    Each assumed number goes to half and twice what it is, or to the ends of its range, alone.

    Args:
        machine: With its numbers as they are.
        dtype: Of the problem; peaks and efficiencies of others do not matter.
        lower: Makes each schedule for a machine, by what it is to be called.
        makespan: Predicts the seconds of a schedule.
    """
    now = {name: of(machine) for name, of in lower.items()}
    if len(now) < 2 or sum(map(len, now.values())) > MOST_ACTIONS:
        return None
    seconds = {name: makespan(schedule) for name, schedule in now.items()}
    first = min(seconds, key=seconds.__getitem__)
    slower = [x for x in lower if 1 + TOLERANCE < seconds[x] / seconds[first] < REACH]
    found: list[Decides] = []
    for key, value, then, there in _changed(machine, dtype) if slower else ():
        changed = {name: makespan(lower[name](there)) for name in (first, *slower)}
        best = min(changed, key=changed.__getitem__)
        saving = 1 - changed[best] / changed[first]
        if saving > TOLERANCE:
            found.append(Decides(key, value, then, best, first, saving))
    return max(found, key=lambda x: x.saving, default=None)


def _changed(machine: Machine, dtype: str) -> Iterator[tuple[str, str, str, Machine]]:
    """Yield the machine with each assumed number changed: its name, its value, the change in words."""
    for number in numbers(machine.document):
        node = _at(machine.document, number.path)
        of_other = number.path[1] in ("peak", "efficiency") and number.key.split(".")[-1] != dtype
        if not node.get("assumed") or of_other or number.key == "devices.count":
            continue
        ends = node.get("range")
        changes = [("half of it", "x0.5"), ("twice that", "x2")]
        if ends is not None:
            changes = [(str(end), str(end).replace(" ", "")) for end in ends]
        for words, setting in changes:
            try:
                there = with_settings(machine, {number.key: setting})
            except MachineError:
                continue  # half a copy engine, a whole GEMM lost
            yield number.key.removeprefix("devices."), str(number.value), words, there


def _at(document: Mapping[str, Any], path: tuple[str | int, ...]) -> Any:
    node: Any = document
    for part in path:
        node = node[part]
    return node
