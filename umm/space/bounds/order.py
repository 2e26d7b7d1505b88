"""A bound of an assignment by the order of its statements: what waits for what, and when links can begin.

A rank's compute lane takes statements in their order, and each starts when what it reads is there. So the
longest path through lanes and tensors is a bound; and so is what a rank's links have to carry, from the first
moment any of it can flow to what must still follow the last (the one-machine bound of scheduling theory).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from umm.arrays import Floats
from umm.plans.join import summed_with_next
from umm.plans.share import gathers_anew
from umm.plans.sink import in_turns
from umm.program import Attention, Combine, Dispatch, Grouped, Map, Multiply, Statement
from umm.schedules.bound import ROUNDING
from umm.space.bounds.statement_work import StatementWork


class There(NamedTuple):
    """When a tensor is there at the earliest.

    Attributes:
        part: Seconds before which none of it is complete anywhere.
        whole: Seconds before which what each rank owns of it is not complete there.
        last: Seconds before which not all tiles that each rank owns of it are.
    """

    part: float = 0.0
    whole: Any = 0.0
    last: Any = 0.0


class Job(NamedTuple):
    """What one statement lets arrive at ranks.

    Attributes:
        statement: Number of the first statement that has to wait for all of it.
        release: Seconds before which it cannot begin.
        inward: Seconds that each rank's links and lanes are busy with it, shape (4, ranks).
        needed: Whether there is such a statement.
        hop: Seconds of a round inside nodes that what comes from others has after it, if it is needed, or
            before it.
    """

    statement: int
    release: float
    inward: Floats
    needed: bool
    hop: float


class Flow(NamedTuple):
    """What a one-sided multiply moves.

    Attributes:
        statement: Its number.
        name: What of it, see :data:`umm.space.bounds.statement_work.FLOWS`.
        release: Seconds before which each rank's link into it carries none of it, and that out of it.
        seconds: That they are busy with it, shape (2, ranks).
        follows: Number of the first statement that has to wait for all of it.
    """

    statement: int
    name: str
    release: Any
    seconds: Floats
    follows: int


def in_order(
    statements: Sequence[Statement],
    works: Sequence[StatementWork],
    waits: Sequence[Mapping[str, Floats]],
    ranks: int,
    start_s: float,
    loss: tuple[float, float] = (0.0, 0.0),
) -> float:
    """Return a lower bound of the makespan of a chain in some layouts.

    Where a result is replicated, its sums begin when the last gemm of any rank has ended, and what reads it
    begins after some of them. What collectives gather starts to arrive when some of it is there, and their
    sums when a product is. Statements are in the order of ``in_turns``.

    Args:
        statements: Of the chain.
        works: What each takes.
        waits: What each waits for after one-sided sums, see ``StatementTable``.
        ranks: How many.
        start_s: Seconds before a collective's first transfer.
        loss: Share of its rate that a rank's work loses while it gets, and while it adds.
    """
    adds = {number: work.how.sums.adds for number, work in enumerate(works) if work.how is not None}
    order = in_turns(statements, adds)
    statements = [statements[number] for number in order]
    works, waits = [works[number] for number in order], [waits[number] for number in order]
    there: dict[str, There] = {}
    before: dict[str, Any] = {}  # what each rank computes until it has made a tensor
    done: dict[str, float] = {}  # when the first rank has multiplied all its rows of a tensor
    ended: dict[str, float] = {}  # the last gemm before the sums of a tensor
    plans = {i: work.how for i, work in enumerate(works) if work.how is not None}
    anew = gathers_anew(statements, plans)
    jobs: list[Job] = []
    carried_by = _Carried(ranks)
    flows: list[Flow] = []
    finish: Any = np.zeros(ranks)
    head = np.full(ranks, np.nan)  # before which a rank computes nothing
    computed: Any = np.zeros(ranks)
    free = np.zeros(ranks)
    queued = np.zeros((2, ranks))  # before which a rank gets nothing for a one-sided multiply
    end = 0.0
    for number, (statement, work) in enumerate(zip(statements, works, strict=True)):
        start, until = np.zeros(ranks), np.zeros(ranks)
        # The gates of rows may be there after what is first done with the rows, or long before.
        reads = statement.reads[:1] if isinstance(statement, Dispatch | Combine) else statement.reads
        for name, wait in waits[number].items():
            start = np.maximum(start, ended[name] + wait if name in ended and name in reads else 0.0)
        for name in reads:
            if name != statement.out:  # what is added to need not be there when a product is made
                start = np.maximum(start, there.get(name, There()).part)
        if isinstance(statement, Multiply):
            for name, x in ((statement.a, "A"), (statement.b, "B")):
                found = there.get(name, There())
                if x in anew.get(number, ()):
                    # Of what comes in chunks only the last has to be there before the last is multiplied.
                    begin, hop = found.part + start_s * ROUNDING, work.hops.get(x, 0.0)
                    jobs.append(Job(number + (not work.single), begin, work.inward[x], True, hop))
                    gathers = work.gathers(x, start_s)
                    if work.single:
                        start = np.maximum(start, found.part + gathers)
                    # Meanwhile it computes what comes after that tensor, more slowly.
                    lost = min(loss[0], work.lost) * work.inward[x].max(axis=0)
                    since = computed - before.get(name, 0.0) + work.alone
                    comes = np.maximum(np.maximum(gathers, work.comes.get(x, 0.0)), since + lost)
                    until = np.maximum(until, np.where(gathers > 0, found.part + comes, 0.0))
                elif x in work.comes and work.how is None:
                    until = np.maximum(until, np.where(work.comes[x] > 0, found.part + work.comes[x], 0.0))
                elif x in work.in_whole:
                    start = np.maximum(start, np.where(work.in_whole[x], found.whole, 0.0))
            free = np.where(work.both, queued[1], queued[0])
            until = np.maximum(until, np.where(np.greater(work.gets, 0.0), free + work.gets, 0.0))
        elif isinstance(statement, Grouped) and work.aligned[0]:
            start = np.maximum(start, there.get(statement.a, There()).whole)
        elif isinstance(statement, Map):
            for name, aligned in zip(statement.reads, work.aligned, strict=True):
                found = there.get(name, There())
                start = np.maximum(start, found.whole if aligned else found.part)
                if aligned:
                    until = np.maximum(until, found.last)
                    start = np.maximum(start, found.last) if work.single else start
        computes = work.span > 0
        if isinstance(statement, Dispatch | Combine):
            # What each rank multiplies into one tile is sent when all of it is there.
            if isinstance(statement, Combine) and statement.x in done and statement.parts <= 1:
                start = np.maximum(start, done[statement.x])
            arrived = start + (0.0 if work.arrives is None else work.arrives + work.unpacks)
            there[statement.out] = There(float(arrived.min()), arrived) if work.single else There(start.min())
            end = max(end, float(arrived.max()))
            continue
        start = np.where(computes, np.maximum(start, carried_by.before(jobs, number)), start)
        head = np.where(np.isnan(head) & computes, start, head)
        usual: Any = np.where(computes, np.maximum(finish, start) + work.span, finish)
        finish = np.where(computes, np.maximum(usual, until), finish)
        computed = computed + work.alone
        if isinstance(statement, Multiply):
            behind = usual - work.span + work.queued
            queued = np.where(np.greater(work.queued, 0.0), np.maximum(queued, behind), queued)
        if isinstance(statement, Grouped) and work.aligned[1] and computes.any():
            done[statement.out] = float(finish[computes].min())
        last = float(finish[computes].max(initial=start.min()))
        ended.pop(statement.out, None)
        if work.summed:
            ended[statement.out] = last
        begun = finish if work.single else usual - work.span + np.minimum(work.begins, work.span)
        if isinstance(statement, Attention) and work.arrives is not None:
            # What moves begins to arrive when some of it is there; the last of it is attended to after that.
            moved = (name for name, size in zip(statement.reads, work.moved, strict=False) if size)
            begin = min((there.get(name, There()).part for name in moved), default=0.0)
            finish = np.where(
                work.arrives > 0, np.maximum(finish, begin + work.arrives + work.unpacks), finish
            )
        first = float(begun[computes].min()) if computes.any() else float(start.min())
        end = max(end, last + work.summed, first + work.settled)
        if "C" in work.inward and not summed_with_next(statements, plans, number):
            begin = first + start_s * ROUNDING
            jobs.append(Job(number, begin, work.inward["C"], False, work.hops.get("C", 0.0)))
        now = There(first, first)
        if work.flows:
            begin = usual - work.span
            more = _flows_of(statements, works, number, there, (begin, free, first, last))
            now = There(first, first, _landed(flows, more, statements, number))
            flows += more
            end = max(end, float(np.max(now.last)))
        if work.arriving is not None:
            now = There(first + work.part, first + work.arriving)
        elif work.behind is not None and computes.any():
            now = There(first, np.maximum(first, float(finish[computes].min()) + work.behind))
        there |= dict.fromkeys(statement.outs, now)
        before |= dict.fromkeys(statement.outs, computed)
    carried = max(_links(jobs, works, ranks), _carried_by_links(flows, statements, works, ranks))
    return max(end, carried, _slowed(works, anew, np.nan_to_num(head), loss))


def _flows_of(
    statements: Sequence[Statement],
    works: Sequence[StatementWork],
    number: int,
    there: Mapping[str, There],
    when: tuple[Floats, Floats, float, float],
) -> list[Flow]:
    """Return what a one-sided multiply moves.

    Args:
        statements: Of the chain, in order.
        works: What each takes.
        number: Of the multiply.
        there: When tensors are there.
        when: Seconds before which each rank begins it, and gets anything for it, the first rank has
            multiplied anything, and the last rank has multiplied all.
    """
    statement, work, (begin, free, first, last) = statements[number], works[number], when
    assert isinstance(statement, Multiply)
    after, anywhere = begin + work.begins, float(begin.min()) + work.begins
    parts = {x: there.get(name, There()).part for x, name in (("A", statement.a), ("B", statement.b))}
    released: dict[str, Any] = {
        **{x: np.array([np.maximum(free, part), np.full_like(free, part)]) for x, part in parts.items()},
        "late": np.array([after, np.full_like(after, anywhere)]),
        "adds": np.array([np.full_like(after, first), np.maximum(first, after)]),
        "sums": last,
    }
    reader = _reader(statements, works, number)
    return [
        Flow(number, x, np.zeros_like(of) + released[x], of, reader if x in ("adds", "sums") else number + 1)
        for x, of in work.flows.items()
    ]


def _reader(statements: Sequence[Statement], works: Sequence[StatementWork], number: int) -> int:
    """Return the first statement that a rank begins when all it owns of a product is there, or their number.

    That is a map that reads all of it at once, or what comes after one that does so in parts.
    """
    name = statements[number].out
    for i in range(number + 1, len(statements)):
        statement = statements[i]
        if isinstance(statement, Map) and name in statement.reads:
            whole = works[i].aligned[statement.reads.index(name)]
            return i + (not works[i].single) if whole else len(statements)
        adds = isinstance(statement, Multiply) and statement.out == name and statement.beta == 1.0
        if not adds and name in (*statement.reads, *statement.outs):
            break
    return len(statements)


def _landed(flows: Sequence[Flow], more: Sequence[Flow], statements: Sequence[Statement], number: int) -> Any:
    """Return when all that ranks add to each rank's tiles of a product is there at the earliest.

    Args:
        flows: Of the statements before.
        more: Of the multiply.
        statements: Of the chain, in order.
        number: Of the multiply.
    """
    name = statements[number].out
    found: Any = 0.0
    load: Any = 0.0
    own = [x for x in (*flows, *more) if x.name == "adds" and statements[x.statement].out == name]
    for x in reversed(own):
        load = load + x.seconds[0]
        found = np.maximum(found, np.where(x.seconds[0] > 0, x.release[0] + load, 0.0))
    return found


def _carried_by_links(
    flows: Sequence[Flow], statements: Sequence[Statement], works: Sequence[StatementWork], ranks: int
) -> float:
    """Return how long the link into a rank, or that out of it, needs for what one-sided multiplies move.

    For what can flow at some time or later: that time, all their seconds, and the least that follows any.
    Before a multiply a rank has done all its work, more slowly while it sends; or what it sends of that is
    still to be carried, by the same link.

    Args:
        flows: What moves.
        statements: Of the chain, in order.
        works: What each takes.
        ranks: How many.
    """
    if not flows:
        return 0.0
    takes, sends = (np.array([getattr(x, name) for x in works]) for name in ("span", "sends"))
    follows = np.concatenate((np.cumsum(takes[::-1], axis=0)[::-1], np.zeros((1, ranks))))
    done = np.concatenate((np.zeros((1, ranks)), np.cumsum(sends, axis=0)))
    release, seconds = np.array([x.release for x in flows]), np.array([x.seconds for x in flows])
    tail = np.array([(follows[x.follows], np.full(ranks, follows[x.follows].min())) for x in flows])
    tail = np.where(seconds > 0, tail, np.inf)
    order = np.argsort(-release, axis=0, kind="stable")
    late, load, least = (np.take_along_axis(x, order, axis=0) for x in (release, seconds, tail))
    load, least = np.cumsum(load, axis=0), np.minimum.accumulate(least, axis=0)
    found = float(np.where(np.isfinite(least), late + load + least, 0.0).max())
    left, least = np.zeros(ranks), np.full(ranks, np.inf)
    for number in sorted({x.statement for x in flows}, reverse=True):
        own = [i for i, x in enumerate(flows) if x.statement == number and x.name in ("adds", "sums")]
        left = left + seconds[own, 1].sum(axis=0)
        least = np.minimum(least, tail[own, 1].min(axis=0, initial=np.inf))
        begins = done[number] + np.minimum(works[number].begins, works[number].span)
        found = max(found, float(np.where(np.isfinite(least), begins + left + least, 0.0).max()))
    return found


IN_LINE, MEANS = 22, 16
"""Sums over statements that :func:`in_line` has a part of, and where those of means over ranks begin."""


class Around(NamedTuple):
    """What is sure of a statement's neighbours, in whatever layouts.

    Attributes:
        everywhere: Whether all ranks compute in the next one.
        whole: Whether that reads all that each rank owns of what this one makes.
        later: The statements of the chain that may come later than they are written.
        earlier: Those that may come before these.
    """

    everywhere: bool
    whole: bool
    later: Collection[int] = ()
    earlier: Collection[int] = ()


def in_line(
    statements: Sequence[Statement],
    number: int,
    work: StatementWork,
    around: Around,
    start_s: float,
    loss: tuple[float, float] = (0.0, 0.0),
) -> Floats:
    """Return what a statement adds to bounds that are sums over statements, shape (22,).

    The first is the line of statements one after another: what a statement takes on every rank, what of its
    sum the next one has to wait for, and what the first one gathers. Six are loads of
    links, in a node and between: the sums of all multiplies from one on, after what comes before that; and
    what all gather, before the last. A mean over ranks is no more than the most of one. Eight are those of
    :func:`_slowed`: work, what moves beside it and slows it down, and the last sum after it. The last is what
    a mixture's rows take: until their tokens are there, to experts, through their multiplies, and back.

    Args:
        statements: Of the chain.
        number: Of the statement.
        work: What it takes.
        around: What is sure of those beside it.
        start_s: Seconds before a collective's first transfer.
        loss: Share of its rate that a rank's work loses while it gets, and while it adds.
    """
    statement, found, takes = statements[number], np.zeros(IN_LINE), float(work.span.min())
    later, earlier = around.later, around.earlier
    found[0] = takes
    found[MEANS:] = _in_the_mean(statements, number, work, around, loss)
    if isinstance(statement, Multiply) and work.single and takes and number == 0 and number not in later:
        # A and B may come beside each other.
        found[0] += max((float(work.gathers(x, start_s).min()) for x in work.paid - {"C"}), default=0.0)
    if number in earlier:
        pass  # others may go on beside its sum, and even end after it
    elif number + 1 == len(statements):
        found[0] += work.settled
    elif around.everywhere and number + 1 not in later and _waits_for(statements[number + 1], statement.out):
        arrives = work.part if work.arriving is None else float(work.arriving.min())
        found[0] += arrives if around.whole else work.part
        if around.whole:
            found[0] += 0.0 if work.behind is None else float(work.behind.min())
            found[MEANS:] += (1.0 - np.repeat(shares_of(loss), 2)) * work.evenly.get("C", 0.0)
    there, back = _way_of_rows(statements)
    if number in (there, back) and work.arrives is not None and work.single:
        found[15] = float((work.arrives + work.unpacks).min())
    elif _on_the_way(statements, number, there, back, work) and number not in later:
        found[15] = takes
    multiplies = [i for i, x in enumerate(statements) if isinstance(x, Multiply)]
    if not multiplies:
        return found
    for place, first in ((1, multiplies[0]), (3, multiplies[len(multiplies) // 3])):
        if number not in later and (number < first or (number == first and work.single)):
            found[place : place + 2] += takes
        if number >= first and "C" in work.paid:
            found[place : place + 2] += work.inward["C"][:2].mean(axis=1)
    final = multiplies[-1]
    moves = final in earlier  # then others may end later
    if number > final or (number == final and not moves):
        found[5:7] += takes
    if number < final or work.single or moves:
        for x in work.paid - {"C"}:
            found[5:7] += work.inward[x][:2].mean(axis=1)
    if number <= final:
        # While a rank waits inside a statement, what moves takes nothing off its rate.
        for place, share in ((7, loss[0]), (11, loss[1])):
            found[place : place + 4] += float((work.span - share * (work.span - work.alone)).min())
        for x in work.paid - {"C"}:
            found[7:11] += min(loss[0], work.lost) * work.inward[x].min(axis=1)
        if "C" in work.paid and work.copies is not None and work.adds is not None:
            last = number == final and not moves
            gets = work.inward["C"] if last else work.copies
            found[7:11] += loss[0] * gets.min(axis=1)
            found[11:15] += loss[1] * work.adds.min(axis=1)
            found[7:15] += last * (1.0 - np.repeat(loss, 4)) * work.settled
    return found


def settles(work: StatementWork) -> float:
    """Return the least seconds from when the last rank has made its product until all have its sum.

    That rank adds to what others own after that, and so do the ranks of its node to what other nodes own.
    """
    if not work.single or work.adds is None or work.how is None or work.how.blocks.split:
        return 0.0
    return float(work.adds[:2].min(axis=1).max())


def shares_of(loss: tuple[float, float]) -> tuple[float, float, float]:
    """Return the share of its rate that work loses at most, by what is counted in the mean over ranks."""
    return (*loss, max(loss))


def _in_the_mean(
    statements: Sequence[Statement],
    number: int,
    work: StatementWork,
    around: Around,
    loss: tuple[float, float],
) -> list[float]:
    """Return what a statement takes in the mean over ranks, by what moves beside it.

    Two each, links in a node and between nodes, of three: what ranks get, what they add, and what they get
    before the last multiply of the forward part with what they add from that on, which they do later. What
    ranks compute is slowed down while they move; where a rank waits, what moves meanwhile slows nothing down.
    """
    multiplies = [i for i, x in enumerate(statements) if isinstance(x, Multiply)]
    cut = multiplies[max(0, len(multiplies) // 3 - 1)] if multiplies else 0
    takes = [takes_in_the_mean(work, share) for share in shares_of(loss)]
    found = []
    gets, copies, adds = (np.zeros(2) for _ in range(3))
    gets += sum(work.inward[x][:2].mean(axis=1) for x in work.paid - {"C"}) * min(loss[0], work.lost)
    if "C" in work.paid and work.copies is not None and work.adds is not None:
        copies += loss[0] * work.copies[:2].mean(axis=1)
        adds += loss[1] * work.adds[:2].mean(axis=1)
    else:  # what is added one-sidedly leaves by the same link
        adds += float((work.sends - work.alone).mean())
    before = gets * (number < cut and number not in around.later)
    after = adds * (number >= cut and isinstance(statements[number], Multiply))
    for seconds, lost in zip(takes, (gets + copies, adds, before + after), strict=True):
        found += (seconds + lost).tolist()
    return found


def takes_in_the_mean(work: StatementWork, loss: float) -> float:
    """Return what a statement takes in the mean over ranks; waits count less a loss of what may move then."""
    return float((work.span - loss * (work.span - work.alone)).mean())


def _way_of_rows(statements: Sequence[Statement]) -> tuple[int, int]:
    """Return the numbers of the statements that first move rows to experts and back; (0, 0) if none does."""
    there = [i for i, x in enumerate(statements) if isinstance(x, Dispatch) and not x.gates]
    back = [i for i, x in enumerate(statements) if isinstance(x, Combine) and not x.gates]
    return (there[0], back[0]) if there and back and there[0] < back[0] else (0, 0)


def _on_the_way(
    statements: Sequence[Statement], number: int, there: int, back: int, work: StatementWork
) -> bool:
    """Whether a mixture's rows wait for a statement: before they are moved, between moves, or after both.

    Tokens are moved when the first of them are there: after all that their ranks compute before, and after
    what makes them if it makes all at once. What is multiplied last counts where each rank makes the one tile
    that it owns, which is sent when all of it is there. What is added to the sums in place waits for them.
    """
    if not there:
        return False
    statement = statements[number]
    if number < there:
        tokens = statements[there].reads[0]
        makes = [i for i, x in enumerate(statements[:there]) if tokens in x.outs]
        return bool(makes) and (number < makes[-1] or (number == makes[-1] and work.single))
    if number < back:
        last = statement.out == statements[back].reads[0]
        way = _made_of(statements[there:back])
        return statement.out in way and (not last or _sent_whole(statement, work))
    return isinstance(statement, Map) and statement.out == statements[back].out in statement.reads


def _made_of(statements: Sequence[Statement]) -> set[str]:
    """Return the tensors that grouped multiplies and maps compute from the first statement's."""
    made = set(statements[0].outs)
    for statement in statements[1:]:
        if isinstance(statement, Grouped | Map) and made & set(statement.reads):
            made.add(statement.out)
    return made


