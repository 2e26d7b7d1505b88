"""The bottleneck: the critical path of a trace, the resources its actions wait for, and the verdict."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Bools, Floats, Ints, in_c
from umm.dtypes import product_dtype, weight_bytes
from umm.errors import MachineError
from umm.machines.fabric import kind_of_link, narrowest
from umm.machines.files import last_named
from umm.machines.kernels import WIDE
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import GEMM, KINDS, LOCAL, MAP, TRANSFERS
from umm.schedules.table.resources import Links
from umm.traces.breakdown import breakdown
from umm.traces.traffic import Spans, link_utilisation
from umm.units import counted, percent

path_in_c = in_c("umm.traces._path", "path")

ARITHMETIC, MEMORY, LAUNCHES, LATENCY, IDLE = "arithmetic", "memory bandwidth", "launches", "latency", "idle"
QUANTIZATION = "tile and wave quantization"
"""Units of a device without a tile, or with a cut one: NVIDIA, Matrix multiplication background guide."""
RATE = "kernels' rate"
"""What kernels lose beside that: they reach no more of the peak, on any shape or with their tiles."""

SLOWED = "slowed by transfers"  # what kernels lose to the transfers of their rank beside them

BUSY = 0.85  # the share of their time from which ranks that compute bind beside a link of the critical path

NOTED = 0.05  # the share of the makespan from which a verdict names what transfers slow down


def critical_path(spans: Spans) -> Ints:
    """Return the critical path as action numbers, first to last, without barriers."""
    # It is followed back from the last finish: an action was held up by whichever finished last of its
    # dependencies and of the earlier actions on its lane.
    schedule, end = spans.schedule, spans.end
    if not len(schedule):
        return np.zeros(0, dtype=np.int64)
    path = np.empty(len(schedule), dtype=np.int64)
    columns = (schedule.lane, schedule.after_offsets, schedule.after, end, schedule.kind)
    return path[path_in_c(*map(np.ascontiguousarray, columns), path) :]


def path_times(spans: Spans, path: Ints) -> tuple[Floats, float]:
    """Return the seconds each action of a critical path adds to it, and the seconds nothing of it runs."""
    # The second is 0 in a simulation; in a measured trace it is the time between what an action waited for
    # and its start. Both together add up to the last finish.
    end = spans.end[path]
    ready = np.concatenate(([0.0], end[:-1]))
    began = np.maximum(spans.start[path], ready)
    return end - began, float((began - ready).sum())


@dataclass(frozen=True)
class Bottleneck:
    """The resource on which a trace spends most of its critical path."""

    # Of kernels `arithmetic`, `memory bandwidth`, `launches`, `tile and wave quantization` or `kernels'
    # rate`; a kind of transfer where a link binds; `latency`, the time before transfers and collectives
    # begin; `idle` where nothing of the path runs.
    kind: str
    share: float  # its share of the critical path, 0 to 1
    link: str = ""  # of a transfer, the link it spends most of that time on; empty if it crosses none
    links: int = 0  # on how many links it spends that time
    # Of kernels that wait for memory bandwidth, the flop for each byte they read and write.
    intensity: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} on {self.link}" if self.link else self.kind


def bottleneck(spans: Spans) -> Bottleneck:
    """Return the resource that most of a trace's critical path waits for."""
    schedule, total = spans.schedule, spans.makespan_s
    path = critical_path(spans)
    seconds, idle = path_times(spans, path)
    kind = schedule.kind[path]
    latency = np.minimum(_latency(schedule, path), seconds)
    by_kind = np.bincount(kind, weights=seconds - latency, minlength=len(KINDS))
    shares = {LATENCY: float(latency.sum()), IDLE: idle, **{KINDS[x]: float(by_kind[x]) for x in TRANSFERS}}
    of_kernels, work = float(by_kind[[GEMM, MAP]].sum()), None
    kernels = path[_are_kernels(kind)]
    if of_kernels >= max(shares.values()):  # else no part of theirs can be the most
        work = work_of(schedule, kernels)
        parts = {ARITHMETIC: 1.0} if work is None else work.shares(schedule.seconds[kernels])
        shares = {what: share * of_kernels for what, share in parts.items()} | shares
    what = max(shares, key=shares.__getitem__)
    if total <= 0:
        return Bottleneck(IDLE, 1.0)
    share = shares[what] / total
    if what == MEMORY and work is not None:
        flop = float(schedule.flop[kernels].sum())
        return Bottleneck(what, share, intensity=flop / float(work.nbytes.sum()))
    if what not in KINDS:
        return Bottleneck(what, share)
    moving = KINDS.index(what)
    on_link: dict[int, float] = {}
    used: list[float] = []
    pairs = zip(schedule.src[path].tolist(), schedule.dst[path].tolist(), strict=True)
    for kind_of_action, (src, dst), lasts in zip(kind.tolist(), pairs, seconds.tolist(), strict=True):
        if kind_of_action == moving and src != dst:
            link, *others = schedule.routes[src, dst]
            if others:
                used = used or link_utilisation(spans).tolist()
                link = max((link, *others), key=used.__getitem__)
            on_link[link] = on_link.get(link, 0.0) + lasts
    if not on_link:
        return Bottleneck(what, share)
    first = max(on_link, key=on_link.__getitem__)
    return Bottleneck(what, share, schedule.links.names[first], len(on_link))


