"""Work of one statement of a chain in given layouts: seconds by resource, and when its output can be there.

A statement's actions are the same in the joined schedule as alone, and a resource does one thing after
another. So the busiest resource's work, summed over the statements, is a bound for any overlap of parts.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from umm.arrays import Bools, Floats, Ints
from umm.machines import Machine
from umm.machines.curves import COLLECTIVE, COPY_ENGINE
from umm.plans.lower import lower
from umm.plans.movement.choice import FLAT, Chosen, chosen, node_count, one_sided
from umm.plans.movement.multiply import Gathered
from umm.plans.movement.prices import IN, MAX_RANKS_IN_PAIRS, OUT, Flow, Messages, Price, gemms_in_chunks
from umm.plans.multiply.options import Options
from umm.plans.multiply.policies import lowered
from umm.plans.multiply.replicas import how_summed
from umm.plans.statements.at_home import product_at_home, products_at_home, without_adds
from umm.plans.statements.grouped import combined_alone, product_of
from umm.plans.statements.multiplies import (
    as_problem,
    before_sums,
    completing,
    in_kernels_of,
    one_sided_part,
    sums_with_next,
)
from umm.program import Chain, Statement
from umm.program.problem import MATRICES
from umm.program.statements.multiply import is_multiply, is_product, joinable
from umm.program.tensors import Tensor
from umm.schedules.bound import ROUNDING
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import ACCUMULATE, GEMM, GET, KINDS, MAP
from umm.space.bounds.batch_work import BatchWork, batch_work, least_work
from umm.space.bounds.transfers import least_slowdown, link_times

LINKS = 6  # of a rank: links into it from its node and others, its lanes and its card, links out of it
Lossy = tuple[float, Flow]  # a flow, and the share of its time by which it slows work down
SLOWED = 4
"""Links whose transfers slow a rank's work down: into it from its node and others, then out of it."""
MOST_WRITTEN = 48
"""Actions of a rank up to which a one-sided multiply between nodes is written, if others are by collectives.

Those of more move slivers, and take longer than others of the same tensors.
"""


@dataclass(frozen=True, eq=False)
class StatementWork:
    """Work of one statement, in seconds."""

    # Load of each resource: engines of devices, each rank's work as its own transfers slow it down, links.
    # Added over statements, the largest is a lower bound of their joined schedule.
    seconds: Floats
    span: Floats  # work of each rank, which does statements in their order; 0 of passes that have other lanes
    # For A, B and C that move the load of each rank's links, shape (LINKS, ranks).
    moves: Mapping[str, Floats] = field(default_factory=dict)
    # For A and B from when any of it is complete until each rank has multiplied all that it gets; 0 where it
    # gets nothing.
    comes: Mapping[str, Floats] = field(default_factory=dict)
    begins: float = 0.0  # least work of a rank before any part of the output can be complete
    # Of sums the time from the end of the first rank's gemms until some of the output is complete anywhere,
    # and until each rank has its own part; None without sums.
    sums: tuple[float, Floats] | None = None
    summed: float = 0.0  # from the end of the last gemm until replicas are summed one-sidedly; else 0
    # Whether each rank does one gemm or map, whose output is complete nowhere before its end.
    single: bool = False
    # Of a map, for each tensor it reads whether it reads whole tiles where they lie; of a grouped multiply
    # whether ranks multiply the rows that they own.
    aligned: tuple[bool, ...] = ()
    stationary: str = "auto"  # matrix that stays in place
    how: Gathered | None = None  # Partition of a multiply by collectives; None of others.
    # About how many actions it is; of a multiply by collectives those of A, B and C by name.
    actions: Mapping[str, int] = field(default_factory=dict)


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
    """Return the work of one statement.

    Args:
        stationary: Of a multiply that is not a batch.
        paid: Matrices whose collectives a multiply has to do itself; without C the next one may sum the
            replicas of its product too.
        fresh: Of A and B those that nothing can have gathered before.
        adds: Whether it adds to the product of the statement before, which may move it with its own.
    """
    if not is_multiply(statement):
        return _written_work(statement, tensors, machine, options)
    if statement.is_batch:
        return _without_schedule(
            batch_work(statement, tensors, machine), machine, tensors[statement.out].layout.ranks
        )
    problem = as_problem(statement, tensors)
    # Collectives have a price in closed form, which is far cheaper than
    # a schedule; so they are asked for first.
    by_collectives = chosen(problem, machine, stationary, str(options.get("movement", "auto")))
    if by_collectives.price is not None:
        return _collective(by_collectives, by_collectives.price, machine, paid, fresh)
    # One of several nodes may move slivers, and its other layouts are by collectives.
    by_others = not one_sided(machine, problem.p, str(options.get("movement", "auto")))
    if by_others and not statement.beside and node_count(machine, problem.p) > 1:
        least = least_work(problem, machine, stationary)
        if least.actions > MOST_WRITTEN * problem.p:
            return replace(_without_schedule(least, machine, problem.p), stationary=stationary)
    part = one_sided_part(problem, machine, stationary, options, together=not statement.beside)
    # A product that the next statement adds to may stay unsummed: its moves then belong to the sum of both.
    flat = completing(options)["movement"] == FLAT
    if (adds or "C" not in paid) and not statement.beside and flat:
        at_home = product_at_home(problem, machine, stationary, completing(options))
        if at_home is not None:
            return _added_first(part, at_home, machine, adds, stationary)
    by_next = "C" not in paid and flat
    part = before_sums(part) if by_next else part
    if statement.beside:  # whatever the layout of the other multiply's output
        _, saved = in_kernels_of(part, problem, machine, statement.besides)
        part = replace(part, seconds=np.maximum(part.seconds - np.maximum(saved, 0.0), 0.0))
    work = replace(_work(part, machine), stationary=stationary, begins=_shortest(part))
    flows = _flows(part, machine)
    work = replace(work, comes=_comes(part, flows, machine), moves=_moves(flows, machine) if flat else {})
    layout, finished = problem.layout("C"), Options(**completing(options))
    summed = None if by_next else how_summed(layout, problem.c_dtype, machine, finished)
    return work if summed is None else replace(work, summed=summed.seconds[summed.way])