def _sent_whole(statement: Statement, work: StatementWork) -> bool:
    """Whether a rank sends no part of its product back before all of it is computed."""
    return isinstance(statement, Grouped) and work.aligned[1]


def _waits_for(statement: Statement, name: str) -> bool:
    """Whether a statement begins after some of a tensor is there: not where it only adds to it."""
    if isinstance(statement, Multiply):
        return name in (statement.a, statement.b) and name != statement.out
    return name in statement.reads and (name != statement.out or isinstance(statement, Map))


def _slowed(
    works: Sequence[StatementWork],
    anew: Mapping[int, Collection[str]],
    head: Floats,
    loss: tuple[float, float],
) -> float:
    """Return how long the rank takes whose own transfers slow its work down most.

    While a rank moves it either computes at less than its rate or not at all; what it moves is on its links
    one after another. It computes nothing before the first of its operands are there. So with t seconds of
    work, m of moving and i in which it computes nothing before it takes t + i + loss · (m − i) or more. After
    the work come the sums of the last product, which begin when the first rank has multiplied; what that rank
    moves may go beside them only where they leave its links alone.

    Args:
        works: What each statement takes.
        anew: What each gathers.
        head: Seconds before which each rank computes nothing.
        loss: Share of its rate that work loses beside gets, and beside adds.
    """
    last = max((i for i, work in enumerate(works) if work.how is not None), default=-1)
    gets, adds = np.zeros((2, 4, len(head)))
    sums, after = (gets, adds), 0.0
    for number, work in enumerate(works):
        beside = min(loss[0], work.lost) / loss[0] if loss[0] else 0.0  # copy engines may slow it down less
        gets = gets + sum(beside * work.inward[x] for x in anew.get(number, ()))
        if work.adds is None or work.copies is None:
            continue
        if number == last:
            sums, after = (work.inward["C"], work.adds), work.settled
        else:
            gets, adds = gets + work.copies, adds + work.adds
    computes = sum(work.span for work in works)
    waits = sum(work.span - work.alone for work in works)  # when nothing is slowed down either
    # Maps that follow the last product may be done beside its sums.
    until, found = computes - sum(work.span for work in works[last + 1 :]), 0.0
    for share, moved, summed in zip(loss, (gets, adds), sums, strict=True):
        alone = computes + head + share * np.maximum(0.0, moved - head - waits)
        first = until + head + share * np.maximum(0.0, moved - head - waits - (after - summed))
        found = max(found, float(alone.max()), float(first.min(axis=1).max()) + after)
    return found


