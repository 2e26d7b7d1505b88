"""The work of every statement of a program for all layouts of its tensors, and bounds that follow from it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from umm.arrays import Floats
from umm.machines import Machine
from umm.plans.join import summed_with_next
from umm.plans.movement.choice import AUTO, CHUNKS, FLAT, GATHERED, chosen, of_movement, one_sided
from umm.plans.multiply.options import Options
from umm.plans.multiply.replicas import how_summed
from umm.plans.share import fresh, gathers_anew, paid
from umm.plans.sink import may_change_turns
from umm.plans.statements.multiplies import as_problem, completing
from umm.program import Copy, Outline, Statement
from umm.program.layers import copies
from umm.program.problem import MATRICES
from umm.program.statements import statement_to_dict
from umm.program.statements.multiply import is_multiply, is_product, joinable
from umm.program.tensors import Tensor
from umm.space.assignments import Assignments, Place
from umm.space.bounds.order import Around, in_line, in_order
from umm.space.bounds.program import summed
from umm.space.bounds.statement_work import StatementWork, aligned, statement_work

ROWS_COMPARED_FIRST = 64  # rows by which resources are compared before they are by all
Known = dict[object, StatementWork]  # the work of statements, by all that it depends on


@dataclass(frozen=True, eq=False)
class StatementTable:
    """The work of a statement for every choice of the groups its tensors belong to."""

    groups: tuple[int, ...]  # numbers of these groups, ascending
    # By choice of each group, then by resource: those of `StatementWork`, the ranks in their order, and last
    # the line, see `in_line`.
    seconds: Floats
    works: Mapping[Place, StatementWork]  # by choice of each group
    # By choice of each group, of each tensor that it reads and that is summed over replicas: seconds from the
    # last gemm before its sums to the first action of each rank that reads it.
    waits: Mapping[Place, Mapping[str, Floats]]

    def at(self, place: Sequence[int]) -> Place:
        """Return the choices of its groups in an assignment."""
        return tuple(place[group] for group in self.groups)


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of a chain's statements, and the bytes of its tensors."""

    points: Assignments  # of which program and layouts
    statements: tuple[StatementTable, ...]  # a table for each statement, in order
    # A table for each tensor that is given elsewhere, of the copy that brings it.
    moves: tuple[StatementTable, ...]
    held: tuple[Floats, ...]  # by group and choice the bytes of its tensors on each rank
    # Likewise the bytes beside a schedule of one layer: the optimizer's state of its weights, and those of
    # the other layers.
    beside: tuple[Floats, ...]
    start_s: float  # seconds before a collective's first transfer
    inner: bool  # whether bounds are of a layer in the middle of many

    @property
    def all(self) -> tuple[StatementTable, ...]:
        """All tables."""
        return (*self.statements, *self.moves)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of choices of each group."""
        return tuple(len(x) for x in self.points.choices)

    def busiest(self, place: Sequence[int]) -> float:
        """Return the seconds of the busiest resource of an assignment, a lower bound of its makespan."""
        rows = [table.seconds[table.at(place)] for table in self.all]
        return float(np.sum(rows, axis=0).max())

    def bound(self, place: Sequence[int]) -> float:
        """Return the best lower bound of an assignment's makespan there is here."""
        busiest = self.busiest(place)
        return busiest if self.inner else max(busiest, self.in_order(place))

    def memory(self, place: Sequence[int]) -> int:
        """Return the bytes of all tensors, and of those beside them, on the fullest rank."""
        return int(self._bytes(self.held, place).max())

    def bytes_beside(self, place: Sequence[int]) -> Floats:
        """Return the bytes on each rank beside those of a schedule of one layer."""
        return self._bytes(self.beside, place)

    def stationary(self, place: Sequence[int]) -> dict[str, str]:
        """Return the matrix that stays in place of each product that is no batch."""
        pairs = zip(self.points.outline.statements, self.statements, strict=True)
        kept: dict[str, str] = {}
        for x, table in pairs:
            if is_product(x):
                stays = table.works[table.at(place)].stationary
                # Multiplies that add up in one tensor may each keep another one: they choose again.
                kept[x.out] = stays if kept.get(x.out, stays) == stays else "auto"
        return kept

    def _moving(self, place: Sequence[int]) -> Iterator[tuple[StatementWork, tuple[str, ...]]]:
        """Yield the work of each statement of an assignment, and the matrices that it moves itself."""
        statements, works = self.points.outline.statements, [x.works[x.at(place)] for x in self.statements]
        plans = {i: work.how for i, work in enumerate(works) if work.how is not None}
        # A gathered operand is shared by later statements, so it counts only where it is gathered anew.
        anew = gathers_anew(statements, plans)
        for number, work in enumerate(works):
            sums = () if summed_with_next(statements, plans, number) else ("C",)
            yield work, (*anew.get(number, ()), *sums)

    def actions(self, place: Sequence[int]) -> int:
        """Return about how many actions the schedule of an assignment has."""
        return sum(work.actions.get(x, 0) for work, moves in self._moving(place) for x in ("", *moves))

    def in_turn(self, place: Sequence[int]) -> float:
        """Return the makespan of an assignment if a statement hid no transfers but its own."""
        # No bound, for links go on while other statements compute. Layers on four nodes it orders more as
        # their makespans do than bounds, which miss the transfers that small multiplies do not hide.
        seconds = 0.0
        for number, (work, moves) in enumerate(self._moving(place)):
            seconds += self._exposed(number, work, moves)
        return seconds

    def in_turns(self) -> list[tuple[Sequence[int], Floats]]:
        """Return the groups of each statement and its share of :meth:`in_turn` by choice of each."""
        # Tensors that another statement makes are gathered by their first reader alone, so that shares add
        # up.
        statements, shares = self.points.outline.statements, list[tuple[Sequence[int], Floats]]()
        made = {name for x in statements for name in x.outs}
        for number, table in enumerate(self.statements):
            statement, first = statements[number], paid(statements, number)
            moves = {x for x in first if x == "C"}
            if is_multiply(statement):
                operands = (("A", statement.a), ("B", statement.b))
                moves |= {x for x, name in operands if x in first or name not in made}
            seconds = [self._exposed(number, work, moves & {*work.moves}) for work in table.works.values()]
            shares.append((table.groups, np.reshape(seconds, (*(self.shape[x] for x in table.groups), 1))))
        return shares

    def _exposed(self, number: int, work: StatementWork, moves: Collection[str]) -> float:
        """Return the seconds of a statement that hides no transfers but those of the matrices it moves."""
        # Tensors that others make, or read, are apart from those that may come early, weights, or late, their
        # gradients.
        statements = self.points.outline.statements
        statement = statements[number]
        needed, others = np.zeros(2), np.zeros(2)  # seconds of links in a node and between nodes
        if is_multiply(statement) and work.how is not None:
            names = {"A": statement.a, "B": statement.b, "C": statement.out}
            for x in (x for x in moves if x in work.moves):
                waits = any(names[x] in (y.reads if x == "C" else y.outs) for y in statements)
                (needed if waits else others)[:] += work.moves[x][:2].mean(axis=1)
        else:
            needed += float(work.seconds.max())
        return max(float(work.span.mean()), float(needed.max()), float(others.max()))

    def in_order(self, place: Sequence[int]) -> float:
        """Return a lower bound of an assignment's makespan, by the order of its statements."""
        works = [table.works[table.at(place)] for table in self.statements]
        waits = [table.waits[table.at(place)] for table in self.statements]
        return in_order(self.points.outline.statements, works, waits, self.points.ranks, self.start_s)

    def all_busiest(self) -> Floats:
        """Return :meth:`busiest` of every assignment, numbered with the last group fastest."""
        sums = summed(self.shape, [(table.groups, table.seconds) for table in self.all])
        return np.concatenate([total.max(axis=-1).reshape(-1) for _, total in sums])

    def all_memory(self) -> Floats:
        """Return :meth:`memory` of every assignment."""
        sums = summed(self.shape, [((number,), nbytes) for number, nbytes in enumerate(self.held)])
        return np.concatenate([total.max(axis=-1).reshape(-1) for _, total in sums])

    def _bytes(self, nbytes: Sequence[Floats], place: Sequence[int]) -> Floats:
        return np.asarray(np.sum([x[choice] for x, choice in zip(nbytes, place, strict=True)], axis=0))