def _written_work(
    statement: Statement, tensors: Mapping[str, Tensor], machine: Machine, options: Mapping[str, Any]
) -> StatementWork:
    """Return the work of a statement that is no multiply, from its schedule."""
    written = _written([statement], tensors, machine, options)
    if statement.beside:
        # The schedule of a map whose pieces are of kernels that another map has launched.
        less = np.where(written.kind == MAP, machine.launch_s, 0.0)
        written = replace(written, seconds=np.maximum(written.seconds - less, 0.0))
    work = _work(written, machine)
    # Copy lanes run beside the compute lane, so these passes must not
    # count in the order of a rank's statements.
    product = product_of(statement)
    if product and tensors[product].layout.grid_shape()[1] > 1:
        # Products may stay at their makers until sums of tokens move, at other ranks than those alone.
        none = np.zeros(written.ranks)
        return replace(work, seconds=np.zeros_like(work.seconds), span=none, aligned=(False,))
    if statement.exchanges:  # their passes have lanes beside those of computation
        return replace(work, span=np.zeros(written.ranks))
    if statement.passes or statement.attends:
        work = replace(work, begins=_begins(written, statement.outs))
    if statement.has_weights:
        moved = _moved(written, written.src != written.dst, [x.name for x in written.tensors])
        return replace(work, aligned=(statement.reads[0] not in moved,))
    if not statement.passes:
        return work
    passes = np.bincount(written.rank[written.kind == MAP], minlength=written.ranks).max(initial=0)
    whole_tiles = tuple(aligned(statement, tensors, x) for x in statement.reads)
    return replace(work, aligned=whole_tiles, single=bool(passes <= 1))


def _added_first(
    part: Schedule, at_home: Schedule, machine: Machine, adds: bool, stationary: str
) -> StatementWork:
    """Return the work of a one-sided multiply whose products may be added to others before these move.

    The moves of their sum are taken for those of the first of them. They may begin once that has multiplied
    any of it, and hold up no gemm but by their share of links.

    Args:
        part: Schedule of the multiply by itself.
        at_home: Schedule by which each rank multiplies all that it owns, see ``product_at_home``.
        adds: Whether it adds to the product of the statement before.
    """
    gemms = _work(without_adds(at_home), machine)
    work = gemms if adds else _work(at_home, machine)
    work = replace(work, stationary=stationary, span=gemms.span, begins=_shortest(at_home))
    if part.name == at_home.name:
        return replace(work, moves={} if adds else _moves(_flows(at_home, machine), machine))
    # It is open here which of the two ways is taken, so each resource has the smaller of its two loads.
    usual = _work(part, machine)  # where the layouts of the others are not alike
    seconds, span = np.minimum(work.seconds, usual.seconds), np.minimum(work.span, usual.span)
    return replace(work, seconds=seconds, span=span, begins=0.0)


