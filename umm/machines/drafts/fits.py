"""Fitting the numbers of a machine file to benchmark logs, with the residual of each row."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, inf, log
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from umm.errors import MachineError
from umm.machines.build import build
from umm.machines.drafts.logs import Log, Message, Multiplied, Timed
from umm.machines.library import Pace, considered
from umm.machines.machine import MATRIX_TYPES, Machine
from umm.machines.settings import scaled
from umm.numbers import parse_real
from umm.units import counted, parse_seconds

MAX_LOG_FACTORS = (log(5.0), log(2.0))
"""How far a start and a rate may be from the other machine's, so that ways do not change places."""
PULL = 1e-3  # how much a fit is drawn to the other machine's numbers, where rows leave them open
LARGE = 2**20  # bytes from which rows count in full; runs of smaller ones differ by a factor of two
FAR = 0.15  # mean of a fit's residuals, as logarithms, above which its law is said not to hold


class Number(NamedTuple):
    """A number that was fitted: its key, as it was and as it is."""

    key: str
    before: str
    after: str


class Residual(NamedTuple):
    """A row and the fitted machine's prediction."""

    what: str  # the collective, or "message", or the shape of a GEMM
    ranks: int  # of a group
    nbytes: int  # its size
    measured_s: float  # measured seconds
    predicted_s: float  # seconds by the fitted numbers

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def is_large(self) -> bool:
        """Whether it counts in full."""
        return self.nbytes >= LARGE


class Fitted(NamedTuple):
    """The result of a fit."""

    content: dict[str, Any]  # of the new machine's file
    numbers: list[Number]  # those that were fitted
    residuals: list[Residual]  # every row that was used
    unsaid: list[str]  # numbers that the logs could not determine


def fitted(
    content: Mapping[str, Any], logs: Iterable[Log], template: Mapping[str, Any], source: str
) -> Fitted:
    """Return a machine's content with the numbers that logs determine.

    MachineError for rows of more ranks than the machine has.

    Args:
        content: Of the machine whose numbers stand in, marked as that machine's.
        template: The ``[library]`` of another machine, for one that has none.
    """
    result = Fitted(copy.deepcopy(dict(content)), [], [], [])
    logs = list(logs)
    for each in logs:
        result.unsaid.extend(f"{each.tool}: {text}" for text in each.unsaid)
    copies = [x for each in logs for x in each.copies]
    fabric: dict[str, Any] = result.content["fabric"]
    links = fabric["inside"] if fabric["kind"] == "cluster" else fabric  # those inside a node
    if copies and "bandwidth" in links:
        least, most, usual = (f"{x / 1e9:.4g} GB/s" for x in (min(copies), max(copies), median(copies)))
        _renew(result, links, "bandwidth", "fabric.bandwidth", usual, source)
        links["bandwidth"]["range"] = [least, most]
    elif copies:
        result.unsaid.append("fabric.bandwidth: links of this machine are described one by one")
    messages = [x for each in logs for x in each.messages]
    if messages:
        _messages(result, messages, source)
    timed = [x for each in logs for x in each.collectives]
    if timed:
        _collectives(result, timed, template, source)
    else:
        result.unsaid.append("collectives: no log has any; those numbers stay the other machine's")
    gemms = [x for each in logs for x in each.gemms]
    if gemms:
        _gemms(result, gemms, source)
    else:
        result.unsaid.append("GEMMs: no log has any; those numbers stay the other machine's")
    return result


def _machine(content: Mapping[str, Any]) -> Machine:
    return build(content, Path("fitted.toml"), "fitted")


def _messages(result: Fitted, messages: list[Message], source: str) -> None:
    """Fit a link's latency and bandwidth: between nodes where the machine has some, else inside."""
    content = result.content
    fabric = content["fabric"]
    if fabric["kind"] == "tiers":
        where, card = "fabric.nic", fabric["nic"]
    elif fabric["kind"] == "cluster":
        where, card = "fabric.network.card", fabric["network"]["card"]
    elif "network" in content:
        where, card = "network.card", content["network"]["card"]
    else:
        where, card = "fabric", fabric
    if "latency" not in card:
        result.unsaid.append("latency and bandwidth of messages: this machine has no links, or lists each")
        return
    machine = _machine(content)
    alone = [x for x in messages if x.seconds is not None]
    if alone:
        smallest = min(alone, key=lambda x: x.nbytes)
        assert smallest.seconds is not None
        over = smallest.seconds - machine.transfer_overhead_s
        if over < 0:
            half = f"{smallest.seconds / 2 * 1e6:.4g} us"
            _renew(result, content["devices"], "transfer_overhead", "devices.transfer_overhead", half, source)
            over = smallest.seconds / 2
        _renew(result, card, "latency", f"{where}.latency", f"{over / 2 * 1e6:.4g} us", source)
    rates = [x.bandwidth for x in messages if x.bandwidth] + [
        x.nbytes / x.seconds for x in alone if x.seconds and x.nbytes >= 2**20
    ]
    if rates:
        _renew(result, card, "bandwidth", f"{where}.bandwidth", f"{max(rates) / 1e9:.4g} GB/s", source)
    else:
        result.unsaid.append("bandwidth of a link: no message of 1 MiB or more")
    if where != "fabric":
        result.unsaid.append(f"whether these messages crossed nodes: they were taken to, and set {where}")
    route = _machine(content).transfer_overhead_s + 2 * parse_seconds(card["latency"]["value"])
    width = max(rates, default=0.0)
    for x in messages:
        took = x.seconds if x.seconds is not None else x.nbytes / (x.bandwidth or 1.0)
        if width and took and x.seconds is not None:
            result.residuals.append(Residual("message", 2, x.nbytes, took, route + x.nbytes / width))