def _are_kernels(kind: NDArray[np.int8]) -> Bools:
    """Return which of some kinds run on a GEMM engine."""
    kernels: Bools = (kind == GEMM) | (kind == MAP)
    return kernels


def _latency(schedule: Schedule, actions: Ints) -> Floats:
    """Return the seconds actions take to begin: transfers their wait and route, starts of collectives all."""
    src, dst, seconds = schedule.src[actions], schedule.dst[actions], schedule.seconds[actions]
    latency = np.where(schedule.kind[actions] == LOCAL, seconds, 0.0)
    places = (src != dst).nonzero()[0]
    pairs = zip(src[places].tolist(), dst[places].tolist(), strict=True)
    route_s = [_route_latency(schedule.links, schedule.routes[pair]) for pair in pairs]
    latency[places] = seconds[places] + route_s
    return latency


@lru_cache(maxsize=4096)
def _route_latency(links: Links, route: tuple[int, ...]) -> float:
    return float(links.latency[list(route)].sum())


def waits_for(schedule: Schedule, actions: Ints) -> list[str]:
    """Return the resource that each of some actions waits for: of its device, a link or a latency."""
    latency = _latency(schedule, actions)
    kernels = np.flatnonzero(_are_kernels(schedule.kind[actions]))
    work = work_of(schedule, actions[kernels])
    resources = [LATENCY] * len(actions)
    for place in np.flatnonzero(schedule.src[actions] >= 0).tolist():
        src, dst = (int(x[actions[place]]) for x in (schedule.src, schedule.dst))
        if src == dst:
            resources[place] = MEMORY
            continue
        link = narrowest(schedule.routes[src, dst], schedule.links.bandwidth)
        if schedule.nbytes[actions[place]] / schedule.links.bandwidth[link] > latency[place]:
            resources[place] = f"link {schedule.links.names[link]}"
    parts = {ARITHMETIC: np.ones(len(kernels))}
    if work is not None:
        parts = work.parts(schedule.seconds[actions[kernels]])
    names, longest = list(parts), np.argmax(list(parts.values()), axis=0)
    for place, what in zip(kernels.tolist(), longest.tolist(), strict=True):
        resources[place] = names[what]
    return resources


