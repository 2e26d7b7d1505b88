"""Lower bounds of makespan and memory of a whole space at once."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from umm import cost
from umm.arrays import Floats, numbered_within
from umm.errors import EndedEarlyError
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.multiply.options import COMPLETE, COMPLETING, PANELS, Options
from umm.plans.multiply.policies import find_policy
from umm.plans.multiply.replicas import COLLECTIVES
from umm.program.problem import MATRICES, Problem
from umm.schedules.bound import ROUNDING
from umm.space.bounds.combinations import Combinations
from umm.space.bounds.moves import least_moving, summed_seconds
from umm.space.bounds.operand_layouts import OperandLayouts
from umm.space.bounds.transfers import link_times
from umm.space.points import MultiplyPoints


def least_seconds(problem: Problem, machine: Machine) -> float:
    """Return a bound below any way to multiply: all devices at the best rate a gemm reaches, nothing else."""
    table = machine.gemm_table(problem.dtype)
    best = 1.0 if table is None else float(table.values.max())
    devices = len({machine.device_of(rank, problem.p) for rank in range(problem.p)})
    return problem.flop / (machine.total_peak(problem.dtype, devices) * best)


AT_ONCE = 1 << 22  # numbers in one array: about 32 MB


@dataclass(frozen=True, eq=False)
class Bounds:
    """Lower bounds of the points of a space; one entry for each allowed point."""

    seconds: Floats  # lower bound of the makespan
    memory: Floats  # lower bound of the bytes the fullest rank allocates
    moves: Floats  # what of the seconds is for moving operands that are given elsewhere


def closed_form(points: MultiplyPoints, machine: Machine, only: tuple[int, ...] | None = None) -> Bounds:
    """Return lower bounds for every point of a space.

    EndedEarlyError on Ctrl-C, with the bounds so far; infinite of points that have none yet.

    Args:
        points: The points; all policies are bounded, the direct one most tightly.
        only: Ranks looked at; all if None. Fewer are quicker, and their bounds lower.
    """
    seconds, memory = np.full(points.shape, np.inf), np.full(points.shape, np.inf)
    takes = np.zeros(points.shape)

    def bounds() -> Bounds:
        allowed = (x.reshape(-1)[points.allowed] for x in (seconds, memory, takes))
        return Bounds(*(x * factor for x, factor in zip(allowed, (ROUNDING, 1.0, ROUNDING), strict=True)))

    try:
        takes = _fill(seconds, memory, points, machine, only)
    except KeyboardInterrupt:
        if not np.isfinite(memory).any():
            raise
        raise EndedEarlyError(bounds()) from None
    return bounds()


def _fill(
    seconds: Floats, memory: Floats, points: MultiplyPoints, machine: Machine, only: tuple[int, ...] | None
) -> Floats:
    """Write the bounds of all points, part by part, and return the share of moving given operands."""
    bare = points.bare
    by_matrix = {x: OperandLayouts(x, points.choices[i], bare.itemsize(x)) for i, x in enumerate(MATRICES)}
    # How replicas are summed at the end matters to no op: options that differ only there share one bound.
    alike: dict[Options, list[int]] = {}
    for o, options in enumerate(points.options):
        if options.movement == PANELS:  # not the ops of tiles, but of what ranks hold
            seconds[o], memory[o] = least_seconds(bare, machine), 0.0
        else:
            alike.setdefault(replace(options, final=Options.final), []).append(o)
    for s, stationary in enumerate(points.stationary if alike else ()):
        first, second = (x for x in MATRICES if x != stationary)
        # The first operand's layouts go in blocks, or arrays over all
        # pairs of ranks would not fit into memory.
        step = max(1, AT_ONCE // (len(by_matrix[second]) * bare.p * (len(only) if only else bare.p)))
        every = by_matrix[first]
        cuts = {
            start: replace(every, layouts=every.layouts[start : start + step])
            for start in range(0, len(every), step)
        }
        for number, layout in enumerate(by_matrix[stationary].layouts):
            for start, x in cuts.items():
                combinations = Combinations(bare, machine, stationary, layout, x, by_matrix[second], only)
                where: dict[str, int | slice] = {
                    stationary: number,
                    first: slice(start, start + step),
                    second: slice(None),
                }
                for options, numbers in alike.items():
                    cell = (numbers, s, where["A"], where["B"], where["C"])
                    seconds[cell], memory[cell] = combinations.seconds(options), combinations.memory(options)
    for o, options in enumerate(points.options):
        if options.movement == PANELS:
            continue
        seconds[o] += np.array([replica_seconds(x, bare, machine, options) for x in by_matrix["C"].layouts])
    takes = np.zeros(points.shape)
    if points.given:
        takes, holds = least_moving(points, machine)
        seconds += takes
        memory += holds
    return takes


def replica_seconds(layout: Layout, problem: Problem, machine: Machine, options: Options) -> float:
    """Return a lower bound of the time that replicas of C take to come together after the last op."""
    if layout.replicas == 1 or not options.one_sided:  # collectives may sum while others multiply
        return 0.0
    alike = Options(policy=options.policy, final=options.final, max_accumulates=options.max_accumulates)
    return _replica_seconds(layout, problem, machine, alike)


@lru_cache(maxsize=4096)
def _replica_seconds(layout: Layout, problem: Problem, machine: Machine, options: Options) -> float:
    if options.final == COMPLETE:
        either = (replace(options, final=final) for final in COMPLETING)
        return min(replica_seconds(layout, problem, machine, one) for one in either)
    if options.final in COLLECTIVES:
        return summed_seconds(layout, problem, machine, options)
    # Replica 0 is the origin: the others add to its tiles, and with a broadcast these travel back.
    links, lanes = link_times(machine, problem.p), options.max_accumulates
    area = np.outer(np.diff(layout.row_edges), np.diff(layout.col_edges))
    i, j, replica = np.nonzero(np.broadcast_to((area > 0)[:, :, None], (*area.shape, layout.replicas)))
    i, j, replica = (index[replica > 0] for index in (i, j, replica))
    owner, origin = layout.owners[replica, i, j], layout.owners[0, i, j]
    payload = area[i, j] * problem.itemsize("C")
    total = 0.0
    for kind in ("reduce", "broadcast") if options.final == "broadcast" else ("reduce",):
        reduces = kind == "reduce"
        src, dst = (owner, origin) if reduces else (origin, owner)
        nbytes = (cost.accumulate_bytes if reduces else cost.transfer_bytes)(machine, payload)
        seconds = nbytes * links.inverse[src, dst] + links.latency[src, dst]
        between = np.zeros((problem.p, problem.p))
        np.add.at(between, (src, dst), nbytes)
        # A rank's transfers are dealt out to its lanes in turn; a policy
        # that picks lanes itself may do better.
        lane = src * lanes + numbered_within(src) % lanes
        busy = np.bincount(lane, seconds) if find_policy(options.policy).closed_form else seconds
        busiest = links.busy(links.by_rank(between)).max(axis=0, initial=0.0)
        total += max(float(busy.max()), float(busiest + links.latency[src, dst].min()))
    return total