def beside_a_layer(outline: Outline, tensor: Tensor, state: float, layers: int) -> Floats:
    """Return the bytes of a tensor on each rank beside those that a schedule of one layer has of it.

    Args:
        state: Bytes of optimizer state for each element of a weight.
    """
    nbytes = np.zeros(tensor.layout.ranks)
    if tensor.name in outline.weights:
        nbytes += tensor.layout.elements_of_rank * state * layers
    if layers > 1:
        nbytes += tensor.nbytes_of_rank * (copies(outline, layers)[tensor.name] - 1.0)
    return nbytes


def tables_of(
    points: Assignments,
    machine: Machine,
    options: Mapping[str, Any],
    state: float,
    layers: int = 1,
    known: Known | None = None,
) -> Tables:
    """Return the tables of a chain; equal multiplies and equal statements are priced once.

    Args:
        points: Of which program and layouts, and which movements.
        state: Bytes of optimizer state for each element of a weight.
        layers: How many layers like this one there are: memory is for all, and bounds are of one in the
            middle.
        known: Work that is known of the same statements; it is added to.
    """
    ranks, statements = points.ranks, points.outline.statements
    group_of = {name: number for number, names in enumerate(points.groups) for name in names}
    laid = {
        x.name: [x.laid_out(text, ranks) for text in points.choices[group_of[x.name]]]
        for x in points.outline.tensors
    }
    # Tables come first without seconds: the share of a statement in the
    # line depends on its neighbours' tables.
    priced = partial(_table, points, machine, options, group_of, laid, {} if known is None else known)
    tables = [priced(number) for number in range(len(statements))]
    ways = points.ways or (str(options.get("movement", AUTO)),)
    stay = all(one_sided(machine, ranks, x) for x in ways)  # only sums by collectives change turns
    turns: tuple[set[int], set[int]] = (set(), set()) if stay else may_change_turns(statements)
    inner = layers > 1 and not points.outline.given  # which are of the first layer
    tables = [_with_seconds(points, number, tables, turns, inner) for number in range(len(tables))]
    beside = [
        np.sum([[beside_a_layer(points.outline, x, state, layers) for x in laid[name]] for name in names], 0)
        for names in points.groups
    ]
    resident = [
        np.sum([[x.nbytes_of_rank for x in laid[name]] for name in names], axis=0) + more
        for names, more in zip(points.groups, beside, strict=True)
    ]
    # Movements are choices like layouts, but they hold no bytes: tables
    # of memory need rows for them all the same.
    beside += [np.zeros((len(points.ways), ranks))] * len(points.products)
    resident += [np.zeros((len(points.ways), ranks))] * len(points.products)
    moves = []
    for name in points.outline.given:
        table, more = _move(points, group_of[name], laid[name], machine, options)
        moves.append(table)
        resident[group_of[name]] = resident[group_of[name]] + more
    # Moves of given tensors have no columns for the order and the line; zeros keep the resources aligned.
    width = tables[0].seconds.shape[-1]
    padded = ([(0, 0), (0, width - x.seconds.shape[-1])] for x in moves)
    moves = [replace(x, seconds=np.pad(x.seconds, more)) for x, more in zip(moves, padded, strict=True)]
    kept = undominated([*tables, *moves])
    tables, moves = kept[: len(tables)], kept[len(tables) :]
    start_s = machine.collective_start_s
    return Tables(points, tuple(tables), tuple(moves), tuple(resident), tuple(beside), start_s, inner)


