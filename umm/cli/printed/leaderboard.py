"""A search's result as a table: points of the front, or one answer for each size or machine."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.text import Text

from umm.cli.printed import assignments
from umm.cli.printed.assignments import budget
from umm.cli.printed.output import print_fitting
from umm.machines.settings import split_settings
from umm.plans.multiply.options import known
from umm.space import Choice, Found
from umm.space.search.robustness import Robust
from umm.space.search.uncertainty import ties
from umm.units import format_bytes, format_seconds, percent, range_in_words, short_seconds

NUMBERS = ("#", "memory", "makespan", "range", "move", "peak", "gap")
"""Headings of columns that are aligned on the right."""


def found_record(result: Found, robust: Robust | None = None) -> dict[str, Any]:
    """Return the best points with their proof as plain values; ended early, without ranges and front.

    Args:
        robust: Adds the median and p95 of each point, and the robust choice.
    """
    record = _found_record(result)
    if robust is None:
        return record
    for key in record.keys() & {"top", "frontier"}:
        points = zip(record[key], getattr(result, key), strict=True)
        record[key] = [row | robust.record(x) for row, x in points]
    return record | {"robust": robust.to_dict()}


def _found_record(result: Found) -> dict[str, Any]:
    if not result.space.is_multiply:
        return assignments.assignments_record(result)
    counts = {name: getattr(result, name) for name in ("priced", "distinct", "pruned", "simulated", "proven")}
    record = {
        "problem": result.points.to_dict(),
        "machine": result.machine,
        "memory_limit_bytes": result.limit,
        **counts,
    }
    if not result.whole:
        return record | {"top": [choice.to_dict() for choice in result.top]}
    tied = result.tied
    return record | {
        "tolerance": result.tolerance,
        "top": [result.record(x) | {"ties_with_first": x in tied} for x in result.top],
        "frontier": [result.record(x) | {"knee": x == result.knee} for x in result.frontier],
        "more_memory": None if result.more is None else result.record(result.more),
        "more_memory_steps": assignments.more_record(result),
        "assumed_latencies": None if result.starts is None else result.starts.to_dict(),
    }


def print_found(console: Console, result: Found, ranked: bool = False) -> None:
    """Print the front of time against memory with its knee, or the best points, fastest first; the proof."""
    # Of several statements the best assignments of layouts are printed, fastest first.
    if not result.space.is_multiply:
        assignments.print_assignments(console, result)
        return
    console.print(f"{result.points.words} on {result.machine}\n{budget(result)}")
    rows, knee = (result.top, None) if ranked else (result.frontier, result.knee)
    places = ["*" * (x == knee) + str(n) for n, x in enumerate(rows, 1)]
    _print_table(console, result, places, rows, rows[0] if ranked else knee or rows[-1])
    if knee:
        console.print("* the best trade-off of time and memory.")
    _print_sure(console, result, rows)


def _print_sure(console: Console, result: Found, rows: Sequence[Choice]) -> None:
    """Print ties among some rows, the gains of more memory, and the proof."""
    counts = assignments.proof(result)  # before points with more memory are simulated too
    if result.proven and result.whole:
        console.print(ties(result.sure, rows))
        assignments.print_more_memory(console, result)
        assignments.print_starts(console, result)
    console.print(Text(counts, style="bold"))


def _print_table(
    console: Console, result: Found, places: Sequence[str], rows: Sequence[Choice], best: Choice
) -> None:
    """Print rows as a table; where that is too wide their layouts lie below their numbers."""
    cells = cells_of(result, rows)
    styles = ["dim", *("bold" if choice == best else "" for choice in rows)]
    lines = [[number, *row] for number, row in zip(("#", *places), cells, strict=True)]
    print_fitting(console, lines, NUMBERS, styles)
    if result.bringing(rows[0]) is not None:
        given = result.points.given.items()
        moved = ", ".join(f"{x} {'to' if x == 'C' else 'from'} {layout}" for x, layout in given)
        console.print(
            f"move: the time to move {moved}, part of the makespan."
            if moved
            else "Assumes A, B and C start in the layouts shown; move is the extra time if they start, and C "
            "ends, in row."
        )


def cells_of(result: Found, rows: Sequence[Choice]) -> list[list[str]]:
    """Return the headings of some rows of a result, then the cells of each."""
    asked = result.space.axes.varied
    shown = [
        x
        for x in known()
        if (x.name in asked and not x.searched) or any(getattr(y.options, x.name) != x.default for y in rows)
    ]
    numbers = [x for x in shown if not isinstance(x.default, str)]
    certain = result.proven and result.whole
    ranges = certain and any(result.sure.range(x)[0] < result.sure.range(x)[1] for x in rows)
    proves = any(choice.steps_gap is not None for choice in rows)
    brings = result.bringing(rows[0]) is not None
    headings = ["memory", "makespan", *(["range"] if ranges else []), *(["move"] if brings else []), "peak"]
    headings += [*"ABC", "stationary", *(x.heading or x.name for x in numbers)]
    cells = [headings + (["gap"] if proves else [])]
    for choice in rows:
        layouts = list(choice.layouts.values())
        row = [format_bytes(choice.memory_bytes), format_seconds(choice.makespan_s)]
        if ranges:
            row.append(range_in_words(choice.makespan_s, result.sure.range(choice)))
        if brings:
            row.append(short_seconds(sum((result.bringing(choice) or {}).values())))
        row += [percent(choice.fraction_of_peak, 1), *layouts]
        words_of = choice.how
        words = [words_of[x.name] for x in shown if x not in numbers and "," not in words_of[x.name]]
        row.append(" ".join(["any" if "," in words_of["stationary"] else words_of["stationary"], *words]))
        row += [words_of[x.name] for x in numbers]
        if proves:
            row.append("" if choice.steps_gap is None else f"{100 * choice.steps_gap:.2g} %")
        cells.append(row)
    return cells


ANSWER_NUMBERS = ("m", "makespan", "range", "peak", "memory")
"""Headings of columns that are aligned on the right."""


def answers_record(answers: Sequence[Found]) -> dict[str, Any]:
    """Return the answers as plain values, each as of a search alone, and where the best changes."""
    return {
        "answers": [found_record(answer) for answer in answers],
        "changes": [list(pair) for pair in changes(answers)],
    }


def changes(answers: Sequence[Found]) -> list[tuple[int, int]]:
    """Return the numbers of neighbouring answers, alike but in one thing, whose best is not the same."""
    pairs = []
    for (i, x), (j, y) in pairwise(enumerate(answers)):
        alike = x.machine == y.machine or _m(x) == _m(y)
        if alike and _what(x.top[0]) != _what(y.top[0]):
            pairs.append((i, j))
    return pairs


def print_answers(console: Console, answers: Sequence[Found]) -> None:
    """Print a row for each answer, then where the best changes and whether all of them are proven."""
    bare = answers[0].points.bare
    settings = [_set(answer) for answer in answers]
    several = len(set(settings)) > 1
    given = f", given {bare.given}" if bare.given else ""
    name = split_settings(answers[0].machine)[0] if several else answers[0].machine
    console.print(
        f"C = AB with n={bare.n}, k={bare.k}, {bare.types}{given}, {bare.p} ranks on {name}; "
        "the best of each:"
    )
    keys = {key for answer in answers for key in split_settings(answer.machine)[1]}
    (what,) = keys if len(keys) == 1 else ("set",)
    lines = [["m", *([what] if several else []), "A", "B", "C", "stat.", *ANSWER_NUMBERS[1:]]]
    for answer, setting in zip(answers, settings, strict=True):
        x = answer.top[0]
        lines.append([
            str(_m(answer)), *([setting.removeprefix(f"{what}=")] if several else []),
            *x.layouts.values(), x.kept,
            format_seconds(x.makespan_s), range_in_words(x.makespan_s, answer.sure.range(x)),
            percent(x.fraction_of_peak, 1), format_bytes(x.memory_bytes),
        ])  # fmt: skip
    print_fitting(console, lines, ANSWER_NUMBERS, ["dim", *[""] * len(answers)])
    for i, j in changes(answers):
        console.print(f"The best changes between {_between(answers[i], answers[j])}.")
    if not changes(answers):
        console.print("The best is the same for all.")
    proven = all(answer.proven for answer in answers)
    console.print(
        Text("Each is proven best of its space." if proven else "Not all are proven.", style="bold")
    )


def _between(x: Found, y: Found) -> str:
    if x.machine == y.machine:
        return f"m = {_m(x)} and {_m(y)}" + (f" with {_set(x)}" if " " in x.machine else "")
    return f"{_set(x)} and {_set(y)} at m = {_m(x)}"


def _set(result: Found) -> str:
    """Return which numbers of the machine are set to others."""
    settings = split_settings(result.machine)[1]
    return " ".join(f"{key}={value}" for key, value in settings.items()) or "as it is"


def _m(result: Found) -> int:
    return int(result.points.bare.m)


def _what(choice: Choice) -> tuple[Any, ...]:
    """Return the chosen layouts, the options of the schedule aside."""
    return tuple(choice.layouts.values())
