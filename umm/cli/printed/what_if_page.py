"""Changes that would flip a choice, in words and in plain values."""

from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from umm.cli.printed.output import grid, print_whole
from umm.space import Space
from umm.space.what_if.decision_map import DecisionMap, Stretch
from umm.space.what_if.sensitivity import Sensitivity
from umm.units import format_bytes, format_seconds

SAME = "same"


def sensitivity_record(space: Space, machine: str, answer: Sensitivity, reach: float) -> dict[str, Any]:
    """Return a choice and the changes that would flip it as plain values."""
    return {
        "problem": space.points().to_dict(),
        "machine": machine,
        "choice": answer.choice.to_dict(),
        "margin": answer.margin,
        "reach": reach,
        "moves": [dict(vars(move)) for move in answer.moves],
        "flips": [
            {"what": x.what, "now": x.now, "factor": x.factor, "then": x.then}
            | {"choice": None if x.choice is None else x.choice.to_dict()}
            for x in answer.flips
        ],
    } | ({} if answer.complete else {"complete": False})


def print_sensitivity(
    console: Console, space: Space, machine: str, answer: Sensitivity, reach: float
) -> None:
    """Print the choice, how much each number moves its time, and where another choice is better."""
    console.print(problem_in_words(space, f"on {machine}"))
    console.print(Text(f"Best: {answer.choice}", style="bold"))
    now = answer.choice.makespan_s
    changes = [(move, _change(move.half_s, now), _change(move.most_s, now)) for move in answer.moves]
    table = grid(("number", "now", "half", "twice"), numbers=("half", "twice"))
    for move, half, most in changes:
        if (half, most) != (SAME, SAME):
            table.add_row(
                move.what, move.now, half, most + ("" if move.most == 2 else f" at x{move.most:.3g}")
            )
    if table.row_count:
        console.print(table)
    same = [move.what for move, half, most in changes if (half, most) == (SAME, SAME)]
    if same:
        console.print(f"Its time is the same with half and twice of {', '.join(same)}.")
    flips = [flip for flip in answer.flips if flip.factor is not None]
    if not answer.complete:
        tried = ", ".join(dict.fromkeys(flip.what for flip in answer.flips)) or "none"
        console.print(f"Ended early. Numbers tried for a change of the choice: {tried}.")
    if not flips:
        if answer.complete:
            console.print(f"No number changes the choice between x{1 / reach:.3g} and x{reach:.3g}.")
        else:
            console.print("So far no number changes the choice.")
        return
    console.print(f"Another choice is at least {100 * answer.margin:.2g} % better:")
    for flip in flips:
        assert flip.choice is not None
        assert flip.factor is not None
        side = "" if flip.what == "memory" else "from " if flip.factor > 1 else "below "
        then = f"{flip.words}, {format_seconds(flip.choice.makespan_s)} there"
        console.print(f"- {flip.what} {side}{flip.then}: {then}")


def _change(seconds: float, now: float) -> str:
    share = 100 * (seconds / now - 1)
    return SAME if abs(share) < 0.05 else f"{share:+.1f} %"


def print_map(console: Console, space: Space, decisions: DecisionMap) -> None:
    """Print for every m the best choice by interval."""
    console.print(problem_in_words(space, f"on {decisions.machine}", size=False))
    unit = "multiples of" if decisions.over == "memory" else "factors of"
    console.print(f"Best by m and {decisions.over}, in {unit} {decisions.unit}:")
    numbers = ("m", "from", "to", "makespan", "memory")
    table = grid((*numbers[:3], "A", "B", "C", "stat.", *numbers[3:]), numbers)
    last = None
    for x in _merged(decisions):
        table.add_row(
            "" if x.m == last else str(x.m), f"{x.start:.3g}x", f"{x.stop:.3g}x",
            *x.choice.layouts.values(), x.choice.kept, format_seconds(x.choice.makespan_s),
            format_bytes(x.choice.memory_bytes),
        )  # fmt: skip
        last = x.m
    print_whole(console, table)
    if not decisions.complete:
        console.print("Ended early: other values of m were not looked at yet.")
    if decisions.without:
        console.print(f"Nothing fits for m = {', '.join(map(str, decisions.without))}.")


def _merged(decisions: DecisionMap) -> list[Stretch]:
    """Return the stretches, one for neighbours that print the same."""

    # Over a number these have the same layouts and other options; over memory a budget that buys no time, as
    # printed, is none of its own.
    def printed(x: Stretch) -> str:
        return format_seconds(x.choice.makespan_s) if decisions.over == "memory" else x.label

    stretches: list[Stretch] = []
    for x in decisions.stretches:
        last = stretches[-1] if stretches else None
        if last and last.m == x.m and printed(last) == printed(x):
            stretches[-1] = replace(stretches[-1], stop=x.stop)
        else:
            stretches.append(x)
    return stretches


def problem_in_words(space: Space, where: str, size: bool = True) -> str:
    """Return the multiply, in a line."""
    points: Any = space.points()
    if not space.is_multiply:
        return f"{points.words} {where}"
    bare = points.bare
    sizes = f"m={bare.m}, n={bare.n}, k={bare.k}" if size else f"n={bare.n}, k={bare.k}"
    given = f", given {bare.given}" if bare.given else ""
    return f"C = AB with {sizes}, {bare.types}{given}, {bare.p} ranks {where}"