def _renew(result: Fitted, table: dict[str, Any], key: str, name: str, value: Any, source: str) -> None:
    old = table[key]
    kept = {name: x for name, x in old.items() if name == "per"}
    table[key] = {"value": value, "source": source, "measured": True} | kept
    result.numbers.append(Number(name, str(old["value"]), str(value)))


# Collectives ----------------------------------------------------------------------------------------


def _collectives(result: Fitted, timed: list[Timed], template: Mapping[str, Any], source: str) -> None:
    """Fit starts and rates of the library's ways, each by a factor on the other machine's."""
    content = result.content
    if "library" not in content:
        content["library"] = copy.deepcopy(dict(template))
        result.unsaid.append("ways of the library: taken from another machine's, whose links are others")
    machine = _machine(content)
    apart = sorted({x.nodes for x in timed if x.nodes > 1})
    if apart:
        result.unsaid.append(
            f"what comes in between nodes: rows on {', '.join(map(str, apart))} nodes were left out"
        )
    rows = [x for x in timed if x.nodes == 1]
    most = max((x.ranks for x in rows), default=0)
    if most > machine.device_count:
        raise MachineError(
            f"the logs have collectives among {most} ranks, but {counted(machine.device_count, 'device')} "
            "stand in; give --nodes, or --from a machine with as many"
        )
    for what in dict.fromkeys(x.what for x in rows):
        _of_one(result, machine, what, [x for x in rows if x.what == what], source)
    for what in ("all-gather", "reduce-scatter", "all-reduce", "all-to-all"):
        if what not in {x.what for x in rows}:
            result.unsaid.append(f"{what}: no row; it stays the other machine's")


def _of_one(result: Fitted, machine: Machine, what: str, rows: list[Timed], source: str) -> None:
    assert machine.library is not None
    paces = machine.library.ways(what)
    widths = {p: machine.hears(range(p))[0] for p in {x.ranks for x in rows}}
    open_to = [considered(paces, what, x.nbytes, x.ranks) for x in rows]
    took = np.log([x.seconds for x in rows])
    weights = np.array([1.0 if x.nbytes >= LARGE else 0.2 for x in rows])

    def laws(factors: Sequence[float]) -> list[list[float]]:
        """Return the seconds of each row in each way, its start and its rate times factors."""
        seconds_of = []
        for number, (name, pace) in enumerate(paces.items()):
            start, rate = factors[2 * number : 2 * number + 2]
            seconds_of.append(
                [
                    _takes(pace, x, widths[x.ranks], start, rate) if name in names else inf
                    for x, names in zip(rows, open_to, strict=True)
                ]
            )
        return seconds_of

    def off(logs: list[float]) -> float:
        errors = np.log(np.min(laws([exp(x) for x in logs]), axis=0)) - took
        mean = np.average(np.minimum(np.abs(errors), 0.7) ** 1.5, weights=weights)
        return float(mean) + PULL * float(np.sum(np.square(logs)))

    factors = [exp(x) for x in least(off, [*MAX_LOG_FACTORS] * len(paces))]
    seconds = np.array(laws(factors))
    used = set(seconds.argmin(axis=0).tolist())
    table = result.content["library"][what]
    for number, name in enumerate(paces):
        if number not in used:
            result.unsaid.append(f"{what} by {name}: no size at which the library takes it")
            continue
        for key, factor in (
            ("start", factors[2 * number]), ("step", factors[2 * number]),
            ("link", factors[2 * number + 1]), ("blocks", factors[2 * number + 1]),
            ("drift", 1.0 / factors[2 * number + 1]),
        ):  # fmt: skip
            if key in table[name]:
                old = table[name][key]
                value = _rounded(scaled(old["value"], factor))
                _renew(result, table[name], key, f"library.{what}.{name}.{key}", value, source)
    sizes = sorted({x.ranks for x in rows})
    if len(sizes) == 1:
        result.unsaid.append(
            f"{what}: how starts and rates depend on the number of ranks, for all rows are of {sizes[0]}; "
            "that is the other machine's"
        )
    best = seconds.min(axis=0)
    if float(np.average(np.abs(np.log(best) - took), weights=weights)) > FAR:
        result.unsaid.append(f"{what}: the law of the library's ways is off by more than 15 % in the mean")
    result.residuals.extend(
        Residual(what, x.ranks, x.nbytes, x.seconds, float(y)) for x, y in zip(rows, best, strict=True)
    )


