"""The work of every statement of a program for all layouts of its tensors, and bounds that follow from it."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from umm.arrays import Floats
from umm.machines import Machine
from umm.plans.join import summed_with_next
from umm.plans.movement.choice import (
    AUTO,
    CHUNKS,
    FLAT,
    GATHERED,
    chosen,
    host_count,
    of_movement,
    one_sided,
)
from umm.plans.multiply.options import Options
from umm.plans.multiply.replicas import how_summed_as
from umm.plans.share import fresh, gathers_anew, paid
from umm.plans.sink import may_change_turns
from umm.plans.statements.multiplies import as_problem, completing
from umm.program import (
    Attention,
    AttentionGrad,
    Copy,
    Map,
    Multiply,
    Outline,
    Statement,
)
from umm.program.layers import copies
from umm.program.problem import MATRICES
from umm.program.statements import statement_to_dict
from umm.program.statements.multiply import joinable
from umm.program.tensors import Tensor
from umm.schedules.bound import ROUNDING
from umm.schedules.writer.builder import COLLECTIVE
from umm.space.assignments import Assignments, Place
from umm.space.bounds.order import (
    IN_LINE,
    MEANS,
    Around,
    in_line,
    in_order,
    settles,
    shares_of,
    takes_in_the_mean,
)
from umm.space.bounds.statement_work import StatementWork, statement_work
from umm.space.bounds.transfers import ALL

MAX_SUMMED_AT_ONCE = 2**20
"""Numbers that are added up at once: more need more memory, and leave a signal waiting."""
SENT = 4
"""Sums over statements by what leaves each rank."""


@dataclass(frozen=True, eq=False)
class StatementTable:
    """What a statement takes for every choice of the groups its tensors belong to.

    Attributes:
        groups: Numbers of these groups, ascending.
        seconds: By choice of each group, then by resource: those of :class:`StatementWork`, the ranks in
            their order, these and then their links, and those of ``in_line``.
        works: By choice of each group.
        waits: By choice of each group, for each tensor that it reads and that is summed over replicas, the
            seconds from the last gemm before its sums to the first action of each rank that reads it.
    """

    groups: tuple[int, ...]
    seconds: Floats
    works: Mapping[Place, StatementWork]
    waits: Mapping[Place, Mapping[str, Floats]]

    def work(self, place: Sequence[int]) -> StatementWork:
        """Return what it takes in an assignment."""
        return self.works[self._own(place)]

    def waiting(self, place: Sequence[int]) -> Mapping[str, Floats]:
        """Return what it waits for in an assignment; see ``waits``."""
        return self.waits[self._own(place)]

    def _own(self, place: Sequence[int]) -> Place:
        return tuple(place[group] for group in self.groups)


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of a chain's statements, and the bytes of its tensors.

    Attributes:
        points: Of which program and layouts.
        statements: A table for each statement, in order.
        moves: A table for each tensor that is given elsewhere, of what moves it.
        held: By group and choice the bytes of its tensors on each rank.
        beside: Likewise what is held beside a schedule of one layer: the optimizer's state of its weights,
            and what the other layers hold.
        start_s: Seconds before a collective's first transfer.
        loss: Share of its rate that a rank's work loses while it gets, and while it adds, by collectives.
    """

    points: Assignments
    statements: tuple[StatementTable, ...]
    moves: tuple[StatementTable, ...]
    held: tuple[Floats, ...]
    beside: tuple[Floats, ...]
    start_s: float
    loss: tuple[float, float]

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
        rows = [table.seconds[tuple(place[x] for x in table.groups)] for table in self.all]
        return float(np.sum(rows, axis=0).max())

    def busiest_beside(self, place: Sequence[int]) -> Floats:
        """Return :meth:`busiest` of the assignments with another choice of one group, group by group."""
        rows = [table.seconds[tuple(place[x] for x in table.groups)] for table in self.all]
        total, found = np.sum(rows, axis=0), [np.zeros(0)]
        for group, count in enumerate(self.shape):
            busy = np.broadcast_to(total, (count, len(total))).copy()
            for table, row in zip(self.all, rows, strict=True):
                if group in table.groups and count > 1:
                    busy += table.seconds[
                        tuple(slice(None) if x == group else place[x] for x in table.groups)
                    ]
                    busy -= row
            found.append(np.delete(busy.max(axis=1), place[group]))
        return np.concatenate(found)

    def bound(self, place: Sequence[int]) -> float:
        """Return the best lower bound of an assignment's makespan there is here."""
        return max(self.busiest(place), self.in_order(place))

    def memory(self, place: Sequence[int]) -> int:
        """Return the bytes of all tensors, and of what is beside them, on the fullest rank."""
        return int(self._bytes(self.held, place).max())

    def bytes_beside(self, place: Sequence[int]) -> Floats:
        """Return the bytes on each rank beside those of a schedule of one layer."""
        return self._bytes(self.beside, place)

    def stationary(self, place: Sequence[int]) -> dict[str, str]:
        """Return the matrix that stays in place of each product that is no batch."""
        pairs = zip(self.points.outline.statements, self.statements, strict=True)
        kept: dict[str, str] = {}
        for x, table in pairs:
            if isinstance(x, Multiply) and not x.is_batch:
                stays = table.work(place).stationary
                # Multiplies that add up in one tensor may each keep another one: they choose again.
                kept[x.out] = stays if kept.get(x.out, stays) == stays else "auto"
        return kept

    def actions(self, place: Sequence[int]) -> int:
        """Return about how many actions the schedule of an assignment has."""
        statements, found = self.points.outline.statements, 0
        works = [table.work(place) for table in self.statements]
        plans = {i: work.how for i, work in enumerate(works) if work.how is not None}
        anew = gathers_anew(statements, plans)
        for number, work in enumerate(works):
            if number not in plans:
                found += work.actions
                continue
            sums = not summed_with_next(statements, plans, number)
            moves = sum(work.transfers.get(x, 0) for x in (*anew[number], *(("C",) if sums else ())))
            found += self.points.ranks * (plans[number].chunks + moves)
        return found

    def in_turn(self, place: Sequence[int]) -> float:
        """Return what an assignment takes if a statement hides no transfers but those of its own.

        No bound, for links go on while other statements compute. Layers on four nodes it orders more as their
        makespans do than bounds, which miss what small multiplies do not hide. What others make, or read, is
        apart from what may come early, weights, or late, their gradients.
        """
        statements, seconds = self.points.outline.statements, 0.0
        works = [table.work(place) for table in self.statements]
        plans = {i: work.how for i, work in enumerate(works) if work.how is not None}
        anew, made = gathers_anew(statements, plans), {name for x in statements for name in x.outs}
        read = {name for x in statements for name in x.reads}
        for number, (statement, work) in enumerate(zip(statements, works, strict=True)):
            needed, others = np.zeros(2), np.zeros(2)  # seconds of links in a node and between nodes
            if isinstance(statement, Multiply) and work.how is None:
                needed += float(work.seconds.max())
            elif isinstance(statement, Multiply):
                sums = () if summed_with_next(statements, plans, number) else ("C",)
                for x in (*anew.get(number, ()), *sums):
                    if x in work.inward:
                        name = {"A": statement.a, "B": statement.b, "C": statement.out}[x]
                        waits = name in (read if x == "C" else made)
                        (needed if waits else others)[:] += work.inward[x][:2].mean(axis=1)
            elif work.arrives is not None:
                needed += float(work.arrives.max())
            seconds += max(float(work.span.mean()), float(needed.max()), float(others.max()))
        return seconds

    def in_order(self, place: Sequence[int]) -> float:
        """Return a lower bound of an assignment's makespan, by the order of its statements."""
        works = [table.work(place) for table in self.statements]
        waits = [table.waiting(place) for table in self.statements]
        return in_order(
            self.points.outline.statements, works, waits, self.points.ranks, self.start_s, self.loss
        )

    def all_busiest(self) -> Floats:
        """Return :meth:`busiest` of every assignment, numbered with the last group fastest."""
        return self._greatest([(table.groups, table.seconds) for table in self.all])

    def all_memory(self) -> Floats:
        """Return :meth:`memory` of every assignment."""
        return self._greatest([((number,), nbytes) for number, nbytes in enumerate(self.held)])

    def _greatest(self, terms: Sequence[tuple[Sequence[int], Floats]]) -> Floats:
        """Return the greatest part of the sum of terms, of every assignment.

        Args:
            terms: Of each the groups that it depends on, and its parts by the choices of these.
        """
        parts, apart = terms[0][1].shape[-1], 0
        while apart < len(self.shape) and math.prod(self.shape[apart:]) * parts > MAX_SUMMED_AT_ONCE:
            apart += 1
        greatest = []
        for first in np.ndindex(*self.shape[:apart]):
            total = np.zeros((*self.shape[apart:], parts))
            for groups, numbers in terms:
                chosen = numbers[tuple(first[x] for x in groups if x < apart)]
                total += chosen.reshape(*self._spread(groups)[apart:], -1)
            greatest.append(total.max(axis=-1).reshape(-1))
        return np.concatenate(greatest)

    def _bytes(self, held: Sequence[Floats], place: Sequence[int]) -> Floats:
        return np.asarray(np.sum([of[x] for of, x in zip(held, place, strict=True)], axis=0))

    def _spread(self, groups: Sequence[int]) -> list[int]:
        return [n if group in groups else 1 for group, n in enumerate(self.shape)]


