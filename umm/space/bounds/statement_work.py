"""What a statement has to do at least in a chain's joined schedule, whatever overlaps: seconds by resource.

A statement's actions are the same in the joined schedule as alone, and a resource does one thing after
another. So the busiest resource's work, summed over the statements, is a bound for any overlap of parts.
"""

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from umm.arrays import Bools, Floats, Ints, group_of_row, in_c
from umm.machines import Machine
from umm.plans.collectives.hierarchical import CARD
from umm.plans.lower import lower
from umm.plans.movement.choice import FLAT, Chosen, chosen, node_count, one_sided
from umm.plans.movement.copies import COPIES
from umm.plans.movement.multiply import Gathered
from umm.plans.movement.prices import IN, MOST, OUT, Exchange, Flow, Price, gemms_in_chunks
from umm.plans.multiply.options import Options
from umm.plans.multiply.policies import lowered
from umm.plans.multiply.replicas import how_summed
from umm.plans.statements.at_home import product_at_home, products_at_home, without_adds
from umm.plans.statements.experts import OWN_LANES, UNPACKING
from umm.plans.statements.multiplies import (
    as_problem,
    before_sums,
    completing,
    in_kernels_of,
    one_sided_part,
    sums_with_next,
)
from umm.program import (
    Attention,
    AttentionGrad,
    Chain,
    Combine,
    Dispatch,
    Grouped,
    Map,
    Multiply,
    Statement,
)
from umm.program.problem import MATRICES
from umm.program.statements.multiply import joinable
from umm.program.tensors import Tensor
from umm.schedules.bound import ROUNDING, seconds_alone
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import ACCUMULATE, BARRIER, GEMM, GET, KINDS, MAP
from umm.schedules.writer.builder import COLLECTIVE
from umm.space.bounds.batch_work import BatchWork, batch_work, least_work
from umm.space.bounds.transfers import least_slowdown, link_times

GROUPS = ("copy_in", "copy_out", "accumulate")
FLOWS = ("A", "B", "late", "adds", "sums")
"""What moves in a one-sided multiply."""
MOST_ARRIVING = 20_000
"""Actions of attention up to which what each rank waits for is followed."""
MOST_WRITTEN = 48
"""Actions of a rank up to which a one-sided multiply between nodes is written, if others are by collectives.

Those of more move slivers, and take longer than others of the same tensors.
"""
MOST_FOLLOWED = 4_000
"""Actions of a multiply up to which a rank's span is followed along what waits for what."""
spans_in_c = in_c("umm.space.bounds._spans", "spans")


@dataclass(frozen=True, eq=False)
class StatementWork:
    """What a statement takes of resources that it shares with others.

    Attributes:
        seconds: For each device its gemms and maps, for each rank its gemms as its transfers slow them down,
            its gemms and maps as what it sends and what it gets does, for each link its bytes, for each rank
            and lane its transfers. Added over statements, the largest is a lower bound of their joined
            schedule.
        span: For each rank the seconds from its first gemm or map to the end of its last; a rank takes
            statements in their order. 0 of what moves rows, whose passes are beside others.
        alone: For each rank the seconds of its gemms and maps, if what they run on is its own; else of gemms.
        sends: The same as what it sends slows them down.
        ready: Seconds after the last gemm before any of a replicated result is summed; else 0.
        whole: Seconds after the last gemm before any tile of it is whole; else 0.
        summed: Seconds after the last gemm before all of it is; else 0.
        stationary: The matrix that stays in place.
        leaves: Of a one-sided multiply, a map or attention the seconds that the link out of each rank carries
            of what it makes.
        actions: How many actions it is, about; not of a multiply by collectives, see ``transfers``.
        paid: Of these the matrices that it has to gather or sum itself, whatever the layouts of others.
        inward: Of a multiply by collectives, for A, B and C that move, the seconds that each rank is busy
            with what arrives: its links from its node, those from others, its lanes, and that for what goes
            between nodes; shape (4, ranks).
        hops: For these the seconds of a round inside nodes: after A and B arrive from other nodes, before C
            leaves for them; 0 where there may be none.
        adds: Of its sums the seconds that each rank's links are busy with what it adds to others, alike.
        copies: Of its sums what of ``inward`` is copies, which ranks get.
        repeats: Of its sums the least seconds that links out of any rank, in its node and to others, carry of
            copies of what it owns, which is there after its own product; 0 where that is not sure.
        single: Whether each rank does one gemm or map, whose result is complete nowhere before; of what moves
            rows one pass over what arrives.
        part: Seconds from the end of the first gemm until some of the sum is complete anywhere.
        arriving: The same until all that each rank owns of it is; None if nothing is summed.
        settled: The same until all has arrived everywhere.
        how: How it is done, if by collectives.
        in_whole: For A and B whether each rank multiplies all that it owns of it, in place.
        aligned: Of a map, for each tensor it reads whether its tiles are those that are written; of a grouped
            multiply whether ranks multiply the rows that they own, and whether each makes the one tile of the
            product that it owns.
        moved: Of what is no plain multiply, for each tensor that it reads and then those it writes the bytes
            that reach the rank that gets most of it.
        begins: Seconds of work before any part of what it makes can be complete.
        comes: Of a multiply for A and B the seconds from when any of it is complete until each rank has
            multiplied all that it gets; 0 where it gets nothing, and of what it need not gather itself.
        gets: Of a one-sided multiply the seconds in which each rank gets A and B and multiplies the last of
            them; 0 where it gets nothing.
        both: Whether each rank gets A and B.
        queued: Of the same the seconds from each rank's first gemm before which it gets nothing for a later
            multiply that gets one operand, and for one that gets both, shape (2, ranks): these take the same
            lanes and pool slots.
        lost: Of a multiply by collectives the share of its rate that a rank's work loses at least while it
            gets A and B.
        evenly: Of a multiply, for A and B that it gets and C that it sums, the least mean over ranks of the
            seconds from the mean moment at which ranks have made their parts, or their products, until each
            has all that it gets; only of what all ranks exchange alike.
        behind: Of a sum of products in chunks the seconds from the end of the first rank's last gemm until
            each rank has all that it owns of it; None of others.
        handed: Of the same the seconds that the link out of each rank carries of what others get.
        arrives: Of what moves rows to experts or back, and of attention, the seconds that the busiest link
            needs for all that each rank waits for; None of others, and of what moves in parts.
        unpacks: What each rank then takes to put it in place, or to attend to the last of it.
        passes: Of a multiply by collectives, for A and B that it gathers or finds gathered, the least seconds
            that what any one rank has of it takes: on the links out of that rank, in its node and to others,
            and until all have it.
        transfers: Of a multiply by collectives, for A, B and C the most transfers of a rank, about.
        flows: Of a one-sided multiply, the seconds that the link into each rank, and that out of it, carries
            of what moves: of A and B what no gemm of its rank has to make room for, and what comes after one;
            what ranks add to each other; and the sums of replicas; by the names of :data:`FLOWS`, each of
            shape (2, ranks).
    """

    seconds: Floats
    span: Floats
    alone: Floats
    sends: Floats
    ready: float = 0.0
    whole: float = 0.0
    summed: float = 0.0
    stationary: str = "auto"
    leaves: Floats | float = 0.0
    actions: int = 0
    paid: frozenset[str] = frozenset()
    inward: Mapping[str, Floats] = field(default_factory=dict)
    hops: Mapping[str, float] = field(default_factory=dict)
    adds: Floats | None = None
    copies: Floats | None = None
    repeats: tuple[float, float] = (0.0, 0.0)
    single: bool = False
    part: float = 0.0
    arriving: Floats | None = None
    settled: float = 0.0
    how: Gathered | None = None
    in_whole: Mapping[str, Bools] = field(default_factory=dict)
    aligned: tuple[bool, ...] = ()
    moved: tuple[int, ...] = ()
    begins: float = 0.0
    comes: Mapping[str, Floats] = field(default_factory=dict)
    gets: Floats | float = 0.0
    both: Any = False
    queued: Floats | float = 0.0
    lost: float = 0.0
    evenly: Mapping[str, float] = field(default_factory=dict)
    behind: Floats | None = None
    handed: Mapping[str, Floats] = field(default_factory=dict)
    arrives: Floats | None = None
    unpacks: Floats | float = 0.0
    passes: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    transfers: Mapping[str, int] = field(default_factory=dict)
    flows: Mapping[str, Floats] = field(default_factory=dict)

    def gathers(self, operand: str, start_s: float) -> Floats:
        """Return the least seconds in which each rank has gathered A or B.

        Args:
            operand: Which.
            start_s: Before a collective's first transfer.
        """
        rows = self.inward[operand]
        seconds = rows.max(axis=0)
        # What has come last from another node is there for its rank's mates a hop later.
        passed = rows[1][seconds > 0].min(initial=np.inf) + self.hops.get(operand, 0.0)
        return np.asarray(np.where(seconds > 0, np.maximum(seconds, passed) + start_s, 0.0))


