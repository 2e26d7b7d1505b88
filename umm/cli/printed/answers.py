"""One answer for each size and each setting of the machine: the best of each, and where it changes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.text import Text

from umm.cli.printed.leaderboard import found_record
from umm.cli.printed.tables import print_fitting
from umm.machines.settings import split_settings
from umm.space import Choice, Found
from umm.units import format_bytes, format_seconds, range_in_words

NUMBERS = ("m", "makespan", "range", "peak", "memory")
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
    lines = [["m", *([what] if several else []), "A", "B", "C", "stat.", *NUMBERS[1:]]]
    for found, setting in zip(answers, settings, strict=True):
        x = found.top[0]
        lines.append([
            str(_m(found)), *([setting.removeprefix(f"{what}=")] if several else []),
            *x.layouts.values(), x.kept,
            format_seconds(x.makespan_s), range_in_words(x.makespan_s, found.sure.range(x)),
            f"{100 * x.fraction_of_peak:.1f} %", format_bytes(x.memory_bytes),
        ])  # fmt: skip
    print_fitting(console, lines, NUMBERS, ["dim", *[""] * len(answers)])
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