class _Priced(NamedTuple):
    """A statement's groups, and what it takes and waits for by choice of each."""

    groups: tuple[int, ...]
    works: dict[Place, StatementWork]
    waits: dict[Place, Mapping[str, Floats]]


def beside_a_layer(outline: Outline, tensor: Tensor, state: float, layers: int) -> Floats:
    """Return the bytes of a tensor on each rank beside those that a schedule of one layer has of it.

    Args:
        outline: One layer.
        tensor: A tensor of it.
        state: Bytes of optimizer state for each element of a weight.
        layers: How many layers there are.
    """
    found = np.zeros(tensor.layout.ranks)
    if tensor.name in outline.weights:
        found += tensor.layout.elements_of_rank * state * layers
    if layers > 1:
        found += tensor.nbytes_of_rank * (copies(outline, layers)[tensor.name] - 1.0)
    return found


Known = dict[object, StatementWork]
"""The work of statements by what it depends on."""


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
        machine: Where.
        options: Of the universal algorithm.
        state: Bytes of optimizer state for each element of a weight.
        layers: How many layers like this one memory is for.
        known: Work that is known of the same statements; it is added to.
    """
    ranks = points.ranks
    group_of = {name: number for number, names in enumerate(points.groups) for name in names}
    laid = {
        x.name: [x.laid_out(text, ranks) for text in points.choices[group_of[x.name]]]
        for x in points.outline.tensors
    }
    known = {} if known is None else known
    found: list[_Priced] = []
    usual = str(options.get("movement", AUTO))
    way_of = {name: number for number, name in enumerate(points.products, len(points.groups))}
    for number, statement in enumerate(points.outline.statements):
        names = dict.fromkeys((*statement.outs, *statement.reads))
        groups = tuple(sorted({group_of[x] for x in names}))
        plain = isinstance(statement, Multiply) and not statement.is_batch
        way = way_of.get(statement.out) if plain else None
        groups += () if way is None else (way,)
        stays, always = _stays(points, statement), paid(points.outline.statements, number)
        adds = number > 0 and joinable(points.outline.statements[number - 1], statement)
        first = fresh(points.outline.statements, number)
        works: dict[Place, StatementWork] = {}
        waits: dict[Place, Mapping[str, Floats]] = {}
        earlier = _earlier_gathers(points.outline.statements, number, found, groups) if plain else {}
        for place in product(*(range(len(points.choices[x])) for x in groups)):
            choice = dict(zip(groups, place, strict=True))
            tensors = {x: laid[x][choice[group_of[x]]] for x in names}
            asked = usual if way is None else points.ways[choice[way]]
            own = {**options, **of_movement(asked)}
            if plain and stays != "best" and isinstance(statement, Multiply):
                own["movement"] = _moved_as(statement, tensors, machine, stays, own["movement"])
            alone = {x for x, of in earlier.items() if not _in_all(place, of)} - always
            for pays in (always, always | alone) if alone else (always,):
                of_others = pays, first, adds
                key = stays, of_others, own["movement"], own.get("prefetch"), _work_key(statement, tensors)
                if key not in known:
                    known[key] = _least(statement, tensors, machine, own, stays, of_others)
                # Slots are taken in turns as deep as a multiply prefetches, which may differ then.
                works[place] = replace(known[key], queued=0.0) if points.ways else known[key]
                if works[place].how is None:  # it gets what it needs, whatever others do
                    break
            waits[place] = _waits(points, number, tensors, machine, options, asked)
        found.append(_Priced(groups, works, waits))
    means = machine.means.get(COLLECTIVE)
    by_kind = (machine.interference["get"], machine.interference["accumulate"])
    loss = by_kind if means is None else (means.interference, means.interference)
    shared = len({machine.device_of(rank, ranks) for rank in range(ranks)}) < ranks
    loss = (0.0, 0.0) if shared else loss
    statements = points.outline.statements
    ways = points.ways or (usual,)
    stay = all(one_sided(machine, ranks, x) for x in ways)  # only sums by collectives change turns
    turns: tuple[set[int], set[int]] = (set(), set()) if stay else may_change_turns(statements)
    tables = []
    lines: list[Mapping[Place, float]] = []
    in_the_mean = [list[Mapping[Place, float]]() for _ in shares_of(loss)]
    for number, (groups, works, waits) in enumerate(found):
        around = Around(
            number + 1 < len(found) and all(x.span.min() > 0 for x in found[number + 1].works.values()),
            _reads_whole(statements, number, found),
            *turns,
        )
        start_s = machine.collective_start_s
        seconds = np.array(
            [_seconds(points, number, works[x], waits[x], around, start_s, loss) for x in works]
        )
        seconds[:, -IN_LINE] += _waited_for(statements, number, found, lines, turns, loss[0])
        lines.append(dict(zip(works, seconds[:, -IN_LINE].tolist(), strict=True)))
        for kind, share in enumerate(shares_of(loss)):
            at = -IN_LINE + MEANS + 2 * kind
            waited = _waited_in_the_mean(statements, number, found, in_the_mean[kind], turns, share)
            takes = [takes_in_the_mean(x, share) for x in works.values()]
            seconds[:, at : at + 2] += np.array(waited)[:, None]
            sums = [(1.0 - share) * x.evenly.get("C", 0.0) for x in works.values()]
            in_all = np.sum((takes, waited, sums), axis=0).tolist()
            in_the_mean[kind].append(dict(zip(works, in_all, strict=True)))
        shape = [len(points.choices[x]) for x in groups]
        tables.append(StatementTable(groups, seconds.reshape(*shape, -1), works, waits))
    if host_count(machine, ranks) > 1:
        cuts = _cut(statements, found, lines, turns, loss[1])
        tables = [
            replace(x, seconds=np.concatenate((of.reshape(*x.seconds.shape[:-1], -1), x.seconds), axis=-1))
            for x, of in zip(tables, cuts, strict=True)
        ]
    beside = [
        np.sum([[beside_a_layer(points.outline, x, state, layers) for x in laid[name]] for name in names], 0)
        for names in points.groups
    ]
    held = [
        np.sum([[x.nbytes_of_rank for x in laid[name]] for name in names], axis=0) + of
        for names, of in zip(points.groups, beside, strict=True)
    ]
    beside += [np.zeros((len(points.ways), ranks))] * len(points.products)
    held += [np.zeros((len(points.ways), ranks))] * len(points.products)
    moves = []
    for name in points.outline.given:
        group = group_of[name]
        table, more = _move(points, group, laid[name], machine, options)
        moves.append(table)
        held[group] = held[group] + more
    width = tables[0].seconds.shape[-1]
    moves = [replace(x, seconds=np.pad(x.seconds, [(0, 0), (width - x.seconds.shape[-1], 0)])) for x in moves]
    if ranks > ALL:
        distinct = _distinct([*tables, *moves])
        tables, moves = distinct[: len(tables)], distinct[len(tables) :]
    return Tables(
        points, tuple(tables), tuple(moves), tuple(held), tuple(beside), machine.collective_start_s, loss,
    )  # fmt: skip


def _earlier_gathers(
    statements: Sequence[Statement], number: int, found: Sequence[_Priced], groups: Sequence[int]
) -> dict[str, list[tuple[list[int], dict[Place, float]]]]:
    """Return for A and B of a multiply that others have read before how many of these gather it at most.

    Args:
        statements: Of the chain.
        number: Of the multiply.
        found: What the statements before it take.
        groups: Of the multiply, by whose choices that is.
    """
    gathers, statement = dict[str, list[tuple[list[int], dict[Place, float]]]](), statements[number]
    assert isinstance(statement, Multiply)
    for name, x in ((statement.a, "A"), (statement.b, "B")) if statement.a != statement.b else ():
        made = _maker(statements, number, name)
        for i in range(0 if made is None else made + 1, number):
            before = statements[i]
            if not isinstance(before, Multiply) or name not in (before.a, before.b):
                continue
            own = {y for of, y in ((before.a, "A"), (before.b, "B")) if of == name}
            by = {
                place: float(work.how is not None and bool(own & set(work.how.collects)))
                for place, work in found[i].works.items()
            }
            gathers.setdefault(x, []).append(_most(found[i].groups, by, groups))
    return gathers


def _got_after(
    statements: Sequence[Statement], number: int, turns: tuple[Collection[int], Collection[int]]
) -> Iterator[tuple[str, int]]:
    """Yield which of A and B of a multiply an earlier statement makes, and the number of that.

    Only where no others may come between.
    """
    statement = statements[number]
    if not isinstance(statement, Multiply):
        return
    for name, x in ((statement.a, "A"), (statement.b, "B")):
        made = _maker(statements, number, name)
        if made is None or name == statement.out:
            continue
        if number not in turns[0] and not any(i in turns[1] for i in range(made, number)):
            yield x, made


def _in_all(place: Place, most: Iterable[tuple[Sequence[int], Mapping[Place, float]]]) -> float:
    """Return the sum of what :func:`_most` found, for the choices of a statement."""
    return sum(by[tuple(place[i] for i in shared)] for shared, by in most)


def _waited_for(
    statements: Sequence[Statement],
    number: int,
    found: Sequence[_Priced],
    lines: Sequence[Mapping[Place, float]],
    turns: tuple[Collection[int], Collection[int]],
    loss: float,
) -> list[float]:
    """Return what a multiply adds to the line of statements because it has to get what one before it makes.

    Until the first rank has made any of it nothing of it moves. From then on a rank does the statements
    between and this one, more slowly while it gets it.

    Args:
        statements: Of the chain.
        number: Of the multiply.
        found: What each statement takes.
        lines: What the statements before it add to that line, by choice of their groups.
        turns: Which statements may come later than they are written, and which before these.
        loss: Most of its rate that a rank's work loses while it gets by collectives.

    Returns:
        Seconds by choice of its groups: between the moment when the first rank can have ended the statement
        before it and that when the first has multiplied all that it got, less its least span.
    """
    groups, works, _ = found[number]
    more = [0.0] * len(works)

    def works_of(i: int, place: Place) -> float:
        return float(found[i].works[place].alone.min())

    for x, made in _got_after(statements, number, turns):
        begins = {place: work.begins for place, work in found[made].works.items()}
        rest = {place: line - begins[place] for place, line in lines[made].items()}
        passed: list[tuple[tuple[int, ...], Mapping[Place, float]]] = [(found[made].groups, rest)]
        passed += [(found[i].groups, lines[i]) for i in range(made + 1, number)]
        most = [_most(of, by, groups) for of, by in passed]
        idle = [
            _most(found[i].groups, {place: by - works_of(i, place) for place, by in lines[i].items()}, groups)
            for i in range(made, number)
        ]
        for at, (place, work) in enumerate(works.items()):
            comes = work.comes.get(x)
            if comes is None or not comes.any():
                continue
            before = _in_all(place, most)
            longest = np.maximum(work.span, np.where(comes > 0, comes - before, 0.0))
            more[at] = max(more[at], float(longest.min() - work.span.min()))
            if x in work.inward:
                slowed = min(loss, work.lost) * float(work.inward[x].max(axis=0).min())
                waits = _in_all(place, idle)
                more[at] = max(more[at], slowed - waits)
    return more


def _waited_in_the_mean(
    statements: Sequence[Statement],
    number: int,
    found: Sequence[_Priced],
    means: Sequence[Mapping[Place, float]],
    turns: tuple[Collection[int], Collection[int]],
    loss: float,
) -> list[float]:
    """Return what a multiply adds to the mean over ranks because it gets what all of them have made.

    Args:
        statements: Of the chain.
        number: Of the multiply.
        found: What each statement takes.
        means: What the statements before it add, but what moves beside work, by choice of their groups.
        turns: Which statements may come later than they are written, and which before these.
        loss: Most of its rate that a rank's work loses to what moves.

    Returns:
        Seconds by choice of its groups: what passes in the mean between when ranks have made their parts and
        when they have what they get, as far as they do not compute meanwhile.
    """
    groups, works, _ = found[number]
    more = [0.0] * len(works)
    for x, made in _got_after(statements, number, turns):
        rest = {
            place: 0.0 if work.single else max(0.0, float(work.span.mean()) - work.begins)
            for place, work in found[made].works.items()
        }
        early = _most(found[made].groups, rest, groups)
        passed = [_most(found[i].groups, means[i], groups) for i in range(made + 1, number)]
        for at, (place, work) in enumerate(works.items()):
            if not work.evenly.get(x):
                continue
            computes = takes_in_the_mean(work, loss)
            if work.how is not None:  # at least the last chunk comes after
                computes -= float(work.alone.mean()) * (work.how.chunks == 1)
            before = _in_all(place, passed)
            comes = work.evenly[x] - _in_all(place, [early])
            more[at] = max(more[at], (1.0 - loss) * comes - before - computes)
    return more


def _cut(
    statements: Sequence[Statement],
    found: Sequence[_Priced],
    lines: Sequence[Mapping[Place, float]],
    turns: tuple[Collection[int], Collection[int]],
    loss: float,
) -> list[Floats]:
    """Return what each statement adds to bounds that follow links, then the line, then links again.

    Until a rank does the last multiply of a run it has got all that it gathers for that and those before,
    which its links carry one after another: the last rank to do it waits no less than they all do in the
    mean. From then on the line goes by the last rank: what it makes is gathered, and summed, no sooner than
    its own links have carried its share. After a statement before a run of multiplies come the sums of all
    later ones and what is gathered of what they make, on the same links.

    Args:
        statements: Of the chain.
        found: What each takes.
        lines: What each adds to the line of statements, by choice of its groups.
        turns: Which statements may come later than they are written, and which before these.
        loss: Share of its rate that a rank's work loses while it adds by collectives.

    Returns:
        For each statement by choice of its groups, and by bound; none where experts or copies are between.
    """
    usual = Multiply | Map | Attention | AttentionGrad
    runs = _runs(statements)
    if not runs or not all(isinstance(x, usual) for x in statements):
        return [np.zeros((len(works), 0)) for _, works, _ in found]
    lasts = [next((x for x in reversed(run) if x not in turns[0]), None) for run in runs]
    firsts = (None, *(x for x in lasts if x is not None))
    read = _behind_maps(statements, runs)
    thens = sorted({run[0] - 1 for run in runs if run[0] > 0} | {x for x, _ in read})
    through = [(maker, x) for maker, x in read if x in turns[0] and isinstance(statements[maker], Map)]
    by_last = _lines_of_the_last(statements, found, turns, loss)
    added = []
    for number, (_, works, _) in enumerate(found):
        statement, of = statements[number], list(works.values())
        makers: dict[str, int | None] = {}
        if isinstance(statement, Multiply):
            makers = {
                x: _maker(statements, number, name) for name, x in ((statement.a, "A"), (statement.b, "B"))
            }
        gets, gets_of, gives, sums, leave = _on_links(of, makers)
        run = next((x for x in runs if number in x), [])
        whole = np.array([_at_once(x) for x in of])
        line, waited = by_last[number]
        early = np.zeros(len(of))  # before its end some of what it makes may be on its way
        if any(x == number for x, _ in read):
            early += [0.0 if x.single else max(0.0, float(x.span.max()) - x.begins) for x in of]
        rows: list[Floats] = []
        for first in firsts:
            # The level of links before the line, and that behind it.
            before = np.zeros((2, 1, len(of)))
            if first is None:
                before += np.array(list(lines[number].values()))
            elif number < first:
                before += (gets * (number not in turns[0] or first not in run))[:, None]
            else:
                sure = number > first and all(x is None or x >= first for x in makers.values())
                before += line + waited * sure
                before += (gets * (whole if number == first else 0.0))[:, None]
            for then in (*thens, len(statements)):
                if (then == len(statements)) if first is None else (then < first):
                    continue
                part = np.repeat(before, 2, axis=1) - early * (number == then)
                if number > then and first is None:
                    part[:] = sums + sum((gets_of[x] for x in gets_of if _after(makers[x], then)), 0.0)
                elif number > then:
                    part[:] = leave + sum((gives[x] for x in gives if _after(makers[x], then)), 0.0)
                levels = part[:1] if first is None else part[:, :1] if then == len(statements) else part
                rows += [*levels.reshape(-1, len(of))]
            for maker, last in through:
                end = next(x[-1] for x in runs if last in x)
                if first is None or maker < first:
                    continue
                part = before[:, 0] - early * (number == maker)
                if number == last:
                    part[:] = [float(x.span.min()) + _passed(statements[maker], statement, x) for x in of]
                elif maker < number <= end:
                    part[:] = 0.0
                elif number > end:
                    part[:] = line + waited
                rows += [*part]
        added.append(np.array(rows).T)
    return added


def _behind_maps(statements: Sequence[Statement], runs: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return what is made between two runs of multiplies, and the multiplies of the second that read it."""
    found = []
    for run in runs:
        for number in run:
            for name in dict.fromkeys(statements[number].reads):
                maker = _maker(statements, number, name)
                if maker is None or maker in run or any(maker < x < run[0] for of in runs for x in of):
                    continue
                found.append((maker, number))
    return list(dict.fromkeys(found))


