"""Where the time goes, by rank and along the critical path, and the sentence that says what binds."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from umm.arrays import Floats, Ints, neighbours_within
from umm.errors import MachineError
from umm.machines import machine
from umm.schedules.table.details import BARRIER, BROADCAST, GEMM, KINDS, MAP, REDUCE, TRANSFERS
from umm.traces.traffic import Spans, link_utilisation, time_by_classes

if TYPE_CHECKING:
    import pandas as pd

_GEMM_RUNS, _REDUCE_FLIES, _OTHER_FLIES = 1, 2, 4
_CODES = np.arange(8)
PARTS = ("compute", "reduce", "exposed_communication", "idle")


@dataclass(frozen=True, eq=False)
class Breakdown:
    """Seconds of each rank by what it was doing; the four parts add up to the makespan for every rank.

    Where several are true at once the first counts: compute, reduce, exposed communication.

    Attributes:
        compute: A gemm or map of the rank runs.
        reduce: A reduce or broadcast of the rank is in flight, and neither runs.
        exposed_communication: Another transfer of the rank to or from other ranks is in flight, and none of
            the above.
        idle: None of these; so is a copy within the rank itself, which hardly ever stands alone.
        in_flight: A transfer of the rank is in flight, whatever else it does.
        hidden: Of ``in_flight`` the part during which a gemm or map runs.
    """

    compute: Floats
    reduce: Floats
    exposed_communication: Floats
    idle: Floats
    in_flight: Floats
    hidden: Floats

    @property
    def mean(self) -> dict[str, float]:
        """The four parts in seconds, each the mean over all ranks."""
        return {part: float(getattr(self, part).mean()) for part in PARTS}

    @property
    def overlapped(self) -> float:
        """Share of transfer time hidden by computing, the mean over ranks that transfer; nan if none does."""
        moving = self.in_flight > 0
        return float((self.hidden[moving] / self.in_flight[moving]).mean()) if moving.any() else float("nan")

    def to_frame(self) -> "pd.DataFrame":
        """Return the four parts as columns, in seconds, one row per rank."""
        import pandas as pd

        return pd.DataFrame({part: getattr(self, part) for part in PARTS}).rename_axis("rank")


def breakdown(spans: Spans) -> Breakdown:
    """Return where the time of each rank goes.

    A transfer belongs to the rank that issues it: a get to the reader, an accumulate to the writer.
    """
    schedule = spans.schedule
    kind = schedule.kind
    of_class = np.full(len(schedule), -1, dtype=np.int64)
    of_class[np.isin(kind, TRANSFERS) & (schedule.src != schedule.dst)] = 2
    of_class[(kind == REDUCE) | (kind == BROADCAST)] = 1
    of_class[(kind == GEMM) | (kind == MAP)] = 0
    counted = of_class >= 0
    seconds = time_by_classes(
        spans.start[counted],
        spans.end[counted],
        schedule.rank[counted],
        of_class[counted],
        groups=schedule.ranks,
        classes=3,
        horizon=spans.makespan_s,
    )
    gemm = (_CODES & _GEMM_RUNS) > 0
    reducing = ~gemm & ((_CODES & _REDUCE_FLIES) > 0)
    flying = (_CODES & (_REDUCE_FLIES | _OTHER_FLIES)) > 0
    return Breakdown(
        compute=seconds[:, gemm].sum(axis=1),
        reduce=seconds[:, reducing].sum(axis=1),
        exposed_communication=seconds[:, ~gemm & ~reducing & flying].sum(axis=1),
        idle=seconds[:, 0],
        in_flight=seconds[:, flying].sum(axis=1),
        hidden=seconds[:, flying & gemm].sum(axis=1),
    )


def lane_predecessors(lane: Ints) -> Ints:
    """Return for every action the one before it on its lane; −1 for the first, and for barriers."""
    before = np.full(len(lane), -1, dtype=np.int64)
    earlier, later = neighbours_within(lane)
    before[later] = earlier
    return before


def critical_path(spans: Spans) -> Ints:
    """Return the critical path as action numbers, first to last, without barriers.

    It is followed back from the last finish: an action was held up by whichever finished last of what it
    waits for and of what its lane did before it.
    """
    schedule, end = spans.schedule, spans.end
    if not len(schedule):
        return np.zeros(0, dtype=np.int64)
    ends, offsets, after = end.tolist(), schedule.after_offsets.tolist(), schedule.after.tolist()
    on_lane = lane_predecessors(schedule.lane).tolist()
    path = [int(np.argmax(end))]
    while True:
        action = path[-1]
        # The lane first: of equally late ones it is what would have held the action up anyway.
        held_up, latest = on_lane[action], ends[on_lane[action]] if on_lane[action] >= 0 else -np.inf
        for before in after[offsets[action] : offsets[action + 1]]:
            if ends[before] > latest:
                held_up, latest = before, ends[before]
        if held_up < 0:
            break
        path.append(held_up)
    found = np.array(path[::-1], dtype=np.int64)
    without_barriers: Ints = found[schedule.kind[found] != BARRIER]
    return without_barriers


def path_times(spans: Spans, path: Ints) -> tuple[Floats, float]:
    """Return the seconds each action of a critical path adds to it, and the seconds nothing of it runs.

    The second is 0 in a simulation; in a measured trace it is the time between what an action waited for
    and its start. Both together add up to the last finish.
    """
    end = spans.end[path]
    ready = np.concatenate(([0.0], end[:-1]))
    began = np.maximum(spans.start[path], ready)
    return end - began, float((began - ready).sum())


COMPUTE, MEMORY = "compute", "memory bandwidth"


@dataclass(frozen=True)
class Bottleneck:
    """What a trace spends most of its critical path on.

    Attributes:
        kind: ``compute`` where arithmetic binds, ``memory bandwidth`` or ``launches`` where kernels wait for
            these, a kind of transfer, or ``waiting`` where nothing of the path runs.
        share: Its share of the critical path, 0 to 1.
        link: Of a transfer, the link it spends most of that time on; empty if it crosses none.
        links: On how many links it spends that time.
        intensity: Of kernels that wait for memory bandwidth, the flop for each byte they read and write.
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
    by_kind[GEMM] += by_kind[MAP]  # both compute
    by_kind[MAP] = 0.0
    kind = int(np.argmax(by_kind))
    if total <= 0 or waiting > by_kind[kind]:
        return Bottleneck("waiting", waiting / total if total > 0 else 1.0)
    share = float(by_kind[kind]) / total
    if kind == GEMM:
        what, intensity = _resource(spans, path[np.isin(schedule.kind[path], (GEMM, MAP))])
        return Bottleneck(what, share, intensity=intensity)
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