class Work(NamedTuple):
    """The parts of the time of some gemms and maps, each with a device to itself, in seconds."""

    launch: Floats  # until they begin: the launch, or the start of a kernel that is queued
    peak: Floats  # arithmetic at the device's peak; none is counted of a map
    rate: Floats  # arithmetic at the best rate that kernels reach, of fused attention all its arithmetic
    memory: Floats  # reading and writing their bytes
    by_memory: Bools  # whether they wait for their bytes rather than for arithmetic
    nbytes: Floats  # bytes they read and write, each once
    idle: Floats  # lost in waves and edges of tiles, for GEMMs whose kernels the machine's file describes

    def shares(self, seconds: Floats) -> dict[str, float]:
        """Return each of their parts as a share of all their seconds."""
        total = float(seconds.sum()) or 1.0
        return {what: float(x.sum()) / total for what, x in self.parts(seconds).items()}

    def parts(self, seconds: Floats) -> dict[str, Floats]:
        """Return the parts of their seconds: arithmetic, memory, launches, waves and tiles, and the rest."""
        left = seconds - self.launch - np.maximum(self.rate, self.memory)
        idle = np.minimum(self.idle, left)
        return {
            ARITHMETIC: np.where(self.by_memory, 0.0, self.rate),
            MEMORY: np.where(self.by_memory, self.memory, 0.0),
            LAUNCHES: self.launch,
            QUANTIZATION: idle,
            RATE: left - idle,
        }


def work_of(schedule: Schedule, actions: Ints) -> Work | None:
    """Return the parts of the time of some gemms and maps; None if the machine is unknown here."""
    peak = _peak(schedule)
    try:
        machine = last_named(schedule.machine)
    except MachineError:  # an algorithm's own, or a file that is not here
        return None
    seconds, gemm = schedule.seconds[actions], schedule.kind[actions] == GEMM
    tensors, sized, sizes = schedule.kernel_operands(actions)
    start = np.full(len(actions), machine.launch_s)
    bandwidth = np.where(gemm, machine.work_bandwidth, machine.pass_bandwidth)
    best, again, worked = np.ones(len(actions)), np.zeros(len(actions)), np.ones(len(actions))
    some = tensors[gemm][:, :3]
    operands = set(map(tuple, (some[:1] if (some == some[:1]).all() else some).tolist()))
    for c, a, b in operands:
        rows = gemm if len(operands) == 1 else gemm & (tensors[:, :3] == (c, a, b)).all(axis=1)
        left, right = schedule.tensors[a], schedule.tensors[b]
        dtype = product_dtype(left.dtype, right.dtype, right.stored)
        if right.stored:
            sized[rows, 2] = sized[rows, 2] * weight_bytes(dtype) / right.itemsize
        best[rows] = machine.most_efficiency(dtype, sizes[2, rows])
        kernels = machine.kernels(dtype)
        if kernels is None:
            again[rows] = 1  # C is read too
        else:
            wide = kernels.wide if kernels.wide and schedule.itemsizes[c] >= WIDE else kernels
            start[rows], bandwidth[rows] = wide.start_s, wide.memory
            m, n, k = sizes[:, rows]
            batch = schedule.flop[actions[rows]] / np.maximum(2 * m * n * k, 1)
            worked[rows] = kernels.worked(m, n, k, batch, c_itemsize=int(schedule.itemsizes[c]))
    nbytes = sized.sum(axis=1).astype(np.float64)
    memory = np.minimum((nbytes + again * sized[:, 0]) / bandwidth, seconds)
    at_peak = np.minimum(schedule.flop[actions] / peak, seconds) if peak else 0.0 * seconds
    # What runs as part of another kernel has no launch of its own.
    launch = np.minimum(start, seconds - np.maximum(memory, at_peak))
    body = seconds - launch
    # Attention waits for its cache where its arithmetic at the peak takes less time than its bytes.
    # Its flop, and those of scans, the program alone knows: the share of the seconds of maps that they take.
    of_maps = float(schedule.seconds[schedule.kind == MAP].sum())
    unsaid = max(sum(schedule.program.flop_of_types.values()) - float(schedule.flop.sum()), 0.0)
    share = unsaid / (peak * of_maps) if peak and of_maps else 1.0
    computes = memory < body * min(0.5, share)
    memory = np.where(gemm | computes | (memory >= body / 2), memory, body)
    rate = np.where(gemm, np.minimum(at_peak / best, body), np.where(computes, body, 0.0))
    return Work(launch, at_peak, rate, memory, memory > rate, nbytes, (1.0 - worked) * body)