def _at_once(work: StatementWork) -> bool:
    """Whether each rank does a multiply by collectives in one GEMM, for which all has to be there."""
    return work.single and work.how is not None and not work.how.blocks.split


def _after(maker: int | None, number: int) -> bool:
    """Whether what a statement makes is there only after that of some number."""
    return maker is not None and maker >= number


def _runs(statements: Sequence[Statement]) -> list[list[int]]:
    """Return the numbers of multiplies that follow each other."""
    found: list[list[int]] = []
    for number, statement in enumerate(statements):
        if not isinstance(statement, Multiply):
            continue
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found


def _on_links(
    works: Sequence[StatementWork], operands: Collection[str]
) -> tuple[Floats, dict[str, Floats], dict[str, Floats], Floats, Floats]:
    """Return seconds of links in a node and between nodes, shape (2, works).

    Returns:
        What a rank gets in the mean, by A and B too; by these what any rank gives of its own at least; what
        it gets of sums in the mean; and what it adds, and gives of its own sums, at least.
    """
    nothing = np.zeros(2)
    by = {
        x: np.array([w.inward[x][:2].mean(axis=1) if x in w.paid else nothing for w in works]).T
        for x in operands
    }
    gives = {
        x: np.array([w.passes[x][:2] if x in w.paid and x in w.passes else nothing for w in works]).T
        for x in operands
    }
    sums = np.array([w.inward["C"][:2].mean(axis=1) if "C" in w.paid else nothing for w in works]).T
    adds = np.array([nothing if w.adds is None else w.adds[:2].min(axis=1) + w.repeats for w in works]).T
    gives = {x: of * ROUNDING for x, of in gives.items()}
    return sum(by.values(), np.zeros((2, len(works)))), by, gives, sums, adds