def _resource(spans: Spans, actions: Ints) -> tuple[str, float]:
    """Return what most of some gemms and maps wait for: arithmetic, the memory, or being launched.

    Where that is the memory, their flop for each byte too, else 0.
    """
    schedule, seconds = spans.schedule, spans.schedule.seconds[actions]
    devices = len(np.unique(schedule.lanes.engine[schedule.lanes.engine >= 0]))
    rate = schedule.peak / max(devices, 1)
    arithmetic = schedule.flop[actions] / rate if rate else np.zeros(len(actions))
    if arithmetic.sum() > seconds.sum() / 2:
        return COMPUTE, 0.0
    try:
        of = machine(schedule.machine)
    except MachineError:  # an algorithm's own, or a file that is not here
        return COMPUTE, 0.0
    details = schedule.details
    sizes = np.prod(details.shape[actions], axis=2) * (details.buffer[actions] >= 0)
    items = np.stack(
        [schedule.itemsizes[schedule.operand_tensors(x)[actions]] for x in range(details.operands)]
    )
    nbytes = (sizes * items.T).sum(axis=1)
    memory = np.minimum(nbytes / of.work_bandwidth, seconds)
    launch = np.where(seconds > 0, np.minimum(of.launch_s, seconds), 0.0)
    # What fused attention takes beyond its bytes is arithmetic, and so is what a gemm takes beyond either.
    rest = float((seconds - np.maximum(memory, arithmetic) - launch).sum())
    shares = {
        COMPUTE: float(arithmetic.sum()) + max(rest, 0.0),
        MEMORY: float(memory.sum()),
        "launches": float(launch.sum()),
    }
    what = max(shares, key=shares.__getitem__)
    return what, float(schedule.flop[actions].sum() / nbytes.sum()) if what == MEMORY else 0.0


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
    rate = f" ({found.intensity:.2g} flop/byte)" if found.intensity else ""
    return f"Bound by {found}{rate}{others}, {percent(found.share)} of the critical path; " + (
        "nothing is communicated." if quiet else f"{percent(overlapped)} overlapped."
    )


def below_peak(found: Breakdown, peak: float) -> dict[str, float]:
    """Return what keeps ranks below their peak, as shares of the makespan, the largest first.

    Together with the fraction of peak they add up to 1.

    Args:
        found: Where the time goes.
        peak: The fraction of peak.
    """
    parts = found.mean
    makespan = sum(parts.values())
    shares = {part.replace("_", " "): seconds / makespan for part, seconds in parts.items()}
    shares["compute slower than peak"] = shares.pop("compute") - peak
    return dict(sorted(shares.items(), key=lambda x: -x[1]))


def percent(share: float) -> str:
    """Return a share as text.

    >>> percent(0.714)
    '71 %'
    """
    return f"{100 * share:.0f} %"
