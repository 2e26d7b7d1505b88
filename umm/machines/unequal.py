"""Devices, links and cards that are not like the others: ``device.3.peak`` times 0.5, ``nic.7`` down.

A file lists them under ``[apart]`` by these names, and ``--set`` writes the same there.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from umm.arrays import Floats
from umm.errors import InputError, MachineError, did_you_mean
from umm.files import shown
from umm.machines.fabric import Fabric
from umm.numbers import parse_whole, real_in
from umm.units import parse_bandwidth, parse_seconds

_NAME = re.compile(r"(device|link|nic)\.(.+)")
_FACTOR = re.compile(r"[x×]\s*([+-]?[0-9.].*)")
_OF_DEVICES = ("peak", "memory_bandwidth")
_OF_LINKS = ("bandwidth", "latency")
DOWN = "down"


@dataclass(frozen=True, eq=False)
class Paces:
    """Each device's share of the machine's numbers, 1.0 where it is like the others."""

    peak: Floats  # of the peak of every dtype
    memory_bandwidth: Floats  # of the bandwidth of its memory

    @property
    def devices(self) -> list[int]:
        """The devices that are not like the others."""
        return np.nonzero((self.peak != 1.0) | (self.memory_bandwidth != 1.0))[0].tolist()


def is_apart(key: str) -> bool:
    """Return whether a setting's name is that of one device, link or card.

    >>> is_apart("device.3.peak"), is_apart("nic.7"), is_apart("fabric.nic.bandwidth")
    (True, True, False)
    """
    return _NAME.fullmatch(key) is not None


def set_apart(
    apart: Mapping[str, str], names: Sequence[str], memory_bandwidth: float, fabric: Fabric
) -> Paces | None:
    """Change the numbers of a fabric's links, and return the devices' shares; None if all are alike.

    MachineError for a device, link or card that does not exist, or a value that cannot be.

    Args:
        apart: What is set apart, by name: a factor such as ``x0.5``, a quantity, or for cards ``down``.
        memory_bandwidth: Bytes/s of a device's memory.
        fabric: Their links, changed in place.
    """
    paces = {number: np.ones(len(names)) for number in _OF_DEVICES}
    for key, text in apart.items():
        match = _NAME.fullmatch(key)
        if match is None:
            raise MachineError(f"apart: {key!r} is unknown; write device.3.peak, link.g0-g1.bandwidth, nic.7")
        what, rest = match.groups()
        if what == "device":
            which, number = _split(key, rest, _OF_DEVICES)
            base = {"peak": None, "memory_bandwidth": memory_bandwidth}[number]
            for device in _devices(key, which, names):
                paces[number][device] *= _factor(key, text, base)
        elif what == "link":
            which, number = _split(key, rest, _OF_LINKS)
            for link in _links(key, which, names, fabric):
                _change(key, text, number, link, fabric)
        elif text == DOWN:
            for card in _numbered(key, rest, len(fabric.cards), "card"):
                fabric.lose_card(card)
        else:
            which, number = _split(key, rest, _OF_LINKS)
            for card in _numbered(key, which, len(fabric.cards), "card"):
                for link in fabric.cards[card]:
                    _change(key, text, number, link, fabric)
    if all((pace == 1.0).all() for pace in paces.values()):
        return None
    return Paces(**paces)


def _split(key: str, rest: str, numbers: Sequence[str]) -> tuple[str, str]:
    """Return which device, link or card a name means, and which of its numbers."""
    which, _, number = rest.rpartition(".")
    what = key.split(".")[0]
    if number in numbers and not which:
        raise MachineError(f"{key} names no {what}; write {what}.0.{number} for one of them")
    if number not in numbers:
        down = f", or {what}.{rest}=down" if what == "nic" else ""
        raise MachineError(f"{key} cannot be set apart; of one {what} {' and '.join(numbers)} can{down}")
    return which, number


def _numbered(key: str, which: str, count: int, what: str) -> range:
    """Return the numbers that ``3``, or ``0-7``, means."""
    match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", which)
    if count == 0:  # of cards alone
        raise MachineError(f"{key}: this machine has no network cards; choose one with nodes")
    first, last = (parse_whole(match[1]), parse_whole(match[2] or match[1])) if match else (0, -1)
    if not first <= last < count:
        raise MachineError(
            f"{key}: no {what} {which!r}; choose from 0 to {count - 1}, or some as 0-{count - 1}"
        )
    return range(first, last + 1)


def _devices(key: str, which: str, names: Sequence[str]) -> Sequence[int]:
    """Return the devices that a number, a name, or two numbers with a dash mean."""
    if which in names:
        return [names.index(which)]
    return _numbered(key, which, len(names), "device")


def _links(key: str, which: str, names: Sequence[str], fabric: Fabric) -> list[int]:
    """Return the links of a name such as ``g0-up``, or those between two devices, both ways."""
    # Where two devices have no link of their own, such as on a switch, those are the links of their routes.
    plain = [name.replace(" ", "-") for name in fabric.names]
    for wanted in (which, which.replace("-", "→")):
        if wanted in plain:
            both = "→".join(reversed(wanted.split("→"))) if wanted != which else wanted
            return sorted({i for i, name in enumerate(plain) if name in (wanted, both)})
    for cut in (i for i, letter in enumerate(which) if letter == "-"):
        pair = which[:cut], which[cut + 1 :]
        if set(pair) <= set(names) and pair[0] != pair[1]:
            ends = [names.index(name) for name in pair]
            return sorted({link for src, dst in permutations(ends) for link in fabric.route(src, dst)})
    hint = did_you_mean(which, plain) if len(plain) < 2000 else f"such as {plain[0]!r}"
    raise MachineError(
        f"{key}: no link {which!r}; name two devices such as {names[0]}-{names[-1]}, or a link; {hint}"
    )


def factor_in(key: str, text: str) -> float | None:
    """Return the factor that a setting such as ``x0.5`` is, None if it is a value.

    MachineError naming the key, if it begins as one and is no number.
    """
    match = _FACTOR.fullmatch(text)
    if match is None:
        return None
    factor = real_in(match[1])
    if factor is None:
        raise MachineError(f"{key} cannot be {shown(text)}; write a finite factor such as x0.5")
    return factor


def _change(key: str, text: str, number: str, link: int, fabric: Fabric) -> None:
    """Set the bandwidth or the latency of a link."""
    values = fabric.bandwidth if number == "bandwidth" else fabric.latency
    factor = factor_in(key, text)
    if number == "bandwidth":
        values[link] *= _factor(key, text, values[link])
    else:
        # What every transfer takes beside its links' latencies stays as it is.
        alone = values[link] - fabric.overhead[link]
        latency = alone * factor if factor is not None else _read(key, text, seconds=True)
        values[link] = latency + fabric.overhead[link]


def _factor(key: str, text: str, base: float | None) -> float:
    """Return the factor of a value over ``base``; a rate of every dtype has none."""
    factor = factor_in(key, text)
    if factor is None and base is None:
        raise MachineError(
            f"{key} cannot be {text!r}; every dtype has its own, so write a factor such as x0.5"
        )
    if factor is None:
        factor = _read(key, text, seconds=False) / (base or 1.0)
    if not (0 < factor < math.inf):
        raise MachineError(
            f"{key} cannot be {text!r}; it must be more than 0; a card that fails is nic.7=down"
        )
    return factor


def _read(key: str, text: str, *, seconds: bool) -> float:
    try:
        return parse_seconds(text) if seconds else parse_bandwidth(text)
    except InputError as error:
        raise MachineError(f"{key}: {error}; or write a factor such as x0.5") from None