def _table(
    points: Assignments,
    machine: Machine,
    options: Mapping[str, Any],
    group_of: Mapping[str, int],
    laid: Mapping[str, Sequence[Tensor]],
    known: Known,
    number: int,
) -> StatementTable:
    """Return the table of a statement, without its seconds."""
    # group_of: number of each tensor's group. laid: each tensor by choice of its group. known: is added to.
    statements = points.outline.statements
    statement = statements[number]
    names = dict.fromkeys((*statement.outs, *statement.reads))
    groups = tuple(sorted({group_of[x] for x in names}))
    plain = is_product(statement)
    if by_way := plain and statement.out in points.products:
        groups += (len(points.groups) + points.products.index(statement.out),)
    stays, usual = _stays(points, statement), str(options.get("movement", AUTO))
    adds = number > 0 and joinable(statements[number - 1], statement)
    neighbours = paid(statements, number), fresh(statements, number), adds
    works: dict[Place, StatementWork] = {}
    waits: dict[Place, Mapping[str, Floats]] = {}
    for place in product(*(range(len(points.choices[x])) for x in groups)):
        choice = dict(zip(groups, place, strict=True))
        tensors = {x: laid[x][choice[group_of[x]]] for x in names}
        way = points.ways[place[-1]] if by_way else usual
        how = {**options, **of_movement(way)}
        # A multiply is one-sided where collectives do not fit.
        gathers = how["movement"] in (GATHERED, CHUNKS)
        if plain and gathers and stays != "best" and is_multiply(statement):
            chooses = chosen(as_problem(statement, tensors), machine, stays, how["movement"])
            how["movement"] = how["movement"] if chooses.how else FLAT
        # Layers repeat the same shapes: one price serves all statements
        # that are equal up to their tensors' names.
        key = stays, neighbours, how["movement"], how.get("prefetch"), _work_key(statement, tensors)
        if key not in known:
            kept = ("auto", *MATRICES) if stays == "best" else (stays,)
            tried = [statement_work(statement, tensors, machine, how, x, *neighbours) for x in kept]
            known[key] = min(tried, key=lambda x: float(np.append(x.seconds, x.span + x.summed).max()))
        works[place] = known[key]
        waits[place] = _waits(points, number, tensors, machine, options, way)
    return StatementTable(groups, np.zeros(0), works, waits)