def _peak(schedule: Schedule) -> float:
    """Return flop/s of one device; 0 if unknown."""
    return schedule.peak / max(schedule.lanes.engines, 1)


def below_peak(spans: Spans) -> dict[str, float]:
    """Return the causes that keep ranks below their peak, as shares of the makespan, the largest first."""
    # Together with the fraction of peak they add up to 1.
    schedule, total = spans.schedule, spans.makespan_s
    mean = breakdown(spans).mean
    peak = _peak(schedule)
    could = total * schedule.peak
    shares = {part.replace("_", " "): seconds / total for part, seconds in mean.items()}
    slower = shares.pop("compute") - schedule.program.flop / could
    actions = np.flatnonzero(_are_kernels(schedule.kind))
    work = work_of(schedule, actions)
    if work is None:
        of_total = {"compute slower than peak": slower}
        return dict(sorted((shares | of_total).items(), key=lambda x: -x[1]))
    parts = work.parts(schedule.seconds[actions])
    computed = sum(schedule.program.flop_of_types.values())
    unsaid = computed - float(schedule.flop[actions].sum())
    lost = {
        MEMORY: (work.memory - work.peak)[work.by_memory].sum(),
        LAUNCHES: work.launch.sum(),
        RATE: (work.rate - work.peak)[~work.by_memory].sum() + parts[RATE].sum() - max(unsaid, 0.0) / peak,
        QUANTIZATION: parts[QUANTIZATION].sum(),
        "repeated work": (max(-unsaid, 0.0) + computed - schedule.program.flop) / peak,
    }
    devices = schedule.peak / peak
    of_total = {what: max(float(seconds), 0.0) / devices / total for what, seconds in lost.items()}
    known = sum(of_total.values())
    if known < slower:
        of_total[SLOWED] = slower - known
    elif known > 0:  # several at once on a device
        of_total = {what: share * slower / known for what, share in of_total.items()}
    return dict(sorted((shares | of_total).items(), key=lambda x: -x[1]))


def lost_in_words(spans: Spans, least: float = 0.01) -> str:
    """Return the causes that keep ranks below peak, above some share; empty if they are unknown."""
    if not (spans.schedule.peak and spans.makespan_s):
        return ""
    return ", ".join(f"{what} {percent(x)}" for what, x in below_peak(spans).items() if x >= least)


def verdict(spans: Spans) -> str:
    """Return one sentence: the bottleneck, and how much of the communication gemms hide."""
    # Of one process in place of all ranks nothing is said about its time.
    parts = breakdown(spans)
    overlapped = parts.overlapped
    quiet = bool(np.isnan(overlapped))
    if spans.times == "meaningless":
        return "Order and bytes are real, times are not: one process in place of all ranks" + (
            "; nothing is communicated." if quiet else "."
        )
    bound = bottleneck(spans)
    rate = f" ({bound.intensity:.3g} flop/byte)" if bound.intensity else ""
    others = f" and {counted(bound.links - 1, 'other link')}" if bound.links > 1 else ""
    link = f" on {kind_of_link(bound.link, bound.links)} ({bound.link}{others})" if bound.link else ""
    binds = f"{bound.kind}{rate}{link}, {percent(bound.share)} of the critical path; "
    computing = parts.mean["compute"] / spans.makespan_s if spans.makespan_s > 0 else 0.0
    if bound.kind in KINDS and computing >= BUSY:
        slowed = below_peak(spans).get(SLOWED, 0.0) if spans.schedule.peak else 0.0
        if slowed >= NOTED:
            moving = float(parts.in_flight.mean()) / spans.makespan_s
            binds = (
                f"compute and transfers together: ranks compute {percent(computing)} of the time, "
                f"{percent(slowed)} lost as transfers slow it, and move data {percent(moving)}; {binds}"
            )
        else:
            binds = f"compute, {percent(computing)} of the ranks' time, and by {binds}"
    return f"Bound by {binds}" + (
        "nothing is communicated." if quiet else f"{percent(overlapped)} overlapped."
    )
