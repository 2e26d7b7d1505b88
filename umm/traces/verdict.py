"""What bounds a trace, and the one sentence that says so."""

from dataclasses import dataclass

import numpy as np

from umm.arrays import Ints
from umm.errors import MachineError
from umm.machines import machine
from umm.schedules.table.details import GEMM, KINDS, MAP
from umm.traces.breakdown import breakdown, critical_path, path_times
from umm.traces.spans import Spans
from umm.traces.traffic import link_utilisation

COMPUTE = "compute"


@dataclass(frozen=True)
class Bottleneck:
    """What a trace spends most of its critical path on.

    Attributes:
        kind: ``compute`` where arithmetic binds, ``memory bandwidth`` or ``launches`` where kernels wait for
            these, a kind of transfer, or ``waiting`` where nothing of the path runs.
        share: Its share of the critical path, 0 to 1.
        link: Of a transfer, the link it spends most of that time on; empty if it crosses none.
        links: On how many links it spends that time.
    """

    kind: str
    share: float
    link: str = ""
    links: int = 0

    def __str__(self) -> str:
        return f"{self.kind} on {self.link}" if self.link else self.kind


def bottleneck(spans: Spans) -> Bottleneck:
    """Return what bounds a trace: the kind of action that most of its critical path consists of."""
    schedule = spans.schedule
    path = critical_path(spans)
    seconds, waiting = path_times(spans, path)
    total = spans.makespan_s
    by_kind = np.bincount(schedule.kind[path], weights=seconds, minlength=len(KINDS))
    by_kind[GEMM] += by_kind[MAP]  # both compute
    by_kind[MAP] = 0.0
    kind = int(np.argmax(by_kind))
    if total <= 0 or waiting > by_kind[kind]:
        return Bottleneck("waiting", waiting / total if total > 0 else 1.0)
    share = float(by_kind[kind]) / total
    if kind == GEMM:
        return Bottleneck(_resource(spans, path[np.isin(schedule.kind[path], (GEMM, MAP))]), share)
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


def _resource(spans: Spans, actions: Ints) -> str:
    """Return what most of some gemms and maps wait for: arithmetic, the memory, or being launched."""
    schedule, seconds = spans.schedule, spans.schedule.seconds[actions]
    devices = len(np.unique(schedule.lanes.engine[schedule.lanes.engine >= 0]))
    rate = schedule.peak / max(devices, 1)
    arithmetic = schedule.flop[actions] / rate if rate else np.zeros(len(actions))
    if arithmetic.sum() > seconds.sum() / 2:
        return COMPUTE
    try:
        of = machine(schedule.machine)
    except MachineError:  # an algorithm's own, or a file that is not here
        return COMPUTE
    details = schedule.details
    sizes = np.prod(details.shape[actions], axis=2) * (details.buffer[actions] >= 0)
    items = np.stack(
        [schedule.itemsizes[schedule.operand_tensors(x)[actions]] for x in range(details.operands)]
    )
    memory = np.minimum((sizes * items.T).sum(axis=1) / of.work_bandwidth, seconds)
    launch = np.where(seconds > 0, np.minimum(of.launch_s, seconds), 0.0)
    # What fused attention takes beyond its bytes is arithmetic, and so is what a gemm takes beyond either.
    rest = float((seconds - np.maximum(memory, arithmetic) - launch).sum())
    shares = {
        COMPUTE: float(arithmetic.sum()) + max(rest, 0.0),
        "memory bandwidth": float(memory.sum()),
        "launches": float(launch.sum()),
    }
    return max(shares, key=shares.__getitem__)


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
    return f"Bound by {found}{others}, {percent(found.share)} of the critical path; " + (
        "nothing is communicated." if quiet else f"{percent(overlapped)} overlapped."
    )


def percent(share: float) -> str:
    """Return a share as text.

    >>> percent(0.714)
    '71 %'
    """
    return f"{100 * share:.0f} %"
