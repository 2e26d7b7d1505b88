"""What a search found as a table: points of the front, or one answer for each size or machine."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.text import Text

from umm.cli.printed.assignments import (
    assignments_record,
    bring_in_words,
    budget,
    more_record,
    print_assignments,
    print_more_memory,
    print_starts,
    proof,
)
from umm.cli.printed.output import print_fitting
from umm.machines.settings import split_settings
from umm.plans.multiply.options import known
from umm.space import Choice, Found
from umm.space.search.robustness import Robust
from umm.space.search.uncertainty import ties
from umm.units import format_bytes, format_seconds, range_in_words, short_seconds

NUMBERS = ("#", "memory", "makespan", "range", "move", "peak", "gap")
"""Headings of columns that are aligned on the right."""


def found_record(found: Found) -> dict[str, Any]:
    """Return the best points and what they rest on as plain values; ended early, without ranges and front."""
    if not found.space.is_multiply:
        return assignments_record(found)
    counts = {name: getattr(found, name) for name in ("priced", "distinct", "pruned", "simulated", "proven")}
    record = {
        "problem": found.points.to_dict(),
        "machine": found.machine,
        "memory_limit_bytes": found.limit,
        **counts,
    }
    if not found.whole:
        return record | {"top": [choice.to_dict() for choice in found.top]}
    tied = found.tied
    return record | {
        "tolerance": found.tolerance,
        "top": [found.record(x) | {"ties_with_first": x in tied} for x in found.top],
        "frontier": [found.record(x) | {"knee": x == found.knee} for x in found.frontier],
        "more_memory": None if found.more is None else found.record(found.more),
        "more_memory_steps": more_record(found),
        "assumed_latencies": None if found.starts is None else found.starts.to_dict(),
    }


def robust_record(record: dict[str, Any], found: Found, robust: Robust) -> dict[str, Any]:
    """Return a record with the median and p95 of its points, and the robust choice under ``robust``."""
    ranked = {"top": found.top, **({"frontier": found.frontier} if "frontier" in record else {})}
    spreads = {
        key: [row | robust.record(x) for row, x in zip(record[key], points, strict=True)]
        for key, points in ranked.items()
    }
    return record | spreads | {"robust": robust.to_dict()}


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
    counts = proof(found)  # before what more memory buys is simulated too
    if found.proven and found.whole:
        console.print(ties(found.sure, rows))
        print_more_memory(console, found)
        print_starts(console, found)
    console.print(Text(counts, style="bold"))


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
    certain = found.proven and found.whole
    ranges = certain and any(found.sure.range(x)[0] < found.sure.range(x)[1] for x in rows)
    proves = any(choice.steps_gap is not None for choice in rows)
    brings = found.bringing(rows[0]) is not None
    headings = ["memory", "makespan", *(["range"] if ranges else []), *(["move"] if brings else []), "peak"]
    headings += [*"ABC", "stationary", *(x.heading or x.name for x in numbers)]
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


ANSWER_NUMBERS = ("m", "makespan", "range", "peak", "memory")
"""Headings of columns that are aligned on the right."""


def answers_record(answers: Sequence[Found]) -> dict[str, Any]:
    """Return the answers as plain values, each as of a search alone, and where the best changes."""
    return {
        "answers": [found_record(found) for found in answers],
        "changes": [list(pair) for pair in changes(answers)],
    }


def changes(answers: Sequence[Found]) -> list[tuple[int, int]]:
    """Return the numbers of neighbouring answers, alike but in one thing, whose best is not the same."""
    found = []
    for (i, x), (j, y) in pairwise(enumerate(answers)):
        alike = x.machine == y.machine or _m(x) == _m(y)
        if alike and _what(x.top[0]) != _what(y.top[0]):
            found.append((i, j))
    return found


def print_answers(console: Console, answers: Sequence[Found]) -> None:
    """Print a row for each answer, then where the best changes and whether all of them are proven."""
    bare = answers[0].points.bare
    settings = [_set(found) for found in answers]
    several = len(set(settings)) > 1
    given = f", given {bare.given}" if bare.given else ""
    name = split_settings(answers[0].machine)[0] if several else answers[0].machine
    console.print(
        f"C = AB with n={bare.n}, k={bare.k}, {bare.types}{given}, {bare.p} ranks on {name}; "
        "the best of each:"
    )
    keys = {key for found in answers for key in split_settings(found.machine)[1]}
    (what,) = keys if len(keys) == 1 else ("set",)
    lines = [["m", *([what] if several else []), "A", "B", "C", "stat.", *ANSWER_NUMBERS[1:]]]
    for found, setting in zip(answers, settings, strict=True):
        x = found.top[0]
        lines.append([
            str(_m(found)), *([setting.removeprefix(f"{what}=")] if several else []),
            *x.layouts.values(), x.kept,
            format_seconds(x.makespan_s), range_in_words(x.makespan_s, found.sure.range(x)),
            f"{100 * x.fraction_of_peak:.1f} %", format_bytes(x.memory_bytes),
        ])  # fmt: skip
    print_fitting(console, lines, ANSWER_NUMBERS, ["dim", *[""] * len(answers)])
    for i, j in changes(answers):
        console.print(f"The best changes between {_between(answers[i], answers[j])}.")
    if not changes(answers):
        console.print("The best is the same for all.")
    proven = all(found.proven for found in answers)
    console.print(
        Text("Each is proven best of its space." if proven else "Not all are proven.", style="bold")
    )


def _between(x: Found, y: Found) -> str:
    if x.machine == y.machine:
        return f"m = {_m(x)} and {_m(y)}" + (f" with {_set(x)}" if " " in x.machine else "")
    return f"{_set(x)} and {_set(y)} at m = {_m(x)}"


def _set(found: Found) -> str:
    """Return which numbers of the machine are set to others."""
    settings = split_settings(found.machine)[1]
    return " ".join(f"{key}={value}" for key, value in settings.items()) or "as it is"


def _m(found: Found) -> int:
    return int(found.points.bare.m)


def _what(choice: Choice) -> tuple[Any, ...]:
    """Return what is chosen, the options of the schedule aside."""
    return tuple(choice.layouts.values())