def statement_work(
    statement: Statement,
    tensors: Mapping[str, Tensor],
    machine: Machine,
    options: Mapping[str, Any],
    stationary: str = "auto",
    paid: Collection[str] = MATRICES,
    fresh: Collection[str] = (),
    adds: bool = False,
) -> StatementWork:
    """Return what one statement takes.

    Args:
        statement: The statement.
        tensors: Its tensors, laid out.
        machine: Where.
        options: Of the universal algorithm.
        stationary: Of a multiply that is not a batch.
        paid: The matrices whose collectives it has to do itself, of a multiply done by such; without C the
            next one may sum the replicas of its product too.
        fresh: Of A and B those that nothing can have gathered before.
        adds: Whether it adds to the product of the statement before, which may move it with its own.
    """
    chosen_options = Options(**completing(options))
    if not isinstance(statement, Multiply):
        written = _written(statement, tensors, machine, options)
        if isinstance(statement, Map) and statement.beside:
            written = _without_launches(written, machine)
        work = _work(written, machine, chosen_options, appended=False)
        moving, names = written.src != written.dst, [x.name for x in written.tensors]
        most = _moved(written, moving, names)
        work = replace(work, moved=tuple(most.get(name, 0) for name in names))
        if isinstance(statement, Dispatch | Combine):
            return _of_rows(work, statement, written, machine)
        if isinstance(statement, Map | Attention | AttentionGrad):
            leaves = _leaves(written, statement.outs, machine)
            work = replace(work, leaves=leaves, begins=_begins(written, statement.outs))
        if isinstance(statement, Attention) and moving.any() and len(written) <= MOST_ARRIVING:
            return _with_arrivals(work, written, machine, written.kind == MAP)
        if isinstance(statement, Grouped):
            return replace(work, aligned=_in_place(statement, tensors, most))
        if not isinstance(statement, Map):
            return work
        once = np.bincount(written.rank[written.kind == MAP], minlength=written.ranks).max(initial=0) <= 1
        aligned = tuple(_aligned(statement, tensors, x) for x in statement.reads)
        return replace(work, aligned=aligned, single=bool(once))
    if statement.is_batch:
        return _batch(statement, tensors, machine, chosen_options)
    problem = as_problem(statement, tensors)
    by_collectives = chosen(problem, machine, stationary, str(options.get("movement", "auto")))
    if by_collectives.price is not None:
        return _collective(by_collectives, by_collectives.price, machine, chosen_options, paid, fresh)
    if _may_be_slivers(statement, machine, problem.p, options):
        least = least_work(problem, machine, stationary)
        if least.actions > MOST_WRITTEN * problem.p:
            work = _without_schedule(least, machine, problem.p, chosen_options)
            return replace(work, stationary=stationary)
    part = one_sided_part(problem, machine, stationary, options, together=not statement.beside)
    if (adds or "C" not in paid) and not statement.beside:
        at_home = product_at_home(problem, machine, stationary, completing(options))
        if at_home is not None and completing(options)["movement"] == FLAT:
            return _added_first(part, at_home, machine, chosen_options, adds, stationary)
    by_next = "C" not in paid and completing(options)["movement"] == FLAT
    part = before_sums(part) if by_next else part
    if statement.beside:  # whatever the layout of what the other multiply writes
        _, saved = in_kernels_of(part, problem, machine, statement.besides)
        part = replace(part, seconds=np.maximum(part.seconds - np.maximum(saved, 0.0), 0.0))
    made = (part.src != part.dst) & (part.moved_tensors == MATRICES.index("C"))
    leaves = np.bincount(part.src[made], part.nbytes[made], part.ranks) / _ports(machine, part.ranks)[0]
    work = replace(_work(part, machine, chosen_options, appended=True), stationary=stationary)
    comes, handed, evenly, gets = _got(part, machine)
    work = replace(work, gets=gets, both=(comes["A"] > 0) & (comes["B"] > 0))
    begins = float(part.seconds[part.kind == GEMM].min(initial=np.inf))
    begins = begins * ROUNDING if np.isfinite(begins) else 0.0
    work = replace(work, leaves=leaves * ROUNDING, comes=comes, handed=handed, evenly=evenly, begins=begins)
    if completing(options)["movement"] == FLAT:
        work = replace(work, flows=_flows(part, machine))
    found = None if by_next else how_summed(problem, machine, chosen_options)
    if found is None:
        return work
    return replace(work, ready=found.ready, whole=found.whole, summed=found.seconds[found.way])