def _lines_of_the_last(
    statements: Sequence[Statement],
    found: Sequence[_Priced],
    turns: tuple[Collection[int], Collection[int]],
    loss: float,
) -> list[tuple[Floats, Floats]]:
    """Return what each statement adds to a line by the last rank, and what of it is a wait for a gather.

    What a rank multiplies after it has made a product loses a share of its rate, the loss, while the rank
    adds that product to what others own; or it adds it later, and the sum is there later.
    """
    made: list[tuple[Floats, Floats]] = []
    lines: list[tuple[Sequence[int], Mapping[Place, float]]] = []
    for number, (groups, works, _) in enumerate(found):
        of = list(works.values())
        line = np.array([float(x.span.min()) for x in of])
        whole = number not in turns[1] and _reads_whole(statements, number, found)
        if whole and _everywhere(found[number + 1]):
            line += [settles(x) for x in of]
        waited = np.zeros(len(of))
        for maker, others, readers in _readers_of(statements, number, turns):
            rest = [_most(*lines[i], groups) for i in range(maker + 1, readers[0])]
            rest += [_most(found[i].groups, _longest(found[i]), groups) for i in others]
            parts = {place: float(not x.single) for place, x in found[maker].works.items()}
            in_parts = _most(found[maker].groups, parts, groups)
            least = [
                _most(
                    found[i].groups,
                    {at: -_passed(statements[maker], statements[i], x) for at, x in by},
                    groups,
                )
                for i, by in ((i, found[i].works.items()) for i in readers)
            ]
            for at, place in enumerate(works):
                if not _in_all(place, [in_parts]):
                    comes = min(-_in_all(place, [x]) for x in least)
                    waited[at] = max(waited[at], comes - _in_all(place, rest))
        made.append((line, waited))
        lines.append((groups, dict(zip(works, (line + waited).tolist(), strict=True))))
    for number, behind in _summed_in_runs(statements, found, turns):
        groups, works, _ = found[number]
        between = [_most(*lines[i], groups) for i in behind]
        least, waits = [], []
        for i in behind:
            alone = {at: float(x.alone.min()) for at, x in found[i].works.items()}
            least.append(_most(found[i].groups, {at: -x for at, x in alone.items()}, groups))
            more_than = {at: lines[i][1][at] - x for at, x in alone.items()}
            waits.append(_most(found[i].groups, more_than, groups))
        more = []
        for place, x in works.items():
            adds = min(settles(x), -_in_all(place, least) / (1.0 - loss))
            slowed = loss * adds - _in_all(place, waits)
            more.append(max(0.0, settles(x) - _in_all(place, between), slowed))
        made[number] = made[number][0] + more, made[number][1]
    return made


