"""Machines with one number changed, and which decisions change with it."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from umm.errors import InputError
from umm.executor import executor
from umm.machines import Machine
from umm.machines.settings import matching, numbers, scaled, with_settings
from umm.numbers import parse_real
from umm.space.choice import Choice
from umm.space.search.search import search
from umm.space.space import Space

LINKS = "fabric*bandwidth"
"""All bandwidths of a fabric together."""
_OF_A_RANK = (
    "memory_bandwidth", "launch", "transfer_overhead", "signal", "accumulate_efficiency",
    "interference.get", "interference.accumulate", "interference.reduce",
)  # fmt: skip
_SLOWER = ("latency", "launch", "overhead", "signal", "interference")
MOST_BANDWIDTHS = 4
MOST_SHOWN = 3


@dataclass(frozen=True)
class Knob:
    """A number of a machine that can be scaled.

    Attributes:
        name: As ``--set`` takes it; several numbers are scaled together where it is a pattern.
        values: As the file has it, or them.
    """

    name: str
    values: tuple[str | float, ...]

    @property
    def most(self) -> float:
        """The largest factor it can have: a share is at most 1, and not all can be lost."""
        whole = 0.99 if "interference" in self.name else 1.0
        return min((whole / x for x in self.values if not isinstance(x, str)), default=math.inf)

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


def knob(machine: Machine, name: str) -> Knob:
    """Return the number of a name, or the numbers of a pattern together.

    Raises:
        MachineError: if there is none.
        InputError: for one that is not a quantity.
    """
    found = [x.value for x in matching(machine, name)]
    if not all(isinstance(x, str | float) for x in found):
        raise InputError(f"{name} of {machine.name} cannot be scaled")
    return Knob(name, tuple(found))


def knobs(machine: Machine, ranks: int, dtype: str) -> list[Knob]:
    """Return the numbers of a machine that can change a choice.

    The peak stands for what GEMMs reach of it too. Where a fabric has several bandwidths each counts by
    itself, and all together; where it has more than a few, as measured ones have, only all together.
    """
    known = {x.key.removeprefix("devices."): x.value for x in numbers(machine.document)}
    names = []
    if ranks > 1 and machine.fabric.names:
        for last in ("bandwidth", "latency"):
            ends = [x for x in known if x.startswith("fabric.") and x.endswith(f".{last}")]
            names += ([f"fabric*{last}"] if len(ends) > 1 else []) + ends * (len(ends) <= MOST_BANDWIDTHS)
    names += [f"peak.{dtype}", *_OF_A_RANK]
    return [knob(machine, x) for x in names if "*" in x or not _is_zero(known.get(x, 0.0))]


def changed(machine: Machine, turned: Knob, factor: float) -> Machine:
    """Return a machine with one number times a factor; it has a name and a hash of its own."""
    return with_settings(machine, {turned.name: f"x{factor!r}"})


def _is_zero(value: str | float) -> bool:
    """Return whether a number, with its unit or without, is zero.

    >>> _is_zero("0 us"), _is_zero(0.0), _is_zero("237GB/s")
    (True, True, False)
    """
    number = re.match(r"[\d.]*", str(value))
    return number is not None and not number[0].strip("0.")


# MLP-1 and MLP-2 at one sixteenth of the paper's n and k, a square, and a long sum; m, n, k.
PROBLEMS = ((1024, 3072, 768), (1024, 768, 3072), (2048, 2048, 2048), (512, 512, 8192))


class Decision(NamedTuple):
    """The best layouts of one problem by two files.

    Attributes:
        problem: m, n, k.
        before: What the old file chooses.
        after: What the new one does.
        costs: What the old choice takes over the new one, by the new file: 1.03 is 3 % longer.
    """

    problem: tuple[int, int, int]
    before: Choice
    after: Choice
    costs: float

    @property
    def flips(self) -> bool:
        """Whether the old choice takes longer than the new one by the new file."""
        return self.costs > 1.0


def decisions(
    old: Machine, new: Machine, dtype: str, problems: Sequence[tuple[int, int, int]] = PROBLEMS
) -> list[Decision]:
    """Return the best layouts of some problems by two files of as many devices."""
    found = []
    for m, n, k in problems:
        space = Space(m=m, n=n, k=k, ranks=new.default_ranks, dtype=dtype)
        before, after = (search(space, machine, top=1).top[0] for machine in (old, new))
        again = executor("sim").makespan(before.schedule(new))
        found.append(Decision((m, n, k), before, after, max(1.0, again / after.makespan_s)))
    return found