def _added_first(
    part: Schedule,
    at_home: Schedule,
    machine: Machine,
    options: Options,
    adds: bool,
    stationary: str,
) -> StatementWork:
    """Return what a one-sided multiply takes whose products may be added to others before these move.

    What moves then is taken for that of the first of them, which may leave once that has multiplied any of
    it, and holds up no gemm but by its share of links.

    Args:
        part: How it is done by itself.
        at_home: How its rank multiplies all that it owns, see ``product_at_home``.
        machine: Where.
        options: Of the universal algorithm.
        adds: Whether it adds to the product of the statement before.
        stationary: Of the multiply.
    """
    gemms = _work(without_adds(at_home), machine, options, appended=True)
    work = gemms if adds else _work(at_home, machine, options, appended=True)
    moving = (at_home.src != at_home.dst) & (not adds)
    leaves = np.bincount(at_home.src[moving], at_home.nbytes[moving], at_home.ranks)
    begins = float(at_home.seconds[at_home.kind == GEMM].min()) * ROUNDING
    work = replace(
        work, stationary=stationary, span=gemms.span, begins=begins, queued=0.0,
        leaves=leaves / _ports(machine, at_home.ranks)[0] * ROUNDING,
        flows={} if adds else _flows(at_home, machine),
    )  # fmt: skip
    if part.stationary == at_home.stationary:
        return work
    usual = _work(part, machine, options, appended=True)  # what it is where the others are not alike
    columns = ("seconds", "span", "alone", "sends")
    least = {x: np.minimum(getattr(work, x), getattr(usual, x)) for x in columns}
    return replace(work, **least, begins=0.0, leaves=0.0, flows={})


def _leaves(schedule: Schedule, outs: Collection[str], machine: Machine) -> Floats:
    """Return the seconds that the link out of each rank carries of what it has just computed of some tensors.

    Such a transfer waits for a map of its rank. What only passes through a rank may do so earlier.
    """
    names = [number for number, x in enumerate(schedule.tensors) if x.name in outs]
    computes = (schedule.kind == MAP) & (schedule.lane >= 0)
    waiting, waited = group_of_row(schedule.after_offsets), schedule.after
    own = computes[waited] & (schedule.rank[waited] == schedule.rank[waiting])
    made = np.bincount(waiting[own], minlength=len(schedule)) > 0
    made &= (schedule.src != schedule.dst) & (schedule.src == schedule.rank)
    made &= np.isin(schedule.moved_tensors, names)
    nbytes = np.bincount(schedule.src[made], schedule.nbytes[made], schedule.ranks)
    return np.asarray(nbytes / _ports(machine, schedule.ranks)[0] * ROUNDING)


def _begins(schedule: Schedule, outs: Collection[str]) -> float:
    """Return the least seconds that a rank works before it has written any of some tensors."""
    names = [number for number, x in enumerate(schedule.tensors) if x.name in outs]
    works = np.flatnonzero((schedule.kind == MAP) & (schedule.lane >= 0))
    writes = np.isin(schedule.operand_tensors(0)[works], names)
    least = np.inf
    for rank in np.unique(schedule.rank[works]).tolist():
        own = schedule.rank[works] == rank
        if writes[own].any():
            until = int(np.argmax(writes[own])) + 1
            least = min(least, float(schedule.seconds[works][own][:until].sum()))
    return least * ROUNDING if np.isfinite(least) else 0.0


def _got(
    part: Schedule, machine: Machine
) -> tuple[dict[str, Floats], dict[str, Floats], dict[str, float], Floats]:
    """Return ``comes``, ``handed`` and ``evenly`` of a multiply's schedule, by A and B, and ``gets``.

    All that a rank gets reaches it by its link, and what comes last has to be multiplied then.
    """
    gemms = part.kind == GEMM
    shortest = np.full(part.ranks, np.inf)
    np.minimum.at(shortest, part.rank[gemms], part.seconds[gemms])
    out, into = _ports(machine, part.ranks)
    comes, handed, evenly = dict[str, Floats](), dict[str, Floats](), dict[str, float]()
    gets = np.zeros(part.ranks)
    for number, x in enumerate("AB"):
        got = (part.kind == GET) & (part.src != part.dst) & (part.moved_tensors == number)
        nbytes = np.bincount(part.dst[got], part.nbytes[got], part.ranks)
        gets += nbytes / into
        comes[x] = np.where(nbytes > 0, nbytes / into + shortest, 0.0) * ROUNDING
        handed[x] = np.bincount(part.src[got], part.nbytes[got], part.ranks) / out * ROUNDING
        if part.ranks <= MOST and nbytes.all():
            pair = part.src[got] * part.ranks + part.dst[got]
            between = np.bincount(pair, part.nbytes[got], part.ranks**2).astype(np.float64)
            evenly[x] = mean_of(between.reshape(part.ranks, -1), nbytes / into) * ROUNDING
    return comes, handed, evenly, np.where(gets > 0, gets + shortest, 0.0) * ROUNDING


def _flows(part: Schedule, machine: Machine) -> dict[str, Floats]:
    """Return ``flows`` of a multiply's schedule; those that take no time are left out."""
    if not np.isfinite(_ports(machine, part.ranks)).any():
        return {}
    moving, tensor, stop = _between_devices(part, machine), part.moved_tensors, _first_barrier(part)
    waiting, waited = group_of_row(part.after_offsets), part.after
    behind = (part.kind[waited] == GEMM) & (part.rank[waited] == part.rank[waiting])
    late = (np.bincount(waiting[behind], minlength=len(part)) > 0) & (part.kind == GET)
    before = np.arange(len(part)) < stop
    kinds = {x: (part.kind == GET) & before & (tensor == i) & ~late for i, x in enumerate("AB")}
    kinds |= {"late": late & before, "adds": (part.kind == ACCUMULATE) & before, "sums": ~before}
    found, (out, into) = dict[str, Floats](), _ports(machine, part.ranks)
    for name in FLOWS:
        rows = kinds[name] & moving
        if rows.any():
            ends = [np.bincount(end[rows], part.nbytes[rows], part.ranks) for end in (part.dst, part.src)]
            found[name] = np.array((ends[0] / into, ends[1] / out)) * ROUNDING
    return {name: of for name, of in found.items() if of.any()}


def _between_devices(schedule: Schedule, machine: Machine) -> Bools:
    """Return which actions move something from one device to another."""
    device = _devices(machine, schedule.ranks)
    moving: Bools = (schedule.src != schedule.dst) & (device[schedule.src] != device[schedule.dst])
    return moving


