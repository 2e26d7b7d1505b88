"""One question, answered again on changed machines, for ranges, ties, advice, sensitivity and maps."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from umm.dtypes import BLOCK, COMPLEX, has_blocks, rated
from umm.errors import InputError, MachineError
from umm.machines import Machine
from umm.machines.corners import corners, moved_alone
from umm.machines.settings import Numbered, matching, numbers, scaled, with_settings
from umm.numbers import parse_real
from umm.schedules.schedule import Schedule
from umm.units import parse_seconds

Makespan = Callable[[Schedule], float]
Lower = Callable[[Machine], Schedule]
Answer = TypeVar("Answer")


class Change(NamedTuple):
    """A machine with one of its numbers changed, or some of them together."""

    name: str  # of the number, or of its table; changes of one number follow each other
    now: str  # its value as the machine is, where that is known
    then: str  # its value there, in words
    machine: Machine  # the changed machine, which has a name and a hash of its own


def vary(answer: Callable[[Machine], Answer], changes: Iterable[Change]) -> Iterator[tuple[Change, Answer]]:
    """Yield the answer under each change."""
    # Lazy: a caller that has its answer pays for no more simulations.
    return ((change, answer(change.machine)) for change in changes)


def seconds_of(lower: Lower, makespan: Makespan) -> Callable[[Machine], float]:
    """Return the question that asks for the makespan of a schedule made anew for each machine."""
    return lambda machine: makespan(lower(machine))


def ends(machine: Machine) -> list[Change]:
    """Return all numbers at the ends of their ranges together: see :func:`umm.machines.corners.corners`."""
    return [Change("", "", "", corner) for corner in corners(machine)]


def ends_alone(machine: Machine, unused: Collection[str] = ()) -> list[Change]:
    """Return each number, or table of numbers, at either end of its range by itself."""
    moved = moved_alone(machine, frozenset(unused)).items()
    return [Change(key, "", "", end) for key, both in moved for end in both]


def borders(
    low: float, high: float, answer: Callable[[Any], object], between: Callable[[Any, Any], float | None]
) -> list[Any]:
    """Return the values between two at which an answer changes, halving each stretch whose ends differ.

    What comes and goes between two that are alike is not seen.

    Args:
        answer: Returns it at a value; asked several times at each.
        between: Returns a value between two; None where they are near enough.
    """
    if answer(low) == answer(high):
        return []
    middle = between(low, high)
    if middle is None:
        return [high]
    # Both halves are searched, for a third answer may be that in the middle.
    return borders(low, middle, answer, between) + borders(middle, high, answer, between)


STARTS = ("latency", "launch", "transfer_overhead")
"""Numbers that a message or a kernel waits for before it does anything."""
HALVES = (("half of it", "x0.5"), ("twice that", "x2"))


def starts(machine: Machine) -> tuple[tuple[str, ...], list[Change]]:
    """Return the starts that nobody measured, by name, and all of them together at half and at twice."""
    # Numbers with a range have ends of their own, and half or twice of nothing is nothing.
    keys = [
        number.key
        for number, node in _assumed(machine)
        if number.path[-1] in STARTS and "range" not in node and parse_seconds(str(number.value))
    ]
    names = tuple(_name(key) for key in keys)
    settings = ((words, dict.fromkeys(keys, by)) for words, by in HALVES)
    return names, [Change("", "", x, with_settings(machine, y)) for x, y in settings if keys]


def assumed(machine: Machine, dtype: str, unused: Collection[str] = ()) -> Iterator[Change]:
    """Yield each assumed number at half and twice its value, or at the ends of its range, by itself.

    Args:
        dtype: Of the problem; peaks and efficiencies of others do not matter.
        unused: Keys that do not matter.
    """
    name = peak_name(machine, dtype)
    types = (name, f"{name}:{BLOCK}") if has_blocks(dtype) else (name,)
    for number, node in _assumed(machine):
        of_other = number.path[1] in ("peak", "efficiency") and number.key.split(".")[-1] not in types
        if of_other or number.key == "devices.count" or not {*unused}.isdisjoint(map(str, number.path)):
            continue
        both = [(str(end), str(end).replace(" ", "")) for end in node["range"]] if "range" in node else HALVES
        for words, setting in both:
            try:
                changed = _set(machine, number.key, setting)
            except MachineError:
                continue  # half a copy engine, all of a GEMM lost
            yield Change(_name(number.key), str(number.value), words, changed)


@lru_cache(maxsize=64)
def _set(machine: Machine, key: str, setting: str) -> Machine:
    """Return a machine with one number set, kept since advice asks twice."""
    return with_settings(machine, {key: setting})


def _assumed(machine: Machine) -> Iterator[tuple[Numbered, Any]]:
    """Yield the assumed numbers, and the node of each in the file."""
    for number in numbers(machine.document):
        node: Any = machine.document
        for part in number.path:
            node = node[part]
        if node.get("assumed"):
            yield number, node


def _name(key: str) -> str:
    return key.removeprefix("devices.")


LINKS = "fabric*bandwidth"  # all bandwidths of a fabric together
_OF_A_RANK = (
    "memory_bandwidth", "launch", "transfer_overhead", "signal", "accumulate_efficiency",
    "interference.get", "interference.accumulate", "interference.reduce",
)  # fmt: skip
_SLOWER = ("latency", "launch", "overhead", "signal", "interference")
MOST_BANDWIDTHS = 4
MOST_SHOWN = 3


@dataclass(frozen=True)
class Knob:
    """A number of a machine that can be scaled."""

    name: str  # as `--set` takes it; several numbers are scaled together where it is a pattern
    values: tuple[str | float, ...]  # as the file has it, or them

    @property
    def most(self) -> float:
        """The largest factor it can have: a share is at most 1, and not all can be lost."""
        largest = 0.99 if "interference" in self.name else 1.0
        return min((largest / x for x in self.values if not isinstance(x, str)), default=math.inf)

    @property
    def more_is_faster(self) -> bool:
        """Whether nothing takes longer with more of it, as with a bandwidth; a latency is the opposite."""
        return not any(word in self.name for word in _SLOWER)

    def at(self, factor: float) -> str:
        """Return the number times a factor, with its unit.

        >>> Knob("fabric*bandwidth", ("374 GB/s", "50 GB/s")).at(0.5)
        '187 GB/s, 25 GB/s'
        """
        texts = []
        for value in self.values[:MOST_SHOWN]:
            amount, _, unit = str(scaled(value, factor)).partition(" ")
            texts.append(f"{parse_real(amount):.4g} {unit}".strip())
        return ", ".join(dict.fromkeys(texts)) + (", …" if len(self.values) > MOST_SHOWN else "")

    def on(self, machine: Machine, factor: float) -> Machine:
        """Return a machine with the number times a factor."""
        # repr keeps every digit: two close factors of a bisection give two machines.
        return with_settings(machine, {self.name: f"x{factor!r}"})


def knob(machine: Machine, name: str) -> Knob:
    """Return the number of a name, or the numbers of a pattern together.

    MachineError if there is none. InputError for one that is not a quantity.
    """
    values = [x.value for x in matching(machine.document, name, machine.name)]
    if not all(isinstance(x, str | float) for x in values):
        raise InputError(f"{name} of {machine.name} cannot be scaled")
    return Knob(name, tuple(values))


def knobs(machine: Machine, ranks: int, dtype: str) -> list[Knob]:
    """Return the numbers of a machine that can change a choice."""
    # The peak stands for the part of it that GEMMs reach too. Where a fabric has several bandwidths each
    # counts by itself, and all together; where it has more than a few, as measured ones have, only all
    # together.
    known = {_name(x.key): x.value for x in numbers(machine.document)}
    names = []
    if ranks > 1 and machine.fabric.names:
        for last in ("bandwidth", "latency"):
            each = [x for x in known if x.startswith("fabric.") and x.endswith(f".{last}")]
            names += ([f"fabric*{last}"] if len(each) > 1 else []) + each * (len(each) <= MOST_BANDWIDTHS)
    names += [f"peak.{peak_name(machine, dtype)}", *_OF_A_RANK]
    # Zero times any factor is zero: such a number moves nothing.
    return [knob(machine, x) for x in names if "*" in x or not _is_zero(known.get(x, 0.0))]


def peak_name(machine: Machine, dtype: str) -> str:
    """Return the type by which the machine's file names the peak of a type: float8 of either of 8 bits.

    >>> from umm.machines import machine
    >>> [peak_name(machine("h100-8"), x) for x in ("bfloat16", "float8_e5m2", "float8_e4m3:128", "complex64")]
    ['bfloat16', 'float8', 'float8', 'float32']
    """
    name = rated(machine.multiplied(COMPLEX.get(dtype, dtype)))
    if name == "float32" and machine.in_tf32:
        return "tf32"
    return name if name in machine.document["devices"]["peak"] else name.partition("_")[0]


def _is_zero(value: str | float) -> bool:
    """Return whether a number, with its unit or without, is zero.

    >>> _is_zero("0 us"), _is_zero(0.0), _is_zero("237GB/s")
    (True, True, False)
    """
    number = re.match(r"[\d.]*", str(value))
    return number is not None and not number[0].strip("0.")