def _with_seconds(
    points: Assignments,
    number: int,
    tables: Sequence[StatementTable],
    turns: tuple[Collection[int], Collection[int]],
    inner: bool,
) -> StatementTable:
    """Return the table of a statement with its seconds by resource, some of which depend on its neighbours.

    A rank's spans of statements do not overlap. Where one reads a replicated result of the one before,
    a rank waits for its sums between the two; and all is over when the last statement's are. Of a layer
    between others only the loads of resources are certain: its first gathers and last sums run beside these.
    """
    statements, table, last = points.outline.statements, tables[number], number + 1 == len(tables)
    following = [] if last else [*tables[number + 1].works.values()]
    # A certainty has to hold in every layout of the neighbour, since rows
    # know their own statement's choice alone.
    everywhere = bool(following) and all(x.span.min() > 0 for x in following)
    # Whether the next statement reads all that each rank owns of this one's output, in every layout.
    reads = statements[number + 1].reads if following and statements[number + 1].passes else ()
    at = [i for i, x in enumerate(reads) if x == statements[number].out]
    around = Around(everywhere, bool(at) and all(x.aligned[at[0]] for x in following), *turns)
    rows = []
    for place, work in table.works.items():
        # Where the one before has several movements, it may be summed by collectives.
        sums = table.waits[place].get(statements[number - 1].out, 0.0) if number and not points.ways else 0.0
        order = work.span + np.where(work.span > 0, sums, 0.0) + (work.summed if last and not inner else 0.0)
        line = [] if inner else in_line(statements, number, work, around)
        rows.append(np.concatenate((work.seconds, order, line)))
    shape = [len(points.choices[x]) for x in table.groups]
    return replace(table, seconds=np.reshape(rows, (*shape, -1)))


