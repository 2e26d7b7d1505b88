"""The one number of a machine or its software that would explain a measured time."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from umm.machines import Machine
from umm.space.vary import Knob, knobs
from umm.step.step import Question, simulated
from umm.units import format_seconds, percent

MAX_FACTOR = 64.0  # largest factor of a number that is tried, and one over the smallest
NEAR = 1e-3  # how near to the measured time the explained one has to come, as a share of it
LEAST_CALL, MOST_CALL = 1e-7, 1e-3
"""Seconds of the host for a kernel that are tried: a graph's node takes less, no framework more."""
CLOCK = "clock under load"
HOST = "host time a kernel"
_SOCKETS = (
    "sockets in place of RDMA, fewer cards than the file has, no GPUDirect: NCCL_DEBUG=INFO prints NET/IB or "
    "NET/Socket"
)
_CLOCK = "power or heat holds the clock: nvidia-smi -q -d PERFORMANCE"
_HOST = "the host issues kernels too slowly: CUDA graphs, torch.compile, fewer small kernels"
REASONS = (
    ("card.bandwidth", _SOCKETS), ("nic.bandwidth", _SOCKETS),
    ("memory_bandwidth", "maps that are not fused, or a device with less bandwidth"),
    ("bandwidth", "a link that is down, peer access off, a ring over PCIe: nvidia-smi topo -m"),
    ("peak", _CLOCK), (CLOCK, _CLOCK), ("launch", _HOST), (HOST, _HOST),
    ("latency", "more switches on the way, or a congested network"),
    ("overhead", "copies that pass through the host"),
)  # fmt: skip
"""What makes a number so, by a part of its name; the first that is in it counts."""


@dataclass(frozen=True)
class Turn:
    """A number that can be turned until a prediction meets a measured time."""

    name: str  # of the number; of the machine's as `--set` takes it
    now: str  # its value as predicted, in words
    base: float  # its value, or 1 of a factor
    least: float  # smallest value that is tried
    most: float  # largest value
    seconds: Callable[[float], float]  # seconds with a value
    words: Callable[[float], str]  # a value in words

    @classmethod
    def of(cls, knob: Knob, machine: Machine, seconds: Callable[[Machine], float]) -> "Turn":
        """Return a number of a machine, by its factor."""
        most = min(MAX_FACTOR, knob.most)
        by_factor = (knob.name, knob.at(1.0), 1.0, 1 / MAX_FACTOR, most)
        return cls(*by_factor, lambda factor: seconds(knob.on(machine, factor)), knob.at)


@dataclass(frozen=True)
class Explanation:
    """A number, and the value at which it explains a time."""

    name: str  # of the number
    now: str  # its value as predicted
    then: str  # the value that explains the time; where none does, the furthest that was tried
    factor: float  # that value over the one now
    seconds: float  # seconds with it
    explains: bool  # whether that is the measured time
    because: str  # what makes such a number so


def seek(turn: Turn, measured: float) -> Explanation:
    """Return the value of a number, nearest to its own, with which a prediction takes a measured time."""
    # Times are monotone in each number, so the interval that holds the value is halved, in the logarithm.
    start = min(max(turn.base, turn.least), turn.most)
    first = turn.seconds(turn.base)
    ends = [(x, turn.seconds(x)) for x in (turn.least, turn.most)]
    # The end on whose side the measured time is; of an end that changes nothing the other.
    end, last = max(reversed(ends), key=lambda x: (x[1] - first) * (1 if measured > first else -1))
    low, high = math.log(start), math.log(end)
    if (last - measured) * (measured - first) < 0:
        return _explained(turn, end, last, False)
    value, seconds = end, last
    for _ in range(40):
        middle = (low + high) / 2
        value = math.exp(middle)
        seconds = turn.seconds(value)
        if abs(seconds - measured) <= NEAR * measured:
            break
        if (seconds - measured) * (first - measured) > 0:
            low = middle
        else:
            high = middle
    return _explained(turn, value, seconds, abs(seconds - measured) <= 10 * NEAR * measured)


def _explained(turn: Turn, value: float, seconds: float, explains: bool) -> Explanation:
    because = next((words for end, words in REASONS if end in turn.name), "")
    slower = seconds > turn.seconds(turn.base)
    return Explanation(
        turn.name, turn.now, turn.words(value), value / turn.base, seconds,
        explains, because if slower else "",
    )  # fmt: skip


def explanations(turns: Iterable[Turn], measured: float) -> list[Explanation]:
    """Return each number's explanation of a time: those that explain it first, by the least change."""
    known = [seek(turn, measured) for turn in turns]
    return sorted(known, key=lambda x: (not x.explains, abs(math.log(x.factor))))


def turns_of_machine(
    machine: Machine, ranks: int, dtype: str, seconds: Callable[[Machine], float]
) -> Iterator[Turn]:
    """Yield the numbers of a machine that can explain a time."""
    known = knobs(machine, ranks, dtype)
    # Where one link explains a time, all of them together are no better an answer.
    alone = [x for x in known if "*" not in x.name]
    single = any(x.name.startswith("fabric.") for x in alone)
    return (Turn.of(knob, machine, seconds) for knob in (alone if single else known))


def turns_of_step(asked: Question) -> Iterator[Turn]:
    """Yield the numbers of a step's machine and its software that can explain its time."""
    rates = asked.rates

    def seconds(**changes: Any) -> float:
        return simulated(replace(asked, rates=replace(rates, **changes, layers={}, _known={})))

    clock = rates.load.clock
    yield Turn(
        CLOCK, f"{percent(clock)} of the first multiplies' rate (± {percent(rates.load.spread)})", 1.0,
        1 / MAX_FACTOR, 1 / clock, lambda factor: seconds(load=replace(rates.load, clock=clock * factor)),
        lambda factor: percent(clock * factor),
    )  # fmt: skip
    launch = rates.stack.launch_s
    now = format_seconds(launch) if launch else "hidden"
    yield Turn(
        HOST, now, launch or LEAST_CALL, LEAST_CALL, MOST_CALL,
        lambda launch: seconds(stack=replace(rates.stack, launch_s=launch)), format_seconds,
    )  # fmt: skip
    # A step's multiplies are priced by the kernels' law; its peak is turned by the clock.
    skipped = ("peak", "accumulate", "interference", "signal")
    others = turns_of_machine(asked.machine, asked.parallel.ranks, rates.dtype, lambda x: seconds(machine=x))
    yield from (turn for turn in others if not turn.name.startswith(skipped))
