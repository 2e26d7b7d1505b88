"""Differences between two files of one machine, such as an old calibration and a new one."""

import re
from typing import NamedTuple

import numpy as np

from umm.arrays import PASS_KINDS
from umm.machines.machine import Machine
from umm.machines.numbers import Fact
from umm.units import parse_bandwidth, parse_rate, parse_seconds

PARSERS = (parse_seconds, parse_bandwidth, parse_rate)


class Change(NamedTuple):
    """One number that is another now."""

    key: str  # where in the files it is
    before: str  # as written in the old file; `-` if it is not there
    after: str  # as written in the new file
    factor: float | None  # New over old; None where there is no such quotient.
    sure: bool  # whether they differ by more than the two are unsure


def changes(old: Machine, new: Machine) -> list[Change]:
    """Return the numbers that differ, those that differ most first; of a table its median shape or size."""
    before, after = ({fact.key: fact for fact in machine.facts} for machine in (old, new))
    result = []
    for key in before.keys() | after.keys():
        one, other = before.get(key), after.get(key)
        if one and other:
            factor = _factor(key, one, other, old, new)
            if factor == 1.0 or (factor is None and one.value == other.value):
                continue
            unsure = (one.uncertainty or 0.0) + (other.uncertainty or 0.0)
            far = factor is None or factor == 0.0 or abs(np.log(factor)) > np.log1p(unsure)
            result.append(Change(key, one.value, other.value, factor, bool(far)))
        else:
            result.append(Change(key, one.value if one else "-", other.value if other else "-", None, True))
    far = {x.key: abs(float(np.log(x.factor))) if x.factor else float("inf") for x in result}
    return sorted(result, key=lambda x: (not x.sure, -far[x.key], x.key))


def _factor(key: str, one: Fact, other: Fact, old: Machine, new: Machine) -> float | None:
    table = re.fullmatch(r"devices\.efficiency\[(.+)\]", key)
    if table:
        ours, theirs = old.efficiency[table[1]], new.efficiency[table[1]]
        axes = np.meshgrid(*(np.exp2(axis) for axis in (theirs.log_m, theirs.log_n, theirs.log_k)))
        return float(np.median(theirs.at(*axes) / ours.at(*axes)))
    if key.startswith("devices.passes["):
        before, after = (x.passes[key.removeprefix("devices.passes[")[:-1]] for x in (old, new))
        shared = before.at(after.log_sizes)
        return float(np.median([shared[kind] / after.per_byte[kind] for kind in PASS_KINDS]))
    if key == "message_sizes" and old.message_sizes and new.message_sizes:
        sizes = np.exp2(new.message_sizes.log_sizes)
        again = np.array([[False], [True]])
        rates = [x.link / x.slowdown(sizes, again) for x in (old.message_sizes, new.message_sizes)]
        factors = np.median(rates[1] / rates[0], axis=1)  # of messages from memory, and from a cache
        return float(factors[np.abs(np.log(factors)).argmax()])
    numbers = [_number(fact.value) for fact in (one, other)]
    if numbers[0] is None or numbers[1] is None or not numbers[0]:
        return None
    return numbers[1] / numbers[0]


def _number(value: str) -> float | None:
    """Return a number as written, in the program's unit; None if it is not one."""
    for parse in (float, *PARSERS):
        try:
            return float(parse(value))
        except ValueError:
            continue
    return None