def undominated(tables: Sequence[StatementTable]) -> list[StatementTable]:
    """Return tables without the resources that are nowhere busy longer than another one."""
    # Ranks of many nodes are alike, so hundreds of thousands of resources are a few kinds.
    rows = np.concatenate([x.seconds.reshape(-1, x.seconds.shape[-1]) for x in tables])
    # Equal columns first, by their bytes: the pairwise comparison below is quadratic in what is left.
    distinct: dict[bytes, int] = {}
    for number, column in enumerate(rows.T):
        distinct.setdefault(column.tobytes(), number)
    numbers = [*distinct.values()]
    # In descending order of their sums a column can only be dominated by those already kept.
    some, kept = rows[:: max(1, len(rows) // ROWS_COMPARED_FIRST)], list[int]()
    for at in np.argsort(-rows[:, numbers].sum(axis=0), kind="stable").tolist():
        x = numbers[at]
        able = np.flatnonzero((some[:, [x]] <= some[:, kept]).all(axis=0))  # few are, and that takes little
        if not any((rows[:, x] <= rows[:, kept[i]]).all() for i in able.tolist()):
            kept.append(x)
    return [replace(x, seconds=x.seconds[..., sorted(kept)]) for x in tables]


def _move(
    points: Assignments, group: int, laid: Sequence[Tensor], machine: Machine, options: Mapping[str, Any]
) -> tuple[StatementTable, Floats]:
    """Return the work of bringing a tensor from where it is given, and the bytes that it has there."""
    ranks, name = points.ranks, laid[0].name
    works: dict[Place, StatementWork] = {}
    nbytes = np.zeros((len(laid), ranks))
    for choice, wanted in enumerate(laid):
        outside = points.outline.given_elsewhere({name: wanted}).get(name)
        here = replace(wanted, name=f"{name}.here")
        tensors = {name: wanted if outside is None else outside, here.name: here}
        work = statement_work(Copy(here.name, name), tensors, machine, options)
        # A tensor already in the layout wanted is not moved; its row stays, so that all choices have one.
        if outside is None:
            work = replace(work, seconds=np.zeros_like(work.seconds), actions={})
        else:
            nbytes[choice] = outside.nbytes_of_rank
        works[choice,] = replace(work, span=np.zeros(ranks))
    seconds = np.array([x.seconds for x in works.values()])
    return StatementTable((group,), seconds, works, {x: {} for x in works}), nbytes


def _stays(points: Assignments, statement: Statement) -> str:
    """Return which matrix a statement keeps in place, or ``best``, where it alone writes its product."""
    writers = [x for x in points.outline.statements if x.out == statement.out and is_multiply(x)]
    free = is_product(statement) and len(writers) == 1
    return "auto" if points.stationary == "best" and not free else points.stationary


def _waits(
    points: Assignments,
    number: int,
    tensors: Mapping[str, Tensor],
    machine: Machine,
    options: Mapping[str, Any],
    movement: str,
) -> Mapping[str, Floats]:
    """Return the waits of each rank for the tensors that a statement reads and that replicas sum."""
    # The last writer counts. A map of tiles in its own layout reads them whole; so is a replica but the first
    # that is to be added to.
    statements, waits = points.outline.statements, dict[str, Floats]()
    statement = statements[number]
    if not one_sided(machine, points.ranks, movement):
        return waits  # collectives begin when their inputs are complete, and no barrier is between
    for name in dict.fromkeys(statement.reads):
        last = next((x for x in reversed(statements[:number]) if x.out == name), None)
        if not is_product(last):
            continue
        if last is statements[number - 1] and joinable(last, statement):
            continue  # both products may be summed together
        layout = tensors[name].layout
        sums = how_summed(layout, tensors[name].dtype, machine, Options(**completing(options)))
        if sums is None:
            continue
        complete = np.zeros(layout.ranks, dtype=bool)
        if statement.passes:
            complete |= aligned(statement, tensors, name)
        elif is_multiply(statement) and statement.out == name:
            complete = layout.replica_of_rank > 0
        waits[name] = np.where(complete, sums.whole, sums.ready)
    return waits


def _work_key(statement: Statement, tensors: Mapping[str, Tensor]) -> object:
    """Return all that the work of a statement depends on, whatever its tensors are called."""
    if is_product(statement):
        # V beside Q and K beside both are one problem, but widen kernels of different widths.
        return as_problem(statement, tensors), bool(statement.beside), statement.besides
    number = {name: i for i, name in enumerate(tensors)}
    fields = statement_to_dict(statement)
    named = [number[name] for name in (*statement.outs, *statement.reads)]
    if statement.passes:
        named += [-1, *(number[name] for name in statement.fused)]  # costs less than one that is not
    names = (*statement.READS, *statement.WRITES)
    rest = {key: value for key, value in fields.items() if key not in names}
    return (str(rest), str(named), *((x.shape, x.dtype, x.stored, str(x.layout)) for x in tensors.values()))