def _shortest(part: Schedule) -> float:
    """Return the seconds of the shortest gemm."""
    seconds = part.seconds[part.kind == GEMM]
    return float(seconds.min()) * ROUNDING if len(seconds) else 0.0


def _begins(schedule: Schedule, outs: Collection[str]) -> float:
    """Return the least seconds that a rank works before it has written any of some tensors."""
    names = [number for number, x in enumerate(schedule.tensors) if x.name in outs]
    works = np.flatnonzero((schedule.kind == MAP) & (schedule.lane >= 0))
    writes = np.isin(schedule.operand_tensors(0)[works], names)
    least = np.inf
    for rank in np.unique(schedule.rank[works]).tolist():
        here = schedule.rank[works] == rank
        if writes[here].any():
            # All passes up to the first that writes an output come before it on the rank's lane.
            until = int(np.argmax(writes[here])) + 1
            least = min(least, float(schedule.seconds[works][here][:until].sum()))
    return least * ROUNDING if np.isfinite(least) else 0.0


def _comes(part: Schedule, flows: Mapping[str, Flow], machine: Machine) -> dict[str, Floats]:
    """Return ``comes`` of a one-sided multiply: the last that reaches a rank has to be multiplied then."""
    gemms = part.kind == GEMM
    shortest = np.full(part.ranks, np.inf)
    np.minimum.at(shortest, part.rank[gemms], part.seconds[gemms])
    # The last bytes cannot arrive before the rank's links have passed them all; a gemm has to follow.
    arrives = {x: flow.busy(machine).max(axis=0) for x, flow in flows.items() if x != "C"}
    return {x: np.where(takes > 0, takes + shortest, 0.0) * ROUNDING for x, takes in arrives.items()}


def _moves(flows: Mapping[str, Flow], machine: Machine) -> dict[str, Floats]:
    """Return ``moves`` of a one-sided multiply."""
    return {x: _on_links(flow, machine, 0) for x, flow in flows.items()}


def _flows(part: Schedule, machine: Machine) -> dict[str, Flow]:
    """Flow of A and B that a one-sided multiply gets and of C that it adds, those that move."""
    of_kind = zip(MATRICES, (GET, GET, ACCUMULATE), strict=True)
    rows = {x: (part.kind == kind) & (part.moved_tensors == i) for i, (x, kind) in enumerate(of_kind)}
    flows = {x: _flow(part, some, part.nbytes, machine) for x, some in rows.items()}
    return {x: flow for x, flow in flows.items() if flow.nbytes.any()}


def _flow(part: Schedule, rows: Bools, nbytes: Floats | Ints, machine: Machine) -> Flow:
    """Return the flow of some transfers of a schedule."""
    # Ranks on one device exchange through its memory and load no link.
    device = _devices(machine, part.ranks)
    rows = rows & (device[part.src] != device[part.dst])
    moved = nbytes[rows].astype(np.float64)
    messages = Messages(part.src[rows], part.dst[rows], moved, moved, np.ones(len(moved)))
    return Flow.of([messages], machine, part.ranks, 1.0)


