"""A plan in words: who computes which pieces, and who sends them to whom; ranks alike have one line."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from umm.arrays import Ints
from umm.program.plan import Jobs, Moves, Plan
from umm.schedules.schedule import Schedule
from umm.units import counted, format_bytes

MOST_KINDS, MOST_SHAPES, MOST_RUNS = 4, 2, 4
"""Lines of an entry, shapes in a line, and ranges of ranks or groups in a list."""
Alike = list[tuple[list[int], str]]  # ranks that do alike, and what each of them does


def plan_record(plan: Plan, schedule: Schedule) -> list[dict[str, Any]]:
    """Return the entries of a plan as plain values; bytes of moves are by rank."""
    itemsize = {x.name: x.itemsize for x in schedule.tensors}
    ranks, records = schedule.ranks, list[dict[str, Any]]()
    for x in plan:
        if isinstance(x, Jobs):
            names, each = [y.tensor for y in x.reads], np.bincount(x.rank, minlength=ranks).tolist()
            what = {"out": x.out.tensor, "kernel": x.kernel, "reads": names}
            records.append(what | {"jobs": len(x), "jobs_of_rank": each})
            continue
        arriving, leaving = x.by_rank(itemsize[x.into.tensor], ranks)
        records.append({
            "source": x.source.tensor, "into": x.into.tensor, "adds": x.adds, "way": x.way,
            "messages": len(x), "bytes": int(arriving.sum()), "groups": [y.tolist() for y in _groups(x)],
            "bytes_in": [int(y) for y in arriving], "bytes_out": [int(y) for y in leaving],
        })  # fmt: skip
    return records


def print_plan(console: Console, plan: Plan, schedule: Schedule) -> None:
    """Print a plan, an entry after another: its title and total, then the part of each rank."""
    itemsize, width = {x.name: x.itemsize for x in schedule.tensors}, len(str(len(plan)))
    for number, entry in enumerate(plan, 1):
        if isinstance(entry, Jobs):
            total, alike = counted(len(entry), "job"), _jobs_alike(entry)
        else:
            of_one = itemsize[entry.into.tensor]
            total = f"{format_bytes(entry.elements * of_one)}, {counted(len(entry), 'message')}"
            alike = _moves_alike(entry, of_one)
        console.print(Text(f"{number:{width}}  {entry.title}", style="bold"), Text(f"  {total}"), sep="")
        groups = _groups(entry) if isinstance(entry, Moves) else []
        for line in _lines(alike, groups):
            console.print(Padding(Text(line), (0, 0, 0, width + 4)))


def _lines(alike: Alike, groups: Sequence[Ints]) -> Iterator[str]:
    """Yield the part of each rank; where all ranks do alike, in separate groups, by these."""
    if len(alike) == 1 and len(groups) > 1:
        texts = [_ranges(x.tolist()) for x in groups]
        among = "; ".join(texts[:MOST_RUNS]) + (f"; … {len(texts)} groups" if len(texts) > MOST_RUNS else "")
        yield f"among {among}: each {alike[0][1]}"
        return
    for ranks, words in alike[:MOST_KINDS]:
        yield f"{_ranges(ranks)}: {words}" if len(ranks) == 1 else f"{_ranges(ranks)}: each {words}"
    if len(alike) > MOST_KINDS:
        rest = alike[MOST_KINDS:]
        yield f"{counted(sum(len(x) for x, _ in rest), 'more rank')} in {len(rest)} more ways"


def _jobs_alike(jobs: Jobs) -> Alike:
    """Return the ranks with jobs of the same shapes, and these; of many kinds, ranks with as many jobs."""
    operands = (jobs.out, *jobs.reads)
    sides = np.concatenate([x.spans[:, 1::2] - x.spans[:, ::2] for x in operands], axis=1)
    exact, rough = dict[str, list[int]](), dict[str, list[int]]()
    largest = _shape(sides[jobs.out.elements.argmax()])
    for rank in np.unique(jobs.rank).tolist():
        shapes, counts = np.unique(sides[jobs.rank == rank], axis=0, return_counts=True)
        each = zip(shapes[:MOST_SHAPES], counts.tolist(), strict=False)
        texts = [(f"{count} times " if count > 1 else "") + _shape(shape) for shape, count in each]
        texts += [f"{len(shapes) - MOST_SHAPES} other shapes"] * (len(shapes) > MOST_SHAPES)
        exact.setdefault("; ".join(texts), []).append(rank)
        rough.setdefault(f"{counted(int(counts.sum()), 'job')}, up to {largest}", []).append(rank)
    return _alike(exact, rough)


def _shape(sides: Ints) -> str:
    out, *reads = (f"{rows}x{cols}" for rows, cols in sides.reshape(-1, 2).tolist())
    return out + (f" of {', '.join(reads)}" if reads else "")


def _moves_alike(moves: Moves, itemsize: int) -> Alike:
    """Return ranks with equal transfers, and these; of many kinds, ranks with as many partners."""
    exact, rough = dict[str, list[int]](), dict[str, list[int]]()
    size, ends = moves.source.elements * itemsize, (moves.into.rank, moves.source.rank)
    verbs = ("receives", "adds") if moves.adds else ("gets", "gives")
    between = " to ".join(dict.fromkeys(format_bytes(int(x)) for x in (size.min(), size.max())))
    for rank in np.unique(np.concatenate(ends)).tolist():
        words, counts = list[tuple[str, str]](), list[tuple[str, str]]()
        for end, other, verb, word in zip(ends, ends[::-1], verbs, ("from", "to"), strict=True):
            of_rank = end == rank
            if of_rank.any():
                partners = f" {word} {counted(len(np.unique(other[of_rank])), 'rank')}"
                words.append((verb, _sizes(size[of_rank]) + partners))
                counts.append(
                    (verb, f"{counted(int(np.count_nonzero(of_rank)), 'message')} of {between}{partners}")
                )
        exact.setdefault(_both(words, moves.adds), []).append(rank)
        rough.setdefault(_both(counts, moves.adds), []).append(rank)
    return _alike(exact, rough)


def _both(words: Sequence[tuple[str, str]], adds: bool) -> str:
    """Return a rank's gets and gives; one of the two where they are as much: of sums, its additions."""
    if len(words) == 2 and words[0][1].replace("from", "to") == words[1][1]:
        words = [words[adds]]
    return " and ".join(f"{verb} {text}" for verb, text in words)


