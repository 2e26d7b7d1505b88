"""Bounds of an assignment by the order of its statements: the line, and one machine a link.

A rank's compute lane takes statements in their order, and each starts when what it reads is complete. So the
longest path through lanes and tensors is a bound. The load of each link is another, from the first moment any
of it can flow to the least that must still follow the last: the one-machine bound of scheduling theory.

Source: Carlier (1982), the one-machine sequencing problem.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from umm.arrays import Floats
from umm.plans.join import summed_with_next
from umm.plans.share import gathers_anew
from umm.plans.sink import in_turns
from umm.program import Statement
from umm.program.statements.multiply import is_multiply
from umm.schedules.bound import ROUNDING
from umm.space.bounds.statement_work import StatementWork


class Complete(NamedTuple):
    """When a tensor is complete at the earliest."""

    part: float = 0.0  # seconds before which none of it is complete anywhere
    whole: Any = 0.0  # seconds before which no part that a rank owns is complete there
    last: Any = 0.0  # seconds before which not all tiles that each rank owns are


class Job(NamedTuple):
    """Bytes of one matrix on the links of ranks."""

    release: float  # seconds before which none of it flows
    load: Floats  # seconds that it takes on each rank's links, shape (LINKS, ranks)
    reader: int  # first statement that a rank begins when all of it has arrived; their number without one


def in_order(
    statements: Sequence[Statement],
    works: Sequence[StatementWork],
    waits: Sequence[Mapping[str, Floats]],
    ranks: int,
    start_s: float,
) -> float:
    """Return a lower bound of the makespan of a chain in some layouts.

    Args:
        works: Work of each.
        waits: Waits of each for one-sided sums, see ``StatementTable``.
        start_s: Seconds before a collective's first transfer.
    """
    # Products that nothing waits for run behind later sums, which they hide: the bound follows that order.
    sums = {number: work.how.sums.adds for number, work in enumerate(works) if work.how is not None}
    order = in_turns(statements, sums)
    statements = [statements[number] for number in order]
    works, waits = [works[number] for number in order], [waits[number] for number in order]
    plans = {i: work.how for i, work in enumerate(works) if work.how is not None}
    anew = gathers_anew(statements, plans)
    complete: dict[str, Complete] = {}
    ended: dict[str, float] = {}  # end of the last gemm before the one-sided sums of a tensor
    jobs: list[Job] = []
    # Forward recursion over statements: each lower bound of a completion is the next one's earliest start.
    finish, end = np.zeros(ranks), 0.0
    for number, (statement, work) in enumerate(zip(statements, works, strict=True)):
        start, until = np.zeros(ranks), np.zeros(ranks)
        # The gates of rows may be complete after the first use of the rows, or long before.
        reads = statement.reads[:1] if statement.exchanges else statement.reads
        for name, wait in waits[number].items():
            start = np.maximum(start, ended[name] + wait if name in ended and name in reads else 0.0)
        for name in reads:
            if name != statement.out:  # a product may be made before the tensor that it is added to
                start = np.maximum(start, complete.get(name, Complete()).part)
        starts = start_s * ROUNDING if work.how is not None else 0.0
        if is_multiply(statement):
            for name, x in ((statement.a, "A"), (statement.b, "B")):
                state = complete.get(name, Complete())
                if work.how is None or x in anew[number]:
                    if x in work.moves:  # of what comes in chunks only the last has to be there at the end
                        jobs.append(Job(state.part + starts, work.moves[x], number + (not work.single)))
                    comes = work.comes.get(x, np.zeros(ranks))
                    until = np.maximum(until, np.where(comes > 0, state.part + comes, 0.0))
                elif x in work.how.blocks.in_whole:
                    start = np.maximum(start, np.where(work.how.blocks.in_whole[x], state.whole, 0.0))
        elif statement.has_weights and work.aligned[0]:
            start = np.maximum(start, complete.get(statement.reads[0], Complete()).whole)
        elif statement.passes:
            for name, aligned in zip(statement.reads, work.aligned, strict=True):
                state = complete.get(name, Complete())
                start = np.maximum(start, state.whole if aligned else state.part)
                until = np.maximum(until, state.last if aligned else 0.0)
                start = np.maximum(start, state.last) if aligned and work.single else start
        computes = work.span > 0
        # A rank without work in this statement passes through it, so its time stands still.
        usual = np.where(computes, np.maximum(finish, start) + work.span, finish)
        finish = np.where(computes, np.maximum(usual, until), finish)
        # Output of a single gemm appears at its end; of several, after the first that can complete any of it.
        begun = finish if work.single else usual - work.span + np.minimum(work.begins, work.span)
        begun, ends = (begun[computes], finish[computes]) if computes.any() else (start, start)
        first, last = float(begun.min()), float(ends.max())
        ended.pop(statement.out, None)
        if work.summed:
            ended[statement.out] = last
        end = max(end, last + work.summed)
        state = Complete(first, first)
        if "C" in work.moves and not summed_with_next(statements, plans, number):
            load = work.moves["C"]
            jobs.append(Job(first + starts, load, _reader(statements, works, number)))
            # By level a rank also adds up parts of others: its own may be complete before these are there.
            arrives = load[:2].max(axis=0) if work.how is None else np.zeros(ranks)
            state = Complete(first, first, np.where(arrives > 0, first + arrives, 0.0))
        if work.sums is not None:
            part, everywhere = work.sums
            state = Complete(first + part, np.maximum(first, float(ends.min()) + everywhere))
            end = max(end, float(state.whole.max()))
        complete |= dict.fromkeys(statement.outs, state)
    return max(end, one_machine(jobs, works))


def one_machine(jobs: Sequence[Job], works: Sequence[StatementWork]) -> float:
    """Return the most seconds of any link, for the jobs released at some time or later.

    That is this time, the load of them all, and the least work that must follow any of them on their rank.
    """
    if not jobs:
        return 0.0
    # Suffix sums: follows[i] is the work that each rank still has from statement i on.
    spans = np.array([work.span for work in works])
    follows = np.concatenate((np.cumsum(spans[::-1], axis=0)[::-1], np.zeros((1, spans.shape[1]))))
    jobs = sorted(jobs, key=lambda job: -job.release)
    loads = np.array([job.load for job in jobs])
    # Bytes may be passed on, so the rank that waits for them may be any.
    tails = np.array([follows[job.reader].min() for job in jobs])[:, None, None]
    # Released latest first, a prefix is the set of jobs released at some time or later, with its least tail.
    tails = np.minimum.accumulate(np.where(loads > 0, tails, np.inf), axis=0)
    releases = np.array([job.release for job in jobs])[:, None, None]
    ends = releases + np.cumsum(loads, axis=0) + tails
    return float(np.where(loads > 0, ends, 0.0).max())


def _reader(statements: Sequence[Statement], works: Sequence[StatementWork], number: int) -> int:
    """Return the first statement that begins when all a rank owns of a product is complete, or their number.

    That is a map that reads all of it at once, or the statement after one that does so in parts.
    """
    name = statements[number].out
    for i in range(number + 1, len(statements)):
        statement = statements[i]
        if statement.passes and name in statement.reads:
            # A map in parts may start before everything is there, so only the statement after it has to wait.
            aligned = works[i].aligned[statement.reads.index(name)]
            return i + (not works[i].single) if aligned else len(statements)
        adds = is_multiply(statement) and statement.out == name and statement.beta == 1.0
        if not adds and name in (*statement.reads, *statement.outs):
            break
    return len(statements)


class Around(NamedTuple):
    """Certainties about a statement's neighbours, in whatever layouts."""

    everywhere: bool  # whether all ranks compute in the next one
    whole: bool  # whether that reads all that each rank owns of this one's output
    later: Collection[int] = ()  # statements of the chain that may come later than they are written
    earlier: Collection[int] = ()  # those that may come before these