def _in_place(
    statement: Grouped, tensors: Mapping[str, Tensor], moved: Mapping[str, int]
) -> tuple[bool, bool]:
    """Return whether ranks multiply the rows that they own, and whether each owns one tile, which it makes.

    Args:
        statement: A grouped multiply.
        tensors: Its tensors, laid out.
        moved: Bytes of its tensors that reach a rank, of those that move.
    """
    owners = [rank for rank, _, _ in tensors[statement.out].layout.filled()]
    return statement.a not in moved, statement.out not in moved and len(owners) == len(set(owners))


def _of_rows(
    work: StatementWork, statement: Dispatch | Combine, written: Schedule, machine: Machine
) -> StatementWork:
    """Return the work of a statement that moves rows: its passes have lanes beside those of computation."""
    nothing = np.zeros(written.ranks)
    work = replace(work, span=nothing, alone=nothing, sends=nothing)
    if statement.parts > 1:
        return work
    unpacking = np.array([name == UNPACKING for name in written.lanes.names], dtype=bool)[written.lane]
    passes = np.bincount(written.rank[unpacking], minlength=written.ranks)
    work = replace(work, single=bool(passes.max() <= 1))
    return _with_arrivals(work, written, machine, unpacking, _behind_rows(statement, written))


def _behind_rows(statement: Dispatch | Combine, written: Schedule) -> Bools:
    """Return which actions wait for rows that are moved, rather than for their gates alone."""
    if len(statement.reads) == 1:
        return np.ones(len(written), dtype=bool)
    rows = next(i for i, x in enumerate(written.tensors) if x.name == statement.reads[0])
    behind: Bools = (written.moved_tensors == rows) | (written.operand_tensors(1) == rows)
    waiting, waited = group_of_row(written.after_offsets), written.after
    for i, x in zip(waiting.tolist(), waited.tolist(), strict=True):  # ascending, so x is settled
        behind[i] |= behind[x]
    return behind


def _with_arrivals(
    work: StatementWork, schedule: Schedule, machine: Machine, reads: Bools, counted: Bools | None = None
) -> StatementWork:
    """Return work with what the links need for all that each rank waits for, and the last pass after it.

    A rank waits for what its passes over it read, and for what that has waited for, such as what a relay got.
    A link carries nothing of it before the first message can start, and after the last the least that must
    follow any of them is left (the one-machine bound of scheduling theory). Nor is any path shorter along
    what waits for what and the lanes that are these messages' own.

    Args:
        work: Without them.
        schedule: Of the statement.
        machine: Where.
        reads: Which actions are passes.
        counted: Which actions count; all if None.
    """
    counted = np.ones(len(schedule), dtype=bool) if counted is None else counted
    p, links = schedule.ranks, link_times(machine, schedule.ranks)
    moving = schedule.src != schedule.dst
    latency = np.where(moving, links.latency[schedule.src, schedule.dst], 0.0)
    alone = seconds_alone(schedule, latency, links.inverse[schedule.src, schedule.dst])
    offsets, after = schedule.after_offsets.tolist(), schedule.after.tolist()
    waits = [after[a:b] for a, b in pairwise(offsets)]
    takes, start, free = np.where(counted, alone, 0.0).tolist(), [0.0] * len(schedule), dict[int, float]()
    named = [name.partition(".")[0] in OWN_LANES for name in schedule.lanes.names]
    for i, (before, lane) in enumerate(zip(waits, schedule.lane.tolist(), strict=True)):
        start[i] = max((start[x] + takes[x] for x in before), default=0.0)
        if lane >= 0 and named[lane]:
            start[i] = max(start[i], free.get(lane, 0.0))
            free[lane] = start[i] + takes[i]
    flows = np.array(start) + schedule.seconds + latency
    passes = np.flatnonzero(reads & (schedule.lane >= 0) & (schedule.seconds > 0))
    arrives, unpacks = np.zeros((2, p))
    for rank in np.unique(schedule.rank[passes]).tolist():
        its = passes[schedule.rank[passes] == rank]
        follows = _follows(its.tolist(), waits, takes)
        rows = np.array([x for x in follows if moving[x] and counted[x]], dtype=np.int64)
        unpacks[rank] = schedule.seconds[its[-1]]
        if not len(rows):
            continue
        pair = (schedule.src * p + schedule.dst)[rows]
        between = np.bincount(pair, schedule.nbytes[rows], p * p)
        first, last = np.full((2, p * p), np.inf)
        np.minimum.at(first, pair, flows[rows])
        np.minimum.at(last, pair, [follows[x] for x in rows.tolist()])
        ends = links.least(first) + links.least(last)
        carried = links.carried(between.astype(np.float64))
        path = max(start[x] + takes[x] + follows[x] for x in rows.tolist())
        arrives[rank] = max(path, float((carried + np.where(carried > 0, ends, 0.0)).max(initial=0.0)))
    return replace(work, arrives=arrives * ROUNDING, unpacks=unpacks * ROUNDING)


def _follows(
    passes: Sequence[int], waits: Sequence[Sequence[int]], takes: Sequence[float]
) -> dict[int, float]:
    """Return what some passes wait for, and the least seconds from the end of each to a pass's start."""
    found = dict.fromkeys(passes, 0.0)
    heap = [-x for x in passes]
    heapq.heapify(heap)
    while heap:  # what waits comes after what it waits for, so the largest number first
        i = -heapq.heappop(heap)
        behind = 0.0 if i in passes else found[i] + takes[i]
        for x in waits[i]:
            if x not in found:
                heapq.heappush(heap, -x)
            found[x] = max(found.get(x, 0.0), behind)
    return found


def _aligned(statement: Map, tensors: Mapping[str, Tensor], name: str) -> bool:
    """Return whether a map reads whole tiles of a tensor at the ranks that own them."""
    read, out = tensors[name].layout, tensors[statement.out].layout
    return (out.shape, out.cuts) == (read.shape, read.cuts) and out == read