def _alike(exact: dict[str, list[int]], rough: dict[str, list[int]]) -> Alike:
    """Return ranks by their exact words, unless these are too many kinds."""
    return [(ranks, text) for text, ranks in (exact if len(exact) <= MOST_KINDS else rough).items()]


def _sizes(sizes: Ints) -> str:
    """Return messages in words.

    >>> _sizes(np.array([1024, 1024])), _sizes(np.array([1024, 2048])), _sizes(np.array([512]))
    ('2 x 1.0 KiB', '3.0 KiB in 2 messages', '512 B')
    """
    if len(sizes) == 1:
        return format_bytes(int(sizes[0]))
    if (sizes == sizes[0]).all():
        return f"{len(sizes)} x {format_bytes(int(sizes[0]))}"
    return f"{format_bytes(int(sizes.sum()))} in {len(sizes)} messages"


def _groups(moves: Moves) -> list[Ints]:
    """Return the ranks of each group, ascending."""
    ends, group = np.concatenate((moves.source.rank, moves.into.rank)), np.tile(moves.group, 2)
    return [np.unique(ends[group == x]) for x in np.unique(group).tolist()]


def _ranges(ranks: Sequence[int]) -> str:
    """Return ascending ranks in few words.

    >>> _ranges([0, 1, 2, 3, 8, 9]), _ranges([0, 8, 16, 24]), _ranges([5])
    ('0-3, 8-9', '0-24 by 8', '5')
    """
    steps = {b - a for a, b in pairwise(ranks)}
    if len(ranks) > 2 and len(steps) == 1 and steps != {1}:
        return f"{ranks[0]}-{ranks[-1]} by {steps.pop()}"
    runs = list[list[int]]()
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    texts = [f"{x[0]}-{x[-1]}" if len(x) > 1 else str(x[0]) for x in runs]
    more = f", … {len(ranks)} ranks" if len(texts) > MOST_RUNS else ""
    return ", ".join(texts[:MOST_RUNS]) + more