def _readers_of(
    statements: Sequence[Statement], number: int, turns: tuple[Collection[int], Collection[int]]
) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield maps whose result a multiply reads and no earlier run of multiplies does.

    Whichever multiply of its run is done first that reads it has to gather it.

    Returns:
        The number of the map; other multiplies of the run, which may come before; and those that read it.
    """
    run = next((x for x in _runs(statements) if number in x), [])
    if not run or number in turns[0]:
        return
    for name in dict.fromkeys(statements[number].reads):
        maker = _maker(statements, number, name)
        if maker is None or maker in run or not isinstance(statements[maker], Map):
            continue
        between = statements[maker + 1 : run[0]]
        readers = [x for x in run if name in statements[x].reads]
        if (
            any(isinstance(x, Multiply) for x in between)
            or next(x for x in readers if x not in turns[0]) != number
        ):
            continue
        in_order = not any(x in turns[0] for x in run)
        yield maker, [x for x in run if x not in readers], [number] if in_order else readers


def _passed(made: Statement, multiply: Statement, work: StatementWork) -> float:
    """Return the least seconds until a multiply has gathered what the last rank has just made."""
    assert isinstance(multiply, Multiply)
    own = [x for name, x in ((multiply.a, "A"), (multiply.b, "B")) if name in made.outs]
    if not _at_once(work):
        return 0.0
    return max((work.passes[x][2] for x in own if x in work.passes), default=0.0) * ROUNDING


def _longest(priced: _Priced) -> dict[Place, float]:
    """Return the most seconds of a rank's work in a statement, by choice of its groups."""
    return {place: float(x.span.max()) for place, x in priced.works.items()}


