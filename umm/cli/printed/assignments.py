"""The best assignments of layouts to several tensors that a search found, and how sure that is."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from umm.cli.printed.sentences import ties
from umm.program import Outline
from umm.space import Choice, Found
from umm.space.assignments import Assignments
from umm.units import format_bytes, format_seconds, range_in_words


def assignments_record(found: Found) -> dict[str, Any]:
    """Return the best assignments and what they rest on as plain values."""
    counts = {x: getattr(found, x) for x in ("priced", "pruned", "simulated", "proven", "gap")}
    return {
        "problem": found.points.to_dict() | {"optimizer_bytes": found.space.state},
        "machine": found.machine,
        "memory_limit_bytes": found.limit,
        **counts,
        "named": found.named,
        "left_out": found.left_out,
        "moved": [{"statement": statement, "nbytes": dict(nbytes)} for statement, nbytes in found.moved],
        "tolerance": found.tolerance,
        "top": [found.record(x) for x in found.top],
    }


def print_assignments(console: Console, found: Found) -> None:
    """Print the best layouts, the next best by what they change, those with a name, what moves, the proof."""
    state, points = found.space.state, found.points
    optimizer = f", of it {state:g} B of optimizer for each element of a weight" if state else ""
    console.print(f"{points.words} on {found.machine}", highlight=False)
    console.print(f"At most {format_bytes(found.limit)} a rank{optimizer}; stationary {points.stationary}.")
    if points.outline.given:
        console.print(given_in_words(points.outline))
    best = found.top[0]
    console.print(_layouts(points, best))
    console.print(_ranking(points, found))
    if len(found.ranged) > 1:
        console.print(ties(found, found.ranged))
    for name, seconds in found.named.items():
        beside = "does not fit" if seconds is None else _beside(seconds, best.makespan_s)
        console.print(f"{name}: {beside}", highlight=False)
    for name, seconds in found.left_out.items():
        console.print(f"{name}: not simulated in time, at least {_beside(seconds, best.makespan_s)}")
    for statement, nbytes in found.moved:
        moved = ", ".join(f"{format_bytes(count)} of {name}" for name, count in nbytes.items())
        console.print(f"{statement} moves to a rank {moved}", highlight=False)
    if not found.moved:
        console.print("No statement moves anything between ranks.")
    if not points.outline.given:
        console.print("Assumes inputs start in the layouts shown; --given adds the time to move them.")
    sure = "Proven best" if found.proven else f"Not proven, within {100 * found.gap:.2g} %"
    counts = f"{found.priced:.4g} assignments" if found.priced >= 10**6 else f"{found.priced} assignments"
    console.print(
        Text(
            f"{sure}: {counts} priced, {found.pruned:.6g} pruned, {found.simulated} simulated.", style="bold"
        )
    )


def given_in_words(outline: Outline) -> str:
    """Return where inputs of a chain lie before, as a sentence."""
    lies = ", ".join(f"{name} in {text}" for name, text in outline.given.items())
    return f"Inputs start as given, {lies}; each is moved to its layout."


def _layouts(points: Assignments, best: Choice) -> Table:
    """Return the layout of each group of tensors."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("layout", no_wrap=True)
    table.add_column("tensors of the best", overflow="fold")
    by_layout: dict[str, list[str]] = {}
    for names in points.groups:
        by_layout.setdefault(best.layouts[names[0]], []).extend(names)
    for layout, tensors in by_layout.items():
        table.add_row(layout, " ".join(tensors))
    return table


def _ranking(points: Assignments, found: Found) -> Table:
    """Return the best assignments by what they change of the best; those of equal numbers are one row."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("#", no_wrap=True)
    spread = any(low < high for low, high in map(found.sure.range, found.ranged))
    for header in ("makespan", *(["range"] if spread else []), "of peak", "memory"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("layouts", overflow="fold")

    def numbers(placed: tuple[int, Choice]) -> tuple[str, ...]:
        choice = placed[1]
        of_range = [_range(found, choice)] if spread else []
        peak = f"{100 * choice.fraction_of_peak:.1f} %" if choice.fraction_of_peak >= 0 else "no flop"
        return format_seconds(choice.makespan_s), *of_range, peak, format_bytes(choice.memory_bytes)

    for cells, alike in groupby(enumerate(found.top, 1), key=numbers):
        places, choices = zip(*alike, strict=True)
        first, last = places[0], places[-1]
        of_best = _differing(points, found.top[0], choices[:1])
        said = ", ".join(f"{name} {choices[0].layouts[name]}" for name in of_best) or "as above"
        if last > first:
            others = _differing(points, choices[0], choices[1:])
            said += f"; {last - first} more by other layouts of {', '.join(others)}"
        table.add_row(
            str(first) if first == last else f"{first} to {last}",
            *cells,
            said,
            style="bold" if first == 1 else "",
        )
    return table


def _differing(points: Assignments, one: Choice, others: Sequence[Choice]) -> list[str]:
    """Return the first tensor of each group that others lay out differently from one."""
    names = [group[0] for group in points.groups]
    return [x for x in names if any(other.layouts[x] != one.layouts[x] for other in others)]


def _range(found: Found, choice: Choice) -> str:
    """Return the range of a makespan; nothing for one that was not simulated at its ends."""
    if not found.is_ranged(choice):
        return ""
    return range_in_words(choice.makespan_s, found.sure.range(choice))


def _beside(seconds: float, best: float) -> str:
    return f"{format_seconds(seconds)}, {seconds / best:.2f}x"
