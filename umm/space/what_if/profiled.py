"""Why a profile takes longer than its prediction: the numbers of the machine that would close the gap."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from umm.errors import UmmError
from umm.machines import Machine
from umm.plans.collectives.library import domains, seconds_alone
from umm.profiles.beside import Beside, Row
from umm.profiles.kernel import ATTENTION, COLLECTIVES, MAP, MULTIPLY, Kernel
from umm.space.vary import Knob, knobs, peak_name
from umm.space.what_if.measured import REASONS, Turn, seek
from umm.units import format_seconds, percent

SLOWER = 1.5
"""How many times too slow a collective is before its links are blamed: its own law is off by less."""
OFF = 1.15  # the same of multiplies: twice the error of the kernels' law on machines it was fitted on
ANOTHER = 20.0  # how many times too long or short all kernels are of a program that is another one
IDLE, WAITS = 0.1, 0.05
"""Shares of a step in which nothing runs, and of kernels' time that waits for other ranks, worth a line."""
GB = 1e9


class Cause(NamedTuple):
    """One reason of a gap."""

    words: str  # in a sentence or two
    seconds: float  # seconds of a step that it costs
    # The number of the machine that closes the gap, as `--set` takes it; empty where none does.
    setting: str = ""


def causes(result: Beside, machine: Machine, dtype: str = "bfloat16") -> list[Cause]:
    """Return the reasons of a gap, the one that costs most first."""
    apart = result.measured_s / result.predicted_s if result.predicted_s else float("inf")
    if not 1 / ANOTHER < apart < ANOTHER:
        words = f"kernels take {apart:.3g} times the prediction: is it of the same model, step and ranks?"
        return [Cause(words, abs(result.measured_s - result.predicted_s))]
    known = [*_links(result, machine, dtype), *_kernels(result, peak_name(machine, dtype))]
    profile = result.profile
    waits, idle = sum(x.waits for x in result.rows), profile.span_s - profile.busy_s
    if waits > WAITS * result.measured_s:
        words = (
            f"collectives wait {format_seconds(waits)} for other ranks beyond their fastest calls: "
            "stragglers, an uneven split, or data that comes late"
        )
        known.append(Cause(words, waits))
    if idle > IDLE * profile.span_s:
        each = format_seconds(idle / (len(profile.kernels) / profile.steps))
        words = (
            f"the device is idle {percent(idle / profile.span_s)} of the time, {each} a kernel: "
            "the host issues them too slowly, or a pipeline's bubble"
        )
        known.append(Cause(words, idle))
    return sorted(known, key=lambda x: -x.seconds)


def _links(result: Beside, machine: Machine, dtype: str) -> Iterator[Cause]:
    """Yield one cause for each collective and group whose fastest calls are slower than the links allow."""
    by_group: dict[tuple[str, int], list[Row]] = {}
    for row in result.rows:
        one = row.measured.kernel if row.measured else None
        if one and one.kind in COLLECTIVES and one.ranks > 1 and one.nbytes:
            by_group.setdefault((one.kind, one.ranks), []).append(row)
    for (kind, ranks), rows in by_group.items():
        largest = max(rows, key=lambda x: x.measured.seconds if x.measured else 0.0)
        assert largest.measured is not None
        measured = largest.measured.fastest
        one = largest.measured.kernel._replace(seconds=measured)
        group = _group(one, largest, machine)
        try:
            price = seconds_alone(machine, kind, group, one.nbytes)
        except UmmError:
            continue
        if not price or measured < SLOWER * price:
            continue
        nodes = [len(x) for x in domains(machine, group, machine.device_count)]
        far = len(nodes) > 1
        unhindered = sum(x.measured.unhindered for x in rows if x.measured)
        knob = _knob(machine, dtype, far)
        setting = because = ""
        if knob is not None:
            priced = partial(seconds_alone, what=kind, ranks=group, nbytes=one.nbytes)
            explained = seek(Turn.of(knob, machine, priced), measured)
            value = f"x{explained.factor:.3g}" if "," in explained.then else explained.then.replace(" ", "")
            setting = f"{knob.name}={value}" if explained.explains else ""
            because = next((": " + text for end, text in REASONS if end in knob.name), "")
        rate = _bandwidth(one, nodes) / GB
        words = (
            f"{kind} of {ranks} ranks {'between' if far else 'within'} nodes runs at {rate:.3g} GB/s a "
            f"{'card' if far else 'rank'}, {rate * measured / price:.3g} predicted{because}"
        )
        yield Cause(words, unhindered * (1 - price / measured), setting)


def _bandwidth(one: Kernel, nodes: list[int]) -> float:
    """Return bytes/s through a rank's port, or between nodes through a card, one for each rank of a node."""
    if len(nodes) < 2:
        return one.bus_bandwidth
    others = (len(nodes) - 1) / len(nodes) * one.ranks / (one.ranks - 1)
    return one.bus_bandwidth * others / max(nodes)


def _group(one: Kernel, row: Row, machine: Machine) -> tuple[int, ...]:
    """Return a collective's ranks: as the profile or the prediction has them, else the machine's first."""
    if one.group and max(one.group) < machine.device_count:
        return one.group
    if row.predicted and len(row.predicted.kernel.group) == one.ranks:
        return row.predicted.kernel.group
    return tuple(range(min(one.ranks, machine.device_count)))


def _knob(machine: Machine, dtype: str, far: bool) -> Knob | None:
    """Return the bandwidth that joins nodes, or devices of one."""
    known = [
        x for x in knobs(machine, 2, dtype) if x.name.startswith("fabric") and x.name.endswith("bandwidth")
    ]
    single = [x for x in known if "*" not in x.name and ("card" in x.name or "nic" in x.name) == far]
    return next(iter(single or known), None)


def _kernels(result: Beside, peak: str) -> Iterator[Cause]:
    """Yield a cause for each of multiplies, attention and maps of both sides that is too slow.

    Args:
        peak: Type by which the machine's file names the peak of multiplies.
    """
    for kind in (MULTIPLY, ATTENTION, MAP):
        rows = [x for x in result.rows if x.kind == kind and x.predicted and x.measured]
        shaped = [x for x in rows if x.by == "shape"] or rows
        predicted, measured = (
            sum(y.seconds for x in shaped if (y := getattr(x, side))) for side in ("predicted", "measured")
        )
        if not predicted or measured < OFF * predicted:
            continue
        slow = measured / predicted
        calls = [
            sum(y.calls for x in shaped if (y := getattr(x, side))) for side in ("predicted", "measured")
        ]
        if kind == MULTIPLY:
            words = (
                f"multiplies take {slow:.2f} times as long: power or heat holds the clock, or another type"
            )
            setting = f"peak.{peak}=x{1 / slow:.2f}"
        elif kind == ATTENTION:
            words, setting = f"attention takes {slow:.2f} times as long: another kernel than the file's", ""
        else:
            more = (
                f" in {calls[1]:.0f} kernels, {calls[0]:.0f} predicted" if calls[1] > OFF * calls[0] else ""
            )
            words = f"maps take {slow:.2f} times as long{more}: fuse them (torch.compile)"
            setting = "" if more else f"memory_bandwidth=x{1 / slow:.2f}"
        yield Cause(words, measured - predicted, setting)