def moved_bytes(
    statements: Sequence[Statement],
    number: int,
    tensors: Mapping[str, Tensor],
    machine: Machine,
    options: Mapping[str, Any],
    stationary: str = "auto",
) -> dict[str, int]:
    """Return the bytes of each tensor of a statement that reach the rank that gets most of it.

    Products that ranks add up before they move are counted with the first of them.

    Args:
        statements: Of the chain.
        number: Of the statement.
        tensors: Of the chain, laid out.
        machine: Where.
        options: Of the universal algorithm.
        stationary: Of a multiply that is not a batch.
    """
    statement = statements[number]
    if isinstance(statement, Multiply) and not statement.is_batch:
        problem = as_problem(statement, tensors)
        names = [statement.a, statement.b, statement.out]
        price = chosen(problem, machine, stationary, str(options.get("movement", "auto"))).price
        if price is not None:
            called = dict(zip(MATRICES, names, strict=True))
            return {called[x]: nbytes for x, nbytes in price.payload.items() if nbytes}
        first = last = number
        while first and joinable(statements[first - 1], statements[first]):
            first -= 1
        while last + 1 < len(statements) and joinable(statements[last], statements[last + 1]):
            last += 1
        terms = [x for x in statements[first : last + 1] if isinstance(x, Multiply) and not x.is_batch]
        at_home = products_at_home(terms, tensors, machine, stationary, options)
        if at_home:
            part = without_adds(at_home[0]) if number > first else at_home[0]
        else:
            part = lowered(problem, machine, stationary, **completing(options))
        if number < last and sums_with_next(statement, statements[number + 1], tensors, options):
            part = before_sums(part)
    else:
        part = _written(statement, tensors, machine, options)
        names = [tensor.name for tensor in part.tensors]
    return _moved(part, part.src != part.dst, names)


def schedule_work(schedule: Schedule, machine: Machine, options: Mapping[str, Any]) -> Floats:
    """Return the seconds of each resource that a whole schedule takes, as :class:`StatementWork` has them."""
    return _work(schedule, machine, Options(**options), appended=True).seconds


def _work(schedule: Schedule, machine: Machine, options: Options, appended: bool) -> StatementWork:
    """Return what the schedule of a statement takes.

    Args:
        schedule: Of one statement.
        machine: Where.
        options: Of the universal algorithm.
        appended: Whether its transfers keep their lanes when it is joined with others.
    """
    p, kind, rank, seconds = schedule.ranks, schedule.kind, schedule.rank, schedule.seconds
    device = _devices(machine, p)
    computes = (kind == GEMM) | ((kind == MAP) & (schedule.lane >= 0))
    engine = schedule.lanes.engine[schedule.lane] if len(schedule) else np.zeros(0)
    on_engine = computes & (engine >= 0)
    engines = np.bincount(device[rank[on_engine]], seconds[on_engine], machine.device_count)
    compute = np.bincount(rank[on_engine], seconds[on_engine], p)
    gemms = np.bincount(rank[kind == GEMM], seconds[kind == GEMM], p)
    moving = schedule.src != schedule.dst
    alone, carried = seconds, np.zeros(_width(machine, p))
    if moving.any():
        links = link_times(machine, p)
        alone = seconds_alone(
            schedule,
            links.latency[schedule.src, schedule.dst],
            links.inverse[schedule.src, schedule.dst],
        )
        between = np.bincount((schedule.src * p + schedule.dst)[moving], schedule.nbytes[moving], p * p)
        carried = _carried(between.astype(np.float64), machine, p)
    lost = _lost(schedule, moving, alone, _lossy_lanes(schedule, machine, options))
    # A rank that shares its engine may wait for others meanwhile; only its gemms are sure then.
    shared = np.bincount(device, minlength=machine.device_count)[device] > 1
    lanes = _lanes(schedule, machine, options, alone, appended)
    slowed = compute + np.where(shared, 0.0, _lost_at_ports(schedule, moving, machine))
    alone_slowed = gemms + np.where(shared, 0.0, lost)
    work = np.concatenate((engines, alone_slowed, *np.where(shared, gemms, slowed), carried, *lanes))
    work = work.astype(np.float64)
    follows = appended and len(schedule) <= MOST_FOLLOWED
    span, queued = compute.astype(np.float64), np.zeros((2, p))
    if follows:
        span, queued = _spans(schedule, alone, machine, options)
        span = np.maximum(compute, span)
    own, sends = np.where(shared, gemms, (compute, slowed[0])).astype(np.float64) * ROUNDING
    span = span.astype(np.float64) * ROUNDING
    return StatementWork(work * ROUNDING, span, own, sends, actions=len(schedule), queued=queued * ROUNDING)


def _batch(
    statement: Multiply, tensors: Mapping[str, Tensor], machine: Machine, options: Options
) -> StatementWork:
    """Return what a batch takes; of its lanes nothing is said."""
    found = batch_work(statement, tensors, machine)
    return _without_schedule(found, machine, tensors[statement.out].layout.ranks, options)


def _may_be_slivers(statement: Multiply, machine: Machine, ranks: int, options: Mapping[str, Any]) -> bool:
    """Whether a one-sided multiply is one of several nodes, whose other layouts it does by collectives."""
    by_others = not one_sided(machine, ranks, str(options.get("movement", "auto")))
    return by_others and not statement.beside and node_count(machine, ranks) > 1


def _without_schedule(found: BatchWork, machine: Machine, p: int, options: Options) -> StatementWork:
    """Return the work of what no schedule was written of; of its lanes nothing is said."""
    links = link_times(machine, p)
    engines = np.bincount(links.device, found.gemms, machine.device_count)
    moved = found.nbytes * least_slowdown(machine.message_sizes, int(found.nbytes.max()))
    lanes = np.zeros(p * (sum(_lane_counts(machine, options)) + 1 + len(GROUPS)))
    work = np.concatenate((engines, np.tile(found.gemms, 3), _carried(moved.reshape(-1), machine, p), lanes))
    gemms = found.gemms * ROUNDING
    return StatementWork(
        work.astype(np.float64) * ROUNDING, found.span * ROUNDING, gemms, gemms, actions=found.actions
    )