class _Carried:
    """When each rank's links can have carried all that it has to get before a statement.

    Of the jobs that can begin at some time or later: that time, and all their work.

    Args:
        ranks: How many.
    """

    def __init__(self, ranks: int) -> None:
        self._count, self._until = 0, np.zeros(ranks)

    def before(self, jobs: Sequence[Job], number: int) -> Floats:
        """Return it; what was found for an earlier statement holds while there are no more jobs."""
        needed = [x for x in jobs if x.needed and x.statement <= number]
        if len(needed) > self._count:
            self._count, load = len(needed), np.zeros_like(needed[0].inward)
            for job in sorted(needed, key=lambda x: -x.release):
                load = load + job.inward
                ends = np.where(job.inward > 0, job.release + load, 0.0)
                self._until = np.maximum(self._until, ends.max(axis=0))
        return self._until


def _links(jobs: Sequence[Job], works: Sequence[StatementWork], ranks: int) -> float:
    """Return how long the busiest links or lanes of a rank need at least, for all that arrives there.

    For the jobs that can begin at some time or later: that time, all their work, and the shortest of what
    must follow them, which is what their rank computes from their statement on.
    """
    follows = np.zeros((len(works) + 1, ranks))
    for number in range(len(works) - 1, -1, -1):
        follows[number] = follows[number + 1] + works[number].span
    found = 0.0
    for row in range(4):
        between = row == 1  # nodes
        load, tail = np.zeros(ranks), np.full(ranks, np.inf)
        late = [job.release + job.hop * (between and not job.needed) for job in jobs]
        for number in sorted(range(len(jobs)), key=lambda x: -late[x]):
            job = jobs[number]
            busy, after = job.inward[row] > 0, np.zeros(ranks)
            load = load + job.inward[row]
            if job.needed:
                after = follows[job.statement]
                if between and job.hop:
                    after = np.maximum(after, after.min() + job.hop)
            tail = np.where(busy, np.minimum(tail, after), tail)
            found = max(found, float(np.where(busy, late[number] + load + tail, 0.0).max()))
    return found
