"""What a chain's joined schedule has to do at least, whatever overlaps: sums over statements, by resource.

A statement's actions are the same in the joined schedule as alone, and a resource does one thing after
another. So the busiest resource's work, summed over the statements, is a bound for any overlap of parts.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from umm.algorithms.chains.lower import lower
from umm.algorithms.chains.multiplies import completing
from umm.algorithms.universal.lowered import lowered
from umm.algorithms.universal.options import Options
from umm.arrays import Floats
from umm.chains import Chain, Multiply, Statement
from umm.machines import Machine
from umm.machines.routes import narrowest
from umm.problem import Problem
from umm.schedules.bound import ROUNDING
from umm.schedules.kinds import GEMM, KINDS, MAP
from umm.schedules.schedule import Schedule
from umm.tensors import Tensor


def statement_work(
    statement: Statement, tensors: Mapping[str, Tensor], machine: Machine, options: Mapping[str, Any]
) -> Floats:
    """Return the seconds that each resource needs for one statement.

    Args:
        statement: The statement.
        tensors: Its tensors, laid out.
        machine: Where.
        options: Of the universal algorithm.

    Returns:
        For each device its gemms and maps, for each rank its gemms as its transfers slow them down, for each
        link its bytes. Added over statements, the largest is a lower bound of their joined schedule.
    """
    return schedule_work(_alone(statement, tensors, machine, options), machine, options)


def schedule_work(schedule: Schedule, machine: Machine, options: Mapping[str, Any]) -> Floats:
    """Return the seconds that each resource needs for a schedule, as :func:`statement_work` does."""
    kind, rank, seconds = schedule.kind, schedule.rank, schedule.seconds
    computes = (kind == GEMM) | ((kind == MAP) & (schedule.lane >= 0))
    device = np.array([machine.device_of(x, schedule.ranks) for x in range(schedule.ranks)])
    engine = schedule.lanes.engine[schedule.lane] if len(schedule) else np.zeros(0)
    on_engine = computes & (engine >= 0)
    engines = np.bincount(device[rank[on_engine]], seconds[on_engine], machine.device_count)
    gemms = np.bincount(rank[kind == GEMM], seconds[kind == GEMM], schedule.ranks)
    lost, links = _transfers(schedule, _lossy_lanes(schedule, machine, options))
    # A rank that shares its engine may wait for others meanwhile; only its gemms are sure then.
    shared = np.bincount(device, minlength=machine.device_count)[device] > 1
    links = links[
        : len(machine.fabric.names)
    ]  # a joined schedule may leave out those of memory, which follow
    work: Floats = np.concatenate((engines, gemms + np.where(shared, 0.0, lost), links)).astype(np.float64)
    return work * ROUNDING


def _lossy_lanes(schedule: Schedule, machine: Machine, options: Mapping[str, Any]) -> int:
    """Return how many lanes of a rank at most move what slows its gemms down, in any joined schedule."""
    chosen = Options(**options)
    if chosen.policy != "direct" or schedule.means_of is not None:
        return 0
    adds, copies = max(2, chosen.max_accumulates), machine.copy_engines
    lossy = {name for name, loss in schedule.interference.items() if loss}
    lanes = adds if lossy & {"accumulate", "reduce", "broadcast"} else 0
    lanes += copies * len(lossy & {"get", "put", "broadcast"})
    return lanes + bool(lossy and machine.fabric.near > 1)  # collectives have one between nodes


def _transfers(schedule: Schedule, lanes: int) -> tuple[Floats, Floats]:
    """Return the seconds of gemm that transfers cost each rank at least, and the seconds of each link.

    A rank has at most as many of them in flight as lanes that move what costs it, and what it loses at any
    moment is the largest loss among them: at least the sum of their losses over the number of those lanes.
    With no such lanes nothing is taken for lost.
    """
    links: Floats = np.zeros(len(schedule.links.names))
    lost: Floats = np.zeros(schedule.ranks)
    moving = np.nonzero(schedule.src != schedule.dst)[0]
    if not len(moving):
        return lost, links
    src, dst, nbytes = schedule.src[moving], schedule.dst[moving], schedule.nbytes[moving]
    between = np.zeros((schedule.ranks, schedule.ranks))
    np.add.at(between, (src, dst), nbytes)
    inverse, latency = np.zeros_like(between), np.zeros_like(between)
    for pair in schedule.used_pairs():
        route = list(schedule.routes[pair])
        links[route] += between[pair] / schedule.links.bandwidth[route]
        inverse[pair] = 1.0 / schedule.links.bandwidth[narrowest(route, schedule.links.bandwidth)]
        latency[pair] = schedule.links.latency[route].sum()
    if lanes:
        loss = np.array([schedule.interference.get(name, 0.0) for name in KINDS])[schedule.kind[moving]]
        alone = latency[src, dst] + nbytes * inverse[src, dst]
        lost = np.bincount(schedule.rank[moving], loss * alone, schedule.ranks) / lanes
    return lost, links


def _alone(
    statement: Statement, tensors: Mapping[str, Tensor], machine: Machine, options: Mapping[str, Any]
) -> Schedule:
    """Return the schedule of one statement."""
    out = tensors[statement.out]
    if isinstance(statement, Multiply) and statement.batch == 1:
        a, b = tensors[statement.a], tensors[statement.b]
        left = a.layout.transposed if "a" in statement.trans else a.layout
        right = b.layout.transposed if "b" in statement.trans else b.layout
        problem = Problem(
            m=out.shape[0], n=out.shape[1], k=left.shape[1], a=left, b=right, c=out.layout,
            dtype=a.dtype, c_dtype=out.dtype, ranks=out.layout.ranks,
        )  # fmt: skip
        return lowered(problem, machine, **completing(options))
    held = {
        statement.out: Tensor(
            out.name, out.layout, out.dtype, "both" if out.name in statement.reads else "output"
        )
    }
    for name in statement.reads:
        held.setdefault(name, Tensor(name, tensors[name].layout, tensors[name].dtype, "input"))
    return lower(Chain("part", tuple(held.values()), (statement,), out.layout.ranks), machine, **options)