def aligned(statement: Statement, tensors: Mapping[str, Tensor], name: str) -> bool:
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
        stationary: Of a multiply that is not a batch.
    """
    statement = statements[number]
    if is_product(statement):
        problem = as_problem(statement, tensors)
        names = [statement.a, statement.b, statement.out]
        price = chosen(problem, machine, stationary, str(options.get("movement", "auto"))).price
        if price is not None:
            called = dict(zip(MATRICES, names, strict=True))
            return {called[x]: nbytes for x, nbytes in price.payload.items() if nbytes}
        # Adjacent multiplies that add to one tensor form a run, whose sum moves once.
        first = last = number
        while first and joinable(statements[first - 1], statements[first]):
            first -= 1
        while last + 1 < len(statements) and joinable(statements[last], statements[last + 1]):
            last += 1
        terms = [*filter(is_product, statements[first : last + 1])]
        at_home = products_at_home(terms, tensors, machine, stationary, options)
        if at_home:
            part = without_adds(at_home[0]) if number > first else at_home[0]
        else:
            part = lowered(problem, machine, stationary, **completing(options))
        if number < last and sums_with_next(statement, statements[number + 1], tensors, options):
            part = before_sums(part)
    else:
        together, name = [statement], product_of(statement)
        if name in combined_alone(tensors.values(), statements):  # partial products move as sums of tokens
            together = [x for x in statements if product_of(x) == name]
        part = _written(together, tensors, machine, options)
        names = [tensor.name for tensor in part.tensors]
        moved = _moved(part, part.src != part.dst, names)
        mine = {*statement.reads, *statement.outs} - ({name} if statement is not together[-1] else set())
        return {x: nbytes for x, nbytes in moved.items() if x in mine}
    return _moved(part, part.src != part.dst, names)


def schedule_load(schedule: Schedule, machine: Machine) -> float:
    """Return the seconds of the busiest resource of a whole schedule."""
    return float(_work(schedule, machine).seconds.max())


def _work(schedule: Schedule, machine: Machine) -> StatementWork:
    """Return loads and spans of the schedule of a statement."""
    p, kind, rank, seconds = schedule.ranks, schedule.kind, schedule.rank, schedule.seconds
    device = _devices(machine, p)
    computes = (kind == GEMM) | ((kind == MAP) & (schedule.lane >= 0))
    engine = schedule.lanes.engine[schedule.lane] if len(schedule) else np.zeros(0)
    on_engine = computes & (engine >= 0)
    engines = np.bincount(device[rank[on_engine]], seconds[on_engine], machine.device_count)
    span = np.bincount(rank[on_engine], seconds[on_engine], p)
    moving = schedule.src != schedule.dst
    between = np.bincount((schedule.src * p + schedule.dst)[moving], schedule.nbytes[moving], p * p)
    sent, got = list[Lossy](), list[Lossy]()
    # Where transfers have means of their own, their interference differs: no loss is counted, which is safe.
    if schedule.means_of is None and moving.any():
        loss = np.array([schedule.interference.get(name, 0.0) for name in KINDS])[kind] * schedule.nbytes
        sent.append((1.0, _flow(schedule, schedule.src == rank, loss, machine)))
        got.append((1.0, _flow(schedule, schedule.dst == rank, loss, machine)))
    slowed = span + _lost(sent, got, machine, p)
    return _of_loads(engines, slowed, _carried(between.astype(np.float64), machine, p), span, len(schedule))


def _of_loads(engines: Any, slowed: Any, links: Floats, span: Any, actions: int) -> StatementWork:
    """Return work by its loads, each a little less than its sum, which may be rounded up."""
    seconds = np.concatenate((engines, slowed.reshape(-1), links)).astype(np.float64) * ROUNDING
    return StatementWork(seconds, span.astype(np.float64) * ROUNDING, actions={"": actions})


def _without_schedule(least: BatchWork, machine: Machine, p: int) -> StatementWork:
    """Return work of which no schedule was written."""
    engines = np.bincount(link_times(machine, p).device, least.gemms, machine.device_count)
    # The sizes of single messages are unknown here, so all bytes get the
    # mildest charge up to the largest pair.
    moved = least.nbytes * least_slowdown(machine.message_sizes, int(least.nbytes.max()))
    links = _carried(moved.reshape(-1), machine, p)
    return _of_loads(engines, np.tile(least.gemms, SLOWED), links, least.gemms, least.actions)


def _collective(
    by: Chosen, price: Price, machine: Machine, paid: Collection[str], fresh: Collection[str]
) -> StatementWork:
    """Return the work of a multiply by collectives; copies within a rank take nothing."""
    p, how, start_s = len(price.gemms), by.how, machine.collective_start_s
    assert how is not None
    # In chunks if these hide its sums, or what nothing before can have gathered; else perhaps whole.
    cut = how.chunks > 1 and ("C" in paid if how.sums.groups else any(x in fresh for x in how.collects))
    in_chunks = gemms_in_chunks(how, machine) if cut and not how.blocks.split else None
    # Smaller gemms are slower; whole ones are the safe choice where chunks are not sure.
    takes = price.gemms if in_chunks is None else in_chunks
    engines = np.bincount(_devices(machine, p), takes, machine.device_count)
    flows = (*price.gathered.items(), ("C", price.adds), ("C", price.copied))
    links = _links_of([flow for x, flow in flows if x in paid], machine, p)
    slowed = takes + _lost(*_lost_to(price, how, machine, paid), machine, p)
    work, gemms = _of_loads(engines, slowed, links, takes, 0), takes * ROUNDING
    single, lanes = how.chunks == 1, machine.copy_engines
    moves = {x: _on_links(flow, machine, lanes) for x, flow in price.gathered.items()}
    sums = None
    if how.sums.groups:
        moves["C"] = _on_links(price.adds, machine, 0) + _on_links(price.copied, machine, lanes)
    if how.sums.groups and "C" in paid:
        # A sum in one piece ends after all products; of one in chunks only
        # the last chunk is sure to be exposed.
        sums = _sums(price, machine) if single else _last_of_sums(price, how, machine) if cut else None
    # Of what comes last at least a chunk is to be multiplied; parts in turn may be of any size.
    least = gemms / how.chunks * (not how.turns)
    comes = dict[str, Floats]()
    for x, flow in price.gathered.items():
        busy = flow.busy(machine, lanes) * ROUNDING
        arrives = busy.max(axis=0)
        # What has come last from another node is there for its rank's mates a hop later.
        passed = busy[1][arrives > 0].min(initial=np.inf) + flow.hop / how.chunks * ROUNDING
        comes[x] = np.where(arrives > 0, np.maximum(arrives, passed) + start_s * ROUNDING + least, 0.0)
    return replace(
        work, stationary=by.stationary, moves=moves, comes=comes, sums=sums, single=single, how=how,
        begins=float(gemms[how.blocks.works].min(initial=np.inf)) if single else 0.0,
        actions={x: p * how.chunks * count for x, count in {"": 1, **price.transfers}.items()},
    )  # fmt: skip


def _on_links(flow: Flow, machine: Machine, lanes: int) -> Floats:
    """Return the load of each rank's links by a collective, shape (LINKS, ranks)."""
    return np.concatenate((flow.busy(machine, lanes), flow.busy(machine, way=OUT)[:2])) * ROUNDING