def _rounded(value: float | str) -> float | str:
    """Return a number, or one with its unit, to four digits; shares stay in the range of a file."""
    if isinstance(value, str):
        number, unit = value.split()
        return f"{parse_real(number):.4g} {unit}"
    return min(4.0, float(f"{value:.4g}"))


def _takes(pace: Pace, row: Timed, width: float, start: float, rate: float) -> float:
    bytes_s = pace.rate(row.ranks, width, row.nbytes / row.ranks) * rate
    return start * pace.start_s(row.ranks) + pace.moved(row.what, row.nbytes, row.ranks) / bytes_s


def least(off: Callable[[list[float]], float], most: Sequence[float]) -> list[float]:
    """Return where a function of some numbers is least, by steps along each axis that shrink.

    Args:
        most: How far from 0, where it begins, each number may be.

    >>> [round(x, 1) for x in least(lambda x: (x[0] - 1) ** 2 + abs(x[1] + 2), [5.0, 1.5])]
    [1.0, -1.5]
    """
    at, step = [0.0] * len(most), 0.8
    best = off(at)
    while step > 0.004:
        moved = False
        for axis in range(len(at)):
            for turn in (step, -step):
                tried = [*at[:axis], at[axis] + turn, *at[axis + 1 :]]
                if abs(tried[axis]) > most[axis]:
                    continue
                value = off(tried)
                if value < best - 1e-12:
                    at, best, moved = tried, value, True
        if not moved:
            step /= 2
    return at


# GEMMs ----------------------------------------------------------------------------------------------


def _gemms(result: Fitted, gemms: list[Multiplied], source: str) -> None:
    """Fit the share of the peak by type: the median over GEMMs long enough to show it."""
    machine = _machine(result.content)
    tables = {x["dtype"]: x for x in result.content["devices"].get("efficiency", [])}
    if any(not x.dtype for x in gemms):
        result.unsaid.append("GEMMs without a type: add a column dtype")
    for dtype in dict.fromkeys(x.dtype for x in gemms if x.dtype):
        rows = [x for x in gemms if x.dtype == dtype]
        peaks = result.content["devices"]["peak"]
        if dtype not in peaks or dtype not in tables or not isinstance(tables[dtype]["value"], float):
            result.unsaid.append(f"GEMMs in {dtype}: the file has no peak, or a table by shape, for it")
            continue
        of_type, name = (machine.with_tf32(), "float32") if dtype == "tf32" else (machine, dtype)
        name = MATRIX_TYPES.get(name, name)
        ideal = [2.0 * x.m * x.n * x.k * x.batch / of_type.peak(name) for x in rows]
        share = [float(of_type.gemm_efficiency(name, x.m, x.n, x.k, x.batch)) for x in rows]
        takes = [y / z + machine.launch_s for y, z in zip(ideal, share, strict=True)]
        large = [i for i, x in enumerate(ideal) if x > 20 * machine.launch_s] or list(range(len(rows)))
        ratio = exp(median(log(takes[i] / rows[i].seconds) for i in large))
        old = tables[dtype]["value"]
        new = min(max(1.0, old), float(f"{old * ratio:.3g}"))  # some go beyond the data sheet's peak
        kept = {key: x for key, x in tables[dtype].items() if key not in ("range", "assumed")}
        tables[dtype].clear()
        tables[dtype].update(kept | {"value": new, "source": source, "measured": True})
        result.numbers.append(Number(f"devices.efficiency.{dtype}", str(old), str(new)))
        for x, y, z in zip(rows, ideal, share, strict=True):
            shape = (f"{x.batch} of " if x.batch > 1 else "") + f"{x.m}x{x.n}x{x.k} {dtype}"
            after = y / (z * new / old) + machine.launch_s
            result.residuals.append(Residual(shape, 1, 0, x.seconds, after))