def _collective(
    by: Chosen,
    price: Price,
    machine: Machine,
    options: Options,
    paid: Collection[str],
    fresh: Collection[str],
) -> StatementWork:
    """Return what a multiply by collectives takes; of its lanes and of copies within a rank nothing."""
    p, how, start_s = len(price.gemms), by.how, machine.collective_start_s
    assert how is not None
    # In chunks if these hide what it sums, or what nothing before can have gathered; else perhaps whole.
    cut = how.chunks > 1 and ("C" in paid if how.sums.groups else any(x in fresh for x in how.collects))
    takes = gemms_in_chunks(how, machine) if cut and not how.blocks.split else None
    takes = price.gemms if takes is None else takes
    engines = np.bincount(_devices(machine, p), takes, machine.device_count)
    flows = (*price.gathered.items(), ("C", price.adds), ("C", price.copied))
    moved = [of for x, of in flows if x in paid]
    lanes = np.zeros(p * (sum(_lane_counts(machine, options)) + 1 + len(GROUPS)))
    work = np.concatenate((engines, np.tile(takes, 3), _links_of(moved, machine, p), lanes))
    seconds, gemms = np.asarray(work * ROUNDING, dtype=np.float64), takes * ROUNDING
    single = how.chunks == 1
    getters, adders = machine.copy_engines, max(2, options.max_accumulates)
    inward = {x: of.busy(machine, getters) * ROUNDING for x, of in price.gathered.items()}
    hops = {x: of.hop / how.chunks * ROUNDING for x, of in price.gathered.items()}
    part, arriving, settled, behind, adds, copies = 0.0, None, 0.0, None, None, None
    repeats = (0.0, 0.0)
    if how.sums.groups:
        copied = price.copied.busy(machine, getters) * ROUNDING
        inward["C"] = price.adds.busy(machine) * ROUNDING + copied
        hops["C"] = price.adds.hop / how.chunks * ROUNDING
    if how.sums.groups and "C" in paid:
        copies, adds = copied, price.adds.busy(machine, adders, OUT) * ROUNDING
        if how.blocks.works.all() and (price.own.nbytes[IN].sum(axis=0) > 0).all():
            near, far = price.copied.busy(machine, way=OUT)[:2].min(axis=1) * ROUNDING
            repeats = (float(near), float(far))
        if single:
            part, arriving, settled = _arriving(price, machine, adders)
        elif cut:
            behind = _behind(price, how, machine)
    found = StatementWork(
        seconds, gemms, gemms, gemms, stationary=by.stationary, inward=inward, hops=hops,
        paid=frozenset(x for x in inward if x in paid), adds=adds, copies=copies, repeats=repeats,
        transfers=price.transfers, single=single, part=part,
        arriving=arriving, settled=settled, behind=behind, how=how, in_whole=how.blocks.in_whole,
        lost=_lost_to_gets(how, machine),
        begins=float(gemms[how.blocks.works].min(initial=np.inf)) if single else 0.0,
    )  # fmt: skip
    # Of what comes last at least a chunk is to be multiplied; parts in turn may be of any size.
    least = gemms / how.chunks * (not how.turns)
    comes = {x: found.gathers(x, start_s) for x in price.gathered if x in paid}
    evenly = {x: _evenly(of, machine) for x, of in price.gathered.items() if x in paid}
    if how.sums.groups and "C" in paid and (single or cut):
        evenly["C"] = _evenly(price.adds, machine, 1.0 if single else _least_share(how))
    comes = {x: np.where(of > 0, of + least, 0.0) for x, of in comes.items()}
    passes = {x: of.passes(machine) for x, of in price.gathered.items()}
    return replace(found, comes=comes, evenly=evenly, passes=passes)


def _lost_to_gets(how: Gathered, machine: Machine) -> float:
    """Return the share of their rate that gemms lose at least beside what their multiply gathers."""
    by_turns = how.turns and COPIES in machine.means
    means = [machine.means[x] for x in (COLLECTIVE, *((COPIES,) if by_turns else ())) if x in machine.means]
    return min((x.interference for x in means), default=machine.interference["get"])


def _behind(price: Price, how: Gathered, machine: Machine) -> Floats | None:
    """Return how long after the first rank's last gemm each rank has all that it owns of a sum in chunks.

    The last chunk of every product is added after that, and each has a part of what every rank owns.
    """
    if price.copied.nbytes.any():
        return None
    own = (price.own.busy(machine) * (_least_share(how) * ROUNDING)).max(axis=0)
    return np.asarray(np.where(own > 0, own + machine.collective_start_s * ROUNDING, 0.0))