def _last_of_sums(price: Price, how: Gathered, machine: Machine) -> tuple[float, Floats] | None:
    """Return ``sums`` of a sum in chunks: the last one is added after the first rank's last gemm."""
    # Each chunk has a part of every rank's share.
    if price.copied.nbytes.any():
        return None
    sides = [group.own[:, 1::2] - group.own[:, ::2] for group in how.sums.groups]
    # Chunks are cut along one dimension of C with floor division: the smallest one gives a safe share.
    cut = np.concatenate([x[:, int(how.along == "n")] for x in sides])
    share = float((cut // how.chunks / np.maximum(1, cut)).min(initial=1.0))
    load = (price.own.busy(machine) * (share * ROUNDING)).max(axis=0)
    return 0.0, np.where(load > 0, load + machine.collective_start_s * ROUNDING, 0.0)


def _sums(price: Price, machine: Machine) -> tuple[float, Floats]:
    """Return ``sums`` of a sum in one piece."""
    # Every product adds to all of a rank's part, so no element of that is complete before all of them have
    # arrived; copies of other parts are of parts that are complete.
    adds, copies = price.own.busy(machine), price.copied.busy(machine, machine.copy_engines).max(axis=0)
    # Bytes from other nodes begin after a hop inside these.
    reached = np.maximum(adds.max(axis=0), np.where(adds[1] > 0, adds[1] + price.adds.hop, 0.0)) * ROUNDING
    reached = np.where(reached > 0, reached + machine.collective_start_s * ROUNDING, 0.0)
    part = float(reached.min())
    return part, np.maximum(reached, np.where(copies > 0, part + copies * ROUNDING, 0.0))


def _links_of(flows: Sequence[Flow], machine: Machine, ranks: int) -> Floats:
    """Return the seconds of each link of the fabric; of many ranks those of the ends at each."""
    # Every pair of very many ranks would take p² work, and of their links the ends are busy.
    if ranks <= MAX_RANKS_IN_PAIRS:
        moving = [_carried_by(flow, machine, ranks) for flow in flows if flow.messages]
        return np.sum(moving, axis=0) if moving else np.zeros(_width(machine, ranks))
    busy = [flow.busy(machine, way=way)[:2] for flow in flows for way in (IN, OUT)]
    links = np.zeros(_width(machine, ranks))
    links[: 4 * ranks] = np.sum(np.reshape(busy, (-1, 4, ranks)), axis=0).reshape(-1)
    return links


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
    return max(len(machine.fabric.names), 4 * ranks if ranks > MAX_RANKS_IN_PAIRS else 0)


def _carried(between: Floats, machine: Machine, ranks: int) -> Floats:
    """Return the seconds of each link of the fabric."""
    # between: bytes from rank to rank, src · ranks + dst. ranks: how many there are.
    links, carried = link_times(machine, ranks), np.zeros(_width(machine, ranks))
    # A joined schedule may leave out the links of memory, which follow.
    on_fabric = links.used < len(machine.fabric.names)
    carried[links.used[on_fabric]] = links.carried(between)[on_fabric]
    return carried


def _lost(sent: Sequence[Lossy], got: Sequence[Lossy], machine: Machine, ranks: int) -> Floats:
    """Return the seconds of work that each rank loses to its sends, and to its gets, shape (SLOWED, ranks).

    While links are busy with them, some are in flight, and the largest loss of these is no less than the
    mean. A rank that waits meanwhile, as for an engine that it shares, loses nothing of its work.
    """
    lost = np.zeros((2, 2, ranks))
    for way, flows in ((OUT, sent), (IN, got)):
        for loss, flow in flows:
            lost[way] += loss * flow.busy(machine, way=way)[:2]
    return lost.reshape(SLOWED, ranks) * _has_engine(machine, ranks)


def _lost_to(
    price: Price, how: Gathered, machine: Machine, paid: Collection[str]
) -> tuple[list[Lossy], list[Lossy]]:
    """Flows that ranks send and get by collectives, each with the share of its time that work loses."""
    collective = machine.means.get(COLLECTIVE)
    gets, adds = (
        machine.interference[x] if collective is None else collective.interference
        for x in ("get", "accumulate")
    )
    # Copy engines, which bring parts in turn, may slow work down less.
    by_turns = machine.means[COPY_ENGINE].interference if how.turns and COPY_ENGINE in machine.means else gets
    got = [(min(gets, by_turns), flow) for x, flow in price.gathered.items() if x in paid]
    if not how.sums.groups or "C" not in paid:
        return [], got
    return [(adds, price.adds)], [*got, (gets, price.copied)]


def _has_engine(machine: Machine, ranks: int) -> Bools:
    """Return whether each rank has an engine of its own; others may wait for it, which slows nothing down."""
    device = _devices(machine, ranks)
    return np.asarray(np.bincount(device, minlength=machine.device_count)[device] == 1)


def _moved(schedule: Schedule, moving: Bools, names: Sequence[str]) -> dict[str, int]:
    """Return the bytes of each tensor that reach the rank that gets most of it."""
    moved, tensor = dict[str, int](), schedule.moved_tensors
    for number, name in enumerate(names):
        rows = moving & (tensor == number)
        arriving = np.bincount(schedule.dst[rows], schedule.payload[rows], schedule.ranks)
        if arriving.any():
            moved[name] = int(arriving.max())
    return moved


def _written(
    statements: Sequence[Statement],
    tensors: Mapping[str, Tensor],
    machine: Machine,
    options: Mapping[str, Any],
) -> Schedule:
    """Return the schedule of one statement that is no plain multiply, or of several one after another."""
    reads = dict.fromkeys(x for one in statements for x in one.reads)
    outs = dict.fromkeys(x for one in statements for x in one.outs)
    inner = {x for one in statements[:-1] for x in one.outs}

    def role(name: str) -> str:
        written = "both" if name in reads else "output"
        return "work" if name in inner else written if name in outs else "input"

    laid = tuple(replace(tensors[x], role=role(x)) for x in reads | outs)
    ranks = tensors[statements[-1].out].layout.ranks
    return lower(Chain("part", laid, tuple(statements), ranks), machine, **options)