def _everywhere(priced: _Priced) -> bool:
    """Whether all ranks compute in a statement, in every layout."""
    return all(x.span.min() > 0 for x in priced.works.values())


def _summed_in_runs(
    statements: Sequence[Statement],
    found: Sequence[_Priced],
    turns: tuple[Collection[int], Collection[int]],
) -> Iterator[tuple[int, list[int]]]:
    """Yield multiplies whose sums the statement after their run reads whole, and what may come between."""
    for run in _runs(statements):
        after = run[-1] + 1
        if after == len(statements) or not isinstance(statements[after], Map):
            continue
        for name in statements[after].reads:
            maker = _maker(statements, after, name)
            if maker is None or maker not in run or maker in turns[0] or maker not in turns[1]:
                continue
            whole = _reads_whole(statements, after - 1, found, name)
            if whole and _everywhere(found[after]):
                yield maker, [x for x in run if x > maker or (x in turns[0] and x != maker)]


def _reads_whole(
    statements: Sequence[Statement], number: int, found: Sequence[_Priced], name: str | None = None
) -> bool:
    """Whether the statement after one reads all that each rank owns of what that makes, in every layout.

    Args:
        statements: Of the chain.
        number: Of the one.
        found: What each takes.
        name: Of another tensor that the next one reads.
    """
    if number + 1 == len(found) or not isinstance(statements[number + 1], Map):
        return False
    reads, name = statements[number + 1].reads, name or statements[number].out
    at = [i for i, x in enumerate(reads) if x == name]
    return bool(at) and all(x.aligned[at[0]] for x in found[number + 1].works.values())


