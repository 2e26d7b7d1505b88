"""What a search found: the front of time against memory or the fastest points, and how sure that is."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from umm.algorithms.universal.options import known
from umm.cli.printed.assignments import assignments_record, print_assignments
from umm.cli.printed.sentences import bring_in_words, budget, proof, ties
from umm.cli.printed.tables import print_fitting
from umm.space import Choice, Found
from umm.units import format_bytes, format_seconds, range_in_words, short_seconds

NUMBERS = ("#", "memory", "makespan", "range", "move", "peak", "gap")
"""Headings of columns that are aligned on the right."""


def found_record(found: Found, whole: bool = True) -> dict[str, Any]:
    """Return the best points and what they rest on as plain values.

    Args:
        found: What was found.
        whole: Whether the search came to its end; if not, there are no ranges and no front.
    """
    if not found.space.is_multiply:
        return assignments_record(found)
    counts = {name: getattr(found, name) for name in ("priced", "distinct", "pruned", "simulated", "proven")}
    record = {
        "problem": found.points.to_dict(),
        "machine": found.machine,
        "memory_limit_bytes": found.limit,
        **counts,
    }
    if not whole:
        return record | {"top": [choice.to_dict() for choice in found.top]}
    tied = found.tied
    return record | {
        "tolerance": found.tolerance,
        "top": [found.record(x) | {"ties_with_first": x in tied} for x in found.top],
        "frontier": [found.record(x) | {"knee": x == found.knee} for x in found.frontier],
        "more_memory": None if found.more is None else found.record(found.more),
    }


def print_front(console: Console, found: Found) -> None:
    """Print the front of time against memory with its knee, what ties, and how much was looked at.

    Of several statements the best assignments of layouts are printed, fastest first.
    """
    if not found.space.is_multiply:
        print_assignments(console, found)
        return
    _print_asked(console, found)
    places = {x: ("*" if x == found.knee else "") + str(n) for n, x in enumerate(found.frontier, 1)}
    _print_table(console, found, list(places.values()), found.frontier, found.knee or found.frontier[-1])
    if found.knee:
        console.print("* the best trade-off of time and memory.")
    _print_sure(console, found, found.frontier)


def print_ranking(console: Console, found: Found) -> None:
    """Print the best points, fastest first, what ties, and how much was looked at."""
    if not found.space.is_multiply:
        print_assignments(console, found)
        return
    _print_asked(console, found)
    places = [str(n) for n in range(1, len(found.top) + 1)]
    _print_table(console, found, places, found.top, found.top[0])
    _print_sure(console, found, found.top)


def _print_asked(console: Console, found: Found) -> None:
    console.print(f"{found.points.words} on {found.machine}\n{budget(found)}")


def _print_sure(console: Console, found: Found, rows: Sequence[Choice]) -> None:
    """Print what ties among some rows, what more memory buys, and the proof."""
    if found.proven:
        console.print(ties(found, rows))
        if found.more is not None:
            more, best = found.more, found.top[0]
            saved = 1 - more.makespan_s / best.makespan_s
            console.print(
                f"{format_bytes(more.memory_bytes - found.limit)} more would buy {100 * saved:.0f} %: "
                f"{format_seconds(more.makespan_s)} in {format_bytes(more.memory_bytes)} with "
                f"{more.words}."
            )
    console.print(Text(proof(found), style="bold"))


def _print_table(
    console: Console, found: Found, places: Sequence[str], rows: Sequence[Choice], best: Choice
) -> None:
    """Print rows as a table; where that is too wide their layouts lie below their numbers."""
    cells = cells_of(found, rows)
    styles = ["dim", *("bold" if choice == best else "" for choice in rows)]
    lines = [[number, *row] for number, row in zip(("#", *places), cells, strict=True)]
    print_fitting(console, lines, NUMBERS, styles)
    if found.bringing(rows[0]) is not None:
        console.print(bring_in_words(found))


def cells_of(found: Found, rows: Sequence[Choice]) -> list[list[str]]:
    """Return the headings of some rows of what was found, then the cells of each."""
    asked = found.space.axes.varied
    shown = [
        x
        for x in known()
        if (x.name in asked and not x.searched) or any(getattr(y.options, x.name) != x.default for y in rows)
    ]
    numbers = [x for x in shown if not isinstance(x.default, str)]
    ranges = found.proven and any(found.sure.range(x)[0] < found.sure.range(x)[1] for x in rows)
    proves = any(choice.steps_gap is not None for choice in rows)
    brings = found.bringing(rows[0]) is not None
    headings = ["memory", "makespan", *(["range"] if ranges else []), *(["move"] if brings else []), "peak"]
    headings += [*"ABC", "how", *(x.heading or x.name for x in numbers)]
    cells = [headings + (["gap"] if proves else [])]
    for choice in rows:
        layouts = list(choice.layouts.values())
        row = [format_bytes(choice.memory_bytes), format_seconds(choice.makespan_s)]
        if ranges:
            row.append(range_in_words(choice.makespan_s, found.sure.range(choice)))
        if brings:
            row.append(short_seconds(sum((found.bringing(choice) or {}).values())))
        row += [f"{100 * choice.fraction_of_peak:.1f} %", *layouts]
        said = choice.how
        words = [said[x.name] for x in shown if x not in numbers and "," not in said[x.name]]
        row.append(" ".join(["any" if "," in said["stationary"] else said["stationary"], *words]))
        row += [said[x.name] for x in numbers]
        if proves:
            row.append("" if choice.steps_gap is None else f"{100 * choice.steps_gap:.2g} %")
        cells.append(row)
    return cells