def in_line(statements: Sequence[Statement], number: int, work: StatementWork, around: Around) -> list[float]:
    """Return the shares of a statement in the line, and in the line up to each multiply and its sum."""
    # The line is statements one after another, whatever the ranks: work on every rank, the wait of the first
    # one for its gathers, and the wait of the next one, or of the end, for its sums.
    takes = work.span
    if number == 0 and number not in around.later:
        takes = np.max([takes, *work.comes.values()], axis=0)
    line = float(takes.min())
    last = float(work.span.min()) + max(work.summed, 0.0 if work.sums is None else float(work.sums[1].max()))
    # Others may go on beside the sum of one that may come earlier, and even end after.
    if work.sums is not None and number not in around.earlier:
        part, complete = work.sums
        if number + 1 == len(statements):
            line += float(complete.max())
        elif around.everywhere and number + 1 not in around.later:
            # The next one begins after some of the sum is complete: not where it only adds to it.
            statement, name = statements[number + 1], statements[number].out
            if is_multiply(statement):
                waits = name in (statement.a, statement.b) and name != statement.out
            else:
                waits = name in statement.reads and (name != statement.out or statement.passes)
            line += waits * (float(complete.min()) if around.whole else part)
    # A sum may outlast everything after it, so each prefix that ends in
    # a multiply and its sum is a bound too.
    ends = [i for i, x in enumerate(statements) if is_multiply(x) and i not in around.later]
    sure = line * (number not in around.later)  # those that may come later may still be undone
    return [line, *(sure if number < end else last * (number == end) for end in ends)]