def _most(
    groups: Sequence[int], by: Mapping[Place, float], others: Sequence[int]
) -> tuple[list[int], dict[Place, float]]:
    """Return the most of some seconds by the choices that two statements share, and where these are.

    Args:
        groups: Of the one, whose choices the seconds are by.
        by: The seconds.
        others: Groups of the other statement.
    """
    shared, found = [x for x in groups if x in others], dict[Place, float]()
    for place, seconds in by.items():
        key = tuple(place[groups.index(x)] for x in shared)
        found[key] = max(found.get(key, seconds), seconds)
    return [others.index(x) for x in shared], found


def _distinct(tables: Sequence[StatementTable]) -> list[StatementTable]:
    """Return tables without the resources that are busy as long as another one in every assignment.

    Ranks of many nodes are alike, so hundreds of thousands of resources are a few kinds.
    """
    columns = np.concatenate([x.seconds.reshape(-1, x.seconds.shape[-1]) for x in tables]).T
    first: dict[bytes, int] = {}
    for number, column in enumerate(columns[:-IN_LINE]):
        first.setdefault(column.tobytes(), number)
    kept = [*first.values(), *range(len(columns) - IN_LINE, len(columns))]
    return [replace(x, seconds=x.seconds[..., kept]) for x in tables]


def _move(
    points: Assignments, group: int, laid: Sequence[Tensor], machine: Machine, options: Mapping[str, Any]
) -> tuple[StatementTable, Floats]:
    """Return what it takes to bring a tensor from where it is given, and the bytes that it has there."""
    ranks, name = points.ranks, laid[0].name
    works: dict[Place, StatementWork] = {}
    held = np.zeros((len(laid), ranks))
    for choice, wanted in enumerate(laid):
        there = points.outline.given_elsewhere({name: wanted}).get(name)
        here = replace(wanted, name=f"{name}.here")
        tensors = {name: wanted if there is None else there, here.name: here}
        work = statement_work(Copy(here.name, name), tensors, machine, options)
        if there is None:
            work = replace(work, seconds=np.zeros_like(work.seconds), actions=0)
        else:
            held[choice] = there.nbytes_of_rank
        works[choice,] = replace(work, span=np.zeros(ranks))
    seconds = np.array(
        [
            np.concatenate((x.seconds, x.span, *[x.span] * (SENT + 1), np.zeros(IN_LINE)))
            for x in works.values()
        ]
    )
    return StatementTable((group,), seconds, works, {x: {} for x in works}), held


def _moved_as(
    statement: Multiply, tensors: Mapping[str, Tensor], machine: Machine, stays: str, movement: str
) -> str:
    """Return how a multiply moves what it needs and makes: one-sided where collectives do not fit."""
    if movement not in (GATHERED, CHUNKS):
        return movement
    return movement if chosen(as_problem(statement, tensors), machine, stays, movement).how else FLAT


def _stays(points: Assignments, statement: Statement) -> str:
    """Return which matrix a statement keeps in place, or ``best``, where it alone writes its product."""
    writers = [x for x in points.outline.statements if x.out == statement.out and isinstance(x, Multiply)]
    free = isinstance(statement, Multiply) and not statement.is_batch and len(writers) == 1
    return "auto" if points.stationary == "best" and not free else points.stationary


def _least(
    statement: Statement,
    tensors: Mapping[str, Tensor],
    machine: Machine,
    options: Mapping[str, Any],
    stationary: str,
    of_others: tuple[Collection[str], Collection[str], bool],
) -> StatementWork:
    """Return the work of a statement; with ``best`` the least of those with each matrix in place."""
    if stationary != "best":
        return statement_work(statement, tensors, machine, options, stationary, *of_others)
    works = [statement_work(statement, tensors, machine, options, x, *of_others) for x in ("auto", *MATRICES)]
    return min(works, key=lambda work: float(np.append(work.seconds, work.span + work.summed).max()))


def _seconds(
    points: Assignments,
    number: int,
    work: StatementWork,
    waits: Mapping[str, Floats],
    around: Around,
    start_s: float,
    loss: tuple[float, float],
) -> Floats:
    """Return the seconds of a statement by resource; of the last ones many are ranks in their order.

    A rank's spans of statements do not overlap. Where one reads a replicated result of the one before,
    a rank waits for its sums between the two; and all is over when the last statement's are.
    """
    statements = points.outline.statements
    # Where the one before has several movements, it may be summed by collectives.
    before = waits.get(statements[number - 1].out, 0.0) if number and not points.ways else 0.0
    order = work.span + np.where(work.span > 0, before, 0.0)
    order += work.summed if number + 1 == len(statements) else 0.0
    sent, fetched = _sent(statements, number, work, around), _fetched(statements, number, work, around)
    return np.concatenate(
        (work.seconds, order, *sent, fetched, in_line(statements, number, work, around, start_s, loss))
    )