def _least_share(how: Gathered) -> float:
    """Return the least share that a chunk has of what any rank owns of a sum."""
    sides = [group.own[:, 1::2] - group.own[:, ::2] for group in how.sums.groups]
    cut = np.concatenate([x[:, int(how.along == "n")] for x in sides])
    return float((cut // how.chunks / np.maximum(1, cut)).min(initial=1.0))


def _evenly(flow: Flow, machine: Machine, share: float = 1.0) -> float:
    """Return ``evenly`` of what ranks exchange by a collective; 0 where it goes by level, or not alike.

    Args:
        flow: What moves.
        machine: Where.
        share: Of it that comes last.
    """
    busy = flow.busy(machine)[:2]
    by_level = any(isinstance(x, Exchange) and x.nodes is not None for x, _ in flow.parts)
    if by_level or not flow.parts or busy.any(axis=1).sum() != 1:
        return 0.0
    found = mean_of(flow.pairs, busy.max(axis=0) * share)
    return (found + machine.collective_start_s) * ROUNDING if found else 0.0


def mean_of(between: Floats, busy: Floats) -> float:
    """Return the least mean over ranks of when each has got all, counted from the mean of when all began.

    A link that carries parts of shares w, each some time after it is made, is busy with the last few of them
    from the first of these on. So with the moments weighted by w it ends (1 + Σ w²)/2 of its load after their
    mean, however they are ordered.

    Args:
        between: Bytes from rank to rank.
        busy: Seconds in which all of it reaches each.

    Returns:
        0 where some rank gets nothing, or some gives more than others.
    """
    into = between.sum(axis=0)
    if not into.all():
        return 0.0
    shares = between / into
    if not np.allclose(shares.sum(axis=1), 1.0, rtol=1e-9):
        return 0.0
    return float((busy * (1.0 + (shares**2).sum(axis=0)) / 2).mean())


def _arriving(price: Price, machine: Machine, adders: int) -> tuple[float, Floats, float]:
    """Return when some of a sum is complete anywhere, all that each rank owns of it, and all everywhere.

    Seconds count from the first product. Every product adds to all of a rank's part, so no element of that is
    complete before all of them have arrived; copies of other parts are of parts that are complete.
    """
    lanes = (0, machine.copy_engines, 0)
    flows = (price.own, price.copied, price.adds + price.copied)
    first, last = price.adds.hop * ROUNDING, price.copied.hop * ROUNDING

    def after_hop(rows: Floats) -> Floats:
        """Return the most of each rank's rows, where what goes between nodes begins after a hop."""
        return np.asarray(np.maximum(rows.max(axis=0), np.where(rows[1] > 0, rows[1] + first, 0.0)))

    own, copies, everything = (
        flow.busy(machine, count) * ROUNDING for flow, count in zip(flows, lanes, strict=True)
    )
    reached, copied = after_hop(own), copies.max(axis=0)
    reached = np.where(reached > 0, reached + machine.collective_start_s, 0.0)
    part = float(reached.min())
    leaving = price.adds.busy(machine, adders, OUT) * ROUNDING  # each after its rank's own product
    settled = max(float(after_hop(everything).max()), float(after_hop(leaving).max()))
    # Copies that come last from other nodes are passed on inside a node.
    settled = max(settled, float(everything[1].min()) + first + last if last else 0.0)
    settled += machine.collective_start_s * ROUNDING if settled else 0.0
    return part, np.maximum(reached, np.where(copied > 0, part + copied, 0.0)), settled


def _links_of(flows: Sequence[Flow], machine: Machine, ranks: int) -> Floats:
    """Return the seconds of each link of the fabric; of many ranks those of what ends at each.

    Every pair of very many ranks would take p² work, and of their links the ends are what is busy.
    """
    if ranks <= MOST:
        moving = [_carried_by(flow, machine, ranks) for flow in flows if flow.parts]
        return np.sum(moving, axis=0) if moving else np.zeros(_width(machine, ranks))
    busy = [flow.busy(machine, way=way)[:2] for flow in flows for way in (IN, OUT)]
    ends = np.sum(np.reshape(busy, (-1, 4, ranks)), axis=0).reshape(-1)
    found = np.zeros(_width(machine, ranks))
    found[: 4 * ranks] = ends
    return found


@lru_cache(maxsize=64)
def _devices(machine: Machine, ranks: int) -> Ints:
    """Return the device of each rank."""
    return np.array([machine.device_of(rank, ranks) for rank in range(ranks)], dtype=np.int64)


@lru_cache(maxsize=2048)
def _carried_by(flow: Flow, machine: Machine, ranks: int) -> Floats:
    """Return the seconds of each link of the fabric by one flow, which is that of many multiplies."""
    return _carried(flow.pairs.reshape(-1), machine, ranks)


def _width(machine: Machine, ranks: int) -> int:
    """Return how many links there are, or ends of links where they stand for these."""
    return max(len(machine.fabric.names), 4 * ranks if ranks > MOST else 0)


def _carried(between: Floats, machine: Machine, ranks: int) -> Floats:
    """Return the seconds of each link of the fabric.

    Args:
        between: Bytes from rank to rank, src · ranks + dst.
        machine: Where.
        ranks: How many.
    """
    links, carried = link_times(machine, ranks), np.zeros(_width(machine, ranks))
    # A joined schedule may leave out the links of memory, which follow.
    on_fabric = links.used < len(machine.fabric.names)
    carried[links.used[on_fabric]] = links.carried(between)[on_fabric]
    return carried


def _spans(schedule: Schedule, alone: Floats, machine: Machine, options: Options) -> tuple[Floats, Floats]:
    """Return the seconds of each rank from its first gemm to its last, by what follows from gemms.

    A get may have come before, unless it waits for a gemm of its own to make room. What follows goes along
    dependencies and lanes; and all that gemms wait for so crosses the rank's links, one after another.

    Returns:
        These, and ``queued``.
    """
    span, start, least = followed(schedule, alone)
    rows, queued = np.flatnonzero(np.isfinite(least)), np.zeros((2, schedule.ranks))
    if not len(rows):
        return span, queued
    ends = start + alone[: len(start)]
    queued = np.maximum(_on_lanes(schedule, rows, ends, machine), _in_slots(schedule, ends, options))
    rows = rows[_between_devices(schedule, machine)[rows]]
    if not len(rows):
        return span, queued
    begins, follows = start[rows], least[rows]
    for end, port in zip(
        (schedule.src[rows], schedule.dst[rows]), _ports(machine, schedule.ranks), strict=True
    ):
        own = end == schedule.rank[rows]
        first, last = np.full((2, schedule.ranks), np.inf)
        np.minimum.at(first, end[own], begins[own])
        np.minimum.at(last, end[own], follows[own])
        carried = np.bincount(end[own], schedule.nbytes[rows][own], schedule.ranks)
        span = np.maximum(span, np.where(carried > 0, first + carried / port + last, 0.0))
    return span, queued


def _on_lanes(schedule: Schedule, late: Ints, ends: Floats, machine: Machine) -> Floats:
    """Return when the first lane of each rank has got the last that it gets late; 0 where one gets none so.

    A lane gets one thing after another, so a later multiply gets nothing before that.
    """
    got = late[schedule.kind[late] == GET]
    last, lanes = np.zeros(len(schedule.lanes)), np.unique(schedule.lane[got])
    np.maximum.at(last, schedule.lane[got], ends[got])
    of, found = schedule.lanes.rank[lanes], np.full(schedule.ranks, np.inf)
    np.minimum.at(found, of, last[lanes])
    return np.where(np.bincount(of, minlength=schedule.ranks) == machine.copy_engines, found, 0.0)


def _in_slots(schedule: Schedule, ends: Floats, options: Options) -> Floats:
    """Return when the first pool slot is free that a later multiply's gets of one operand need, and of both.

    Slots are those of A, of B and of C, each taken in turn; what is there is read by gemms, or added.
    """
    depth, ranks, stop = options.prefetch + options.max_gemms, schedule.ranks, len(ends)
    free = np.zeros((ranks, 2 * depth))
    if options.policy != "direct":
        return free[:, :2].T
    kind, rank, moved = schedule.kind[:stop], schedule.rank[:stop], schedule.moved_tensors[:stop]
    waiting, waited = group_of_row(schedule.after_offsets), schedule.after
    base = np.zeros(ranks, dtype=np.int64)
    for operand, wanted, count in (
        (0, GET, depth),
        (1, GET, depth),
        (2, ACCUMULATE, options.max_gemms + options.max_accumulates),
    ):
        rows = np.flatnonzero((kind == wanted) & (moved == operand))
        if not len(rows):
            continue
        rows = rows[np.argsort(rank[rows], kind="stable")]
        of = rank[rows]
        number = np.arange(len(rows)) - np.searchsorted(of, of)
        slot = np.full(stop, 2 * depth)
        slot[rows] = base[of] + number % count
        reads = (slot[np.minimum(waited, stop - 1)] < 2 * depth) & (waited < stop) & (waiting < stop)
        reads[reads] = kind[waiting[reads]] == GEMM
        last, held = (waiting[reads], waited[reads]) if wanted == GET else (rows, rows)
        last, held = last[slot[held] < 2 * depth], held[slot[held] < 2 * depth]
        np.maximum.at(free, (rank[held], slot[held]), ends[last])
        base[np.unique(of)] += count
    return np.array([free[:, :depth].min(axis=1), free.min(axis=1)])


def followed(schedule: Schedule, takes: Floats) -> tuple[Floats, Floats, Floats]:
    """Return what follows from gemms before the first barrier, along dependencies and lanes.

    Args:
        schedule: Of a multiply.
        takes: Seconds of each action alone; counted of gemms and of what waits for one.

    Returns:
        When each rank's last gemm ends; when each action begins; and the shortest gemm of its rank that waits
        for it, infinite without any or where it waits for no gemm itself.
    """
    stop = _first_barrier(schedule)
    span, start, least = np.zeros(schedule.ranks), np.zeros(stop), np.full(stop, np.inf)
    columns = (schedule.rank, schedule.lane, schedule.after_offsets, schedule.after, takes, schedule.kind)
    spans_in_c(*map(np.ascontiguousarray, columns), span, start, least)
    return span, start, least


def _first_barrier(schedule: Schedule) -> int:
    barriers = np.flatnonzero(schedule.kind == BARRIER)
    return int(barriers[0]) if len(barriers) else len(schedule)


def _lanes(
    schedule: Schedule, machine: Machine, options: Options, alone: Floats, appended: bool
) -> tuple[Floats, Floats]:
    """Return the seconds of each rank's lanes, and the mean over each group of lanes.

    What does not keep its lanes is dealt out over those of its group, so only their mean is sure.
    """
    counts = _lane_counts(machine, options)
    names = [f"{group}.{i}" for group, count in zip(GROUPS, counts, strict=True) for i in range(count)]
    place = {name: i for i, name in enumerate([*names, CARD])}
    group_of = {name: GROUPS.index(name.partition(".")[0]) for name in names}
    busy = (schedule.lane >= 0) & ~np.isin(schedule.kind, (GEMM, MAP))
    rank, lane = schedule.rank[busy], schedule.lane[busy]
    found = []
    for where, width, counted in (
        (place, len(place), appended),
        (group_of, len(GROUPS), True),
    ):
        at = np.array([where.get(name, -1) for name in schedule.lanes.names], dtype=np.int64)[lane]
        sums = np.zeros((schedule.ranks, width))
        if counted:
            np.add.at(sums, (rank[at >= 0], at[at >= 0]), alone[busy][at >= 0])
        found.append(sums)
    return found[0].reshape(-1), (found[1] / np.array(counts)).reshape(-1)


def _lane_counts(machine: Machine, options: Options) -> tuple[int, int, int]:
    """Return how many lanes of each of :data:`GROUPS` a rank has."""
    return machine.copy_engines, machine.copy_engines, max(2, options.max_accumulates)


def _lossy_lanes(schedule: Schedule, machine: Machine, options: Options) -> int:
    """Return how many lanes of a rank at most move what slows its gemms down, in any joined schedule."""
    if options.policy != "direct" or schedule.means_of is not None:
        return 0
    adds, copies = max(2, options.max_accumulates), machine.copy_engines
    lossy = {name for name, loss in schedule.interference.items() if loss}
    lanes = adds if lossy & {"accumulate", "reduce", "broadcast"} else 0
    lanes += copies * len(lossy & {"get", "put", "broadcast"})
    return lanes + bool(lossy and machine.fabric.near > 1)  # collectives have one between nodes


def _lost(schedule: Schedule, moving: Bools, alone: Floats, lanes: int) -> Floats:
    """Return the seconds of gemm that transfers cost each rank at least.

    A rank has at most as many of them in flight as lanes that move what costs it, and what it loses at any
    moment is the largest loss among them: at least the sum of their losses over the number of those lanes.
    With no such lanes nothing is taken for lost.
    """
    if not lanes:
        return np.zeros(schedule.ranks)
    loss = np.array([schedule.interference.get(name, 0.0) for name in KINDS])[schedule.kind[moving]]
    return np.bincount(schedule.rank[moving], loss * alone[moving], schedule.ranks) / lanes


def _lost_at_ports(schedule: Schedule, moving: Bools, machine: Machine) -> Floats:
    """Return the seconds of work that each rank loses to what it sends, and to what it gets, shape (2, p).

    All that a rank sends leaves by one link on many machines. While that is busy, some of it is in flight,
    and the largest loss of that is no less than the mean.
    """
    if schedule.means_of is not None:
        return np.zeros((2, schedule.ranks))
    loss = np.array([schedule.interference.get(name, 0.0) for name in KINDS])[schedule.kind]
    ports, found = _ports(machine, schedule.ranks), []
    for end, port in zip((schedule.src, schedule.dst), ports, strict=True):
        own = moving & (end == schedule.rank)
        lost = np.bincount(schedule.rank[own], (loss * schedule.nbytes)[own], schedule.ranks)
        found.append(lost / port)
    return np.array(found)


@lru_cache(maxsize=64)
def _ports(machine: Machine, ranks: int) -> Floats:
    """Return the bandwidth of the link by which all leaves a rank, and of that by which all reaches it.

    It is infinite where there are several.
    """
    devices = sorted({machine.device_of(rank, ranks) for rank in range(ranks)})
    found = np.full((2, machine.device_count), np.inf)
    for here in devices:
        leaving, reaching = set[int](), set[int]()
        # Those beside it first: of many devices these soon show that there are several links.
        for there in sorted(devices, key=lambda x: abs(x - here))[1:]:
            leaving.add(machine.route(here, there)[0])
            reaching.add(machine.route(there, here)[-1])
            if len(leaving) > 1 and len(reaching) > 1:
                break
        for way, links in enumerate((leaving, reaching)):
            if len(links) == 1:
                found[way, here] = machine.link_bandwidth[links.pop()]
    return np.asarray(found[:, _devices(machine, ranks)])


def _moved(schedule: Schedule, moving: Bools, names: Sequence[str]) -> dict[str, int]:
    """Return the bytes of each tensor that reach the rank that gets most of it."""
    found, tensor = {}, schedule.moved_tensors
    for number, name in enumerate(names):
        rows = moving & (tensor == number)
        arriving = np.bincount(schedule.dst[rows], schedule.payload[rows], schedule.ranks)
        if arriving.any():
            found[name] = int(arriving.max())
    return found


def _without_launches(part: Schedule, machine: Machine) -> Schedule:
    """Return the schedule of a map whose pieces are of kernels that another map has launched."""
    less = np.where(part.kind == MAP, machine.launch_s, 0.0)
    return replace(part, seconds=np.maximum(part.seconds - less, 0.0))


def _written(
    statement: Statement, tensors: Mapping[str, Tensor], machine: Machine, options: Mapping[str, Any]
) -> Schedule:
    """Return the schedule of one statement that is no plain multiply."""
    held = {x: replace(tensors[x], role="both" if x in statement.reads else "output") for x in statement.outs}
    held = {x: replace(tensors[x], role="input") for x in statement.reads} | held
    ranks = tensors[statement.out].layout.ranks
    return lower(Chain("part", tuple(held.values()), (statement,), ranks), machine, **options)
