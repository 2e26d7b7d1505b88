"""What a search found: the best points as a table, and how sure that is."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from umm.algorithms.universal.options import known
from umm.problem import Problem
from umm.space import Choice, Found, Space
from umm.units import format_bytes, format_seconds


def found_record(space: Space, found: Found) -> dict[str, Any]:
    """Return the best points and what they rest on as plain values."""
    bare = space.bare
    sizes = {name: getattr(bare, name) for name in "mnk"}
    counts = {name: getattr(found, name) for name in ("priced", "distinct", "pruned", "simulated", "proven")}
    return {
        "problem": sizes
        | {"dtype": bare.dtype, "c_dtype": bare.c_dtype, "given": bare.given, "ranks": bare.p},
        "machine": found.machine,
        "memory_limit_bytes": found.limit,
        **counts,
        "top": [choice.to_dict() for choice in found.top],
    }


def print_leaderboard(console: Console, space: Space, found: Found) -> None:
    """Print the best points, fastest first, then how many were looked at."""
    problem = space.bare
    console.print(
        f"C = AB with m={problem.m}, n={problem.n}, k={problem.k}, {problem.types}, {problem.p} ranks on "
        f"{found.machine}\n{budget(problem, found)}"
    )
    varied = space.axes.varied
    headings = {option.name: option.heading or option.name for option in known()}
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("#", no_wrap=True)
    for header in ("A", "B", "C", "stat.", *(headings[name] for name in varied)):
        table.add_column(header, overflow="fold")
    proves = any(choice.steps_gap is not None for choice in found.top)
    for header in ("makespan", "of peak", "memory", *(["gap"] if proves else [])):
        table.add_column(header, justify="right", no_wrap=True)
    for place, choice in enumerate(found.top, 1):
        gap = [] if choice.steps_gap is None else [f"{100 * choice.steps_gap:.2g} %"]
        table.add_row(*row(place, choice, varied), *gap, style="bold" if place == 1 else "")
    console.print(table)
    console.print(Text(proof(found), style="bold"))


def row(place: int, choice: Choice, varied: list[str]) -> list[str]:
    """Return a point as the cells of its row; ``varied`` names the options that are an axis."""
    return [
        str(place),
        str(choice.problem.a),
        str(choice.problem.b),
        str(choice.problem.c),
        choice.stationary,
        *(str(getattr(choice.options, name)) for name in varied),
        format_seconds(choice.makespan_s),
        f"{100 * choice.fraction_of_peak:.1f} %",
        format_bytes(choice.memory_bytes),
    ]


def budget(problem: Problem, found: Found) -> str:
    """Return the most a rank may hold, in words."""
    share = found.limit / problem.unreplicated_share
    return f"At most {format_bytes(found.limit)} a rank ({share:.3g}x)."


def proof(found: Found) -> str:
    """Return one line on how many points were looked at, and whether the best is proven to be."""
    word = "Proven best" if found.proven else "Not proven"
    return (
        f"{word}: {found.priced} points priced, {found.distinct} distinct, {found.pruned} pruned, "
        f"{found.simulated} simulated."
    )
