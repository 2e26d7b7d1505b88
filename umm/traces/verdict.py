"""What bounds a trace, and the one sentence that says so."""

from dataclasses import dataclass

import numpy as np

from umm.arrays import Ints
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import GEMM, KINDS
from umm.traces.breakdown import breakdown, critical_path, path_times
from umm.traces.spans import Spans
from umm.traces.traffic import link_utilisation


@dataclass(frozen=True)
class Bottleneck:
    """What a trace spends most of its critical path on.

    Attributes:
        kind: ``compute``, a kind of action, or ``waiting`` where nothing of the path runs; ``memory
            bandwidth`` where gemms wait for memory.
        share: Its share of the critical path, 0 to 1.
        link: Of a transfer, the link it spends most of that time on; empty if it crosses none.
        links: On how many links it spends that time.
        intensity: Where memory binds, flop for each byte of A, B and C that gemms touch.
    """

    kind: str
    share: float
    link: str = ""
    links: int = 0
    intensity: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} on {self.link}" if self.link else self.kind


def bottleneck(spans: Spans) -> Bottleneck:
    """Return what bounds a trace: the kind of action that most of its critical path consists of."""
    schedule = spans.schedule
    path = critical_path(spans)
    seconds, waiting = path_times(spans, path)
    total = spans.makespan_s
    by_kind = np.bincount(schedule.kind[path], weights=seconds, minlength=len(KINDS))
    kind = int(np.argmax(by_kind))
    if total <= 0 or waiting > by_kind[kind]:
        return Bottleneck("waiting", waiting / total if total > 0 else 1.0)
    share = float(by_kind[kind]) / total
    if kind == GEMM:
        flop_per_byte = memory_bound(schedule, path[schedule.kind[path] == GEMM])
        if flop_per_byte:
            return Bottleneck("memory bandwidth", share, intensity=flop_per_byte)
        return Bottleneck("compute", share)
    used = link_utilisation(spans)
    on_link: dict[int, float] = {}
    for action, lasts in zip(path.tolist(), seconds.tolist(), strict=True):
        src, dst = int(schedule.src[action]), int(schedule.dst[action])
        if schedule.kind[action] == kind and src != dst:
            link = max(schedule.routes[src, dst], key=lambda x: float(used[x]))
            on_link[link] = on_link.get(link, 0.0) + lasts
    if not on_link:
        return Bottleneck(KINDS[kind], share)
    longest = max(on_link, key=on_link.__getitem__)
    return Bottleneck(KINDS[kind], share, schedule.links.names[longest], len(on_link))


def memory_bound(schedule: Schedule, gemms: Ints) -> float:
    """Return the flop/byte of some gemms if they wait for memory most of their time; 0 if not, or unknown.

    Each element of A, B and C counts once. Memory binds where that takes longer than the arithmetic does at
    the peak, and more than half of the time that gemms take: the rest is starts, or tiles that fit badly.
    """
    if not (schedule.ridge and schedule.peak and len(gemms)):
        return 0.0
    devices = len(np.unique(schedule.lanes.engine[schedule.lanes.engine >= 0]))
    details, itemsizes = schedule.details, schedule.itemsizes
    m, n, k = details.multiplied[gemms].T.astype(np.float64)
    flop = float((2.0 * m * n * k * details.batch[gemms]).sum())
    elements = details.shape[gemms, :3].prod(axis=2)
    sizes = np.stack([itemsizes[schedule.operand_tensors(i)[gemms]] for i in range(3)], axis=1)
    nbytes = float((elements * sizes).sum())
    intensity = flop / nbytes
    memory = nbytes * schedule.ridge / (schedule.peak / devices)
    waits = intensity < schedule.ridge and memory > float(schedule.seconds[gemms].sum()) / 2
    return intensity if waits else 0.0


def verdict(spans: Spans) -> str:
    """Return one sentence: what bounds the trace, and how much of its communication gemms hide.

    Of one process in place of all ranks nothing is said about its time.
    """
    overlapped = breakdown(spans).overlapped
    quiet = bool(np.isnan(overlapped))
    if spans.times == "meaningless":
        return "Order and bytes are real, times are not: one process in place of all ranks" + (
            "; nothing is communicated." if quiet else "."
        )
    found = bottleneck(spans)
    others = f" and {found.links - 1} more" if found.links > 1 else ""
    binds = f"Bound by {found}{others}"
    if found.intensity:
        binds = f"Memory bandwidth binds: {found.intensity:.2g} flop/byte"
    return f"{binds}, {percent(found.share)} of the critical path; " + (
        "nothing is communicated." if quiet else f"{percent(overlapped)} overlapped."
    )


def percent(share: float) -> str:
    """Return a share as text.

    >>> percent(0.714)
    '71 %'
    """
    return f"{100 * share:.0f} %"