def _firsts(statements: Sequence[Statement]) -> tuple[int, ...]:
    """Return the multiplies from which on the bounds of :func:`_sent` count what leaves each rank.

    The first is that before the first gradient, of a layer; the last that of the last few multiplies. Between
    come the first two whose products no statement reads: gradients by weights, whose sums may be long.
    """
    multiplies = [i for i, x in enumerate(statements) if isinstance(x, Multiply)]
    last = multiplies[-1]
    while last - 1 in multiplies:
        last -= 1
    read = {name for x in statements for name in x.reads}
    unread = [i for i in multiplies if statements[i].out not in read]
    ends = [i for i in unread if i > multiplies[len(multiplies) // 3]][:2]
    return (multiplies[len(multiplies) // 3], *ends, *[last] * (2 - len(ends)), last)


def _sent(
    statements: Sequence[Statement], number: int, work: StatementWork, around: Around
) -> tuple[Floats, ...]:
    """Return what a statement adds to four bounds by what leaves each rank, sums over statements.

    The link out of a rank carries products, and what the rank makes of them, after all that it computes
    before the first of these, see :func:`_firsts`.
    Until then what it sends of others slows it down, or is left to be carried later.
    """
    if not any(isinstance(x, Multiply) for x in statements):
        return (np.zeros_like(work.span),) * SENT
    *firsts, last = _firsts(statements)
    found = []
    for first, before in (*((x, work.span) for x in firsts), (last, work.sends)):
        sent = np.zeros_like(work.span)
        if number not in around.later and number < first:
            sent = sent + before
        if number not in around.later and number == first and work.summed:
            sent = sent + (work.alone if before is work.sends else work.span)
        if number >= first:
            sent = sent + work.leaves
        for name, x in (("a", "A"), ("b", "B")) if work.handed else ():
            made = _maker(statements, number, getattr(statements[number], name))
            if made is not None and made > first and isinstance(statements[made], Map):
                sent = sent + work.handed[x]  # its owner makes it, so after the first product
        found.append(sent)
    return tuple(found)


def _fetched(statements: Sequence[Statement], number: int, work: StatementWork, around: Around) -> Floats:
    """Return what a statement adds to a bound by what each rank gets of keys and values, also a sum.

    None of these is complete before each rank has done all before them; then they arrive, the rank attends to
    the last of them, and does what follows.
    """
    found = np.zeros_like(work.span)
    at = next((i for i, x in enumerate(statements) if isinstance(x, Attention)), None)
    attention = None if at is None else statements[at]
    if at is None or not isinstance(attention, Attention):
        return found
    made = [x for name in (attention.k, attention.v) if (x := _maker(statements, at, name)) is not None]
    if len(made) < 2 or number in around.later:
        return found
    if number > at:
        return work.span
    if number == at:
        reads = zip(attention.reads, work.moved, strict=False)
        others = any(size for name, size in reads if name not in (attention.k, attention.v))
        if work.arrives is None or others:
            return work.span
        return np.where(work.arrives > 0, np.maximum(work.span, work.arrives + work.unpacks), work.span)
    if number < min(made) or (number == min(made) and work.single):
        found += work.span.min()
    return found


def _maker(statements: Sequence[Statement], number: int, name: str) -> int | None:
    """Return the last statement before one that writes a tensor; None where it is given."""
    return next((i for i in reversed(range(number)) if name in statements[i].outs), None)


def _waits(
    points: Assignments,
    number: int,
    tensors: Mapping[str, Tensor],
    machine: Machine,
    options: Mapping[str, Any],
    movement: str,
) -> Mapping[str, Floats]:
    """Return for each tensor that a statement reads and that was summed over replicas what ranks wait.

    What was written last counts. A map of tiles in its own layout reads them whole; so is what is written
    to a replica but the first that is to be added to.
    """
    statement, found = points.outline.statements[number], dict[str, Floats]()
    if not one_sided(machine, points.ranks, movement):
        return found  # collectives begin when what they need is there, and no barrier is between
    for name in dict.fromkeys(statement.reads):
        last = next((x for x in reversed(points.outline.statements[:number]) if x.out == name), None)
        if not isinstance(last, Multiply) or last.is_batch:
            continue
        if last is points.outline.statements[number - 1] and joinable(last, statement):
            continue  # both products may be summed together
        layout = tensors[name].layout
        sums = how_summed_as(layout, tensors[name].dtype, machine, Options(**completing(options)))
        if sums is None:
            continue
        out = tensors[statement.out].layout
        if (
            isinstance(statement, Map)
            and (out.shape, out.cuts) == (layout.shape, layout.cuts)
            and out == layout
        ):
            whole = np.ones(layout.ranks, dtype=bool)
        elif isinstance(statement, Multiply) and statement.out == name:
            whole = layout.replica_of_rank > 0
        else:
            whole = np.zeros(layout.ranks, dtype=bool)
        found[name] = np.where(whole, sums.whole, sums.ready)
    return found


def _work_key(statement: Statement, tensors: Mapping[str, Tensor]) -> object:
    """Return what the work of a statement depends on, whatever its tensors are called."""
    if isinstance(statement, Multiply) and not statement.is_batch:
        return as_problem(statement, tensors)
    number = {name: i for i, name in enumerate(tensors)}
    said = statement_to_dict(statement)
    named = [number[name] for name in (*statement.outs, *statement.reads)]
    if isinstance(statement, Map):
        named += [-1, *(number[name] for name in statement.fused)]  # costs less than one that is not
    names = (*statement.READS, *statement.WRITES)
    rest = {key: value for key, value in said.items() if key not in names}
    return (str(rest), str(named), *((x.shape, x.dtype, str(x.layout)) for x in tensors.values()))
