"""Tables of collectives over sizes, of numbers of ranks, and of all layers of a model."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from umm.cli.printed.output import print_fitting

if TYPE_CHECKING:
    from umm.space.scaling import Scaling


NUMBERS = (
    "nodes", "ranks", "m", "n", "k", "tokens", "sequences", "makespan", "speed-up", "efficiency", "GPU-s",
    "memory", "gap", "$/million",
)  # fmt: skip
"""Headings of columns that are aligned on the right."""


def print_scaling(console: Console, scaling: "Scaling") -> None:
    """Print a row for each number, and the verdict."""
    grows = f"; {scaling.grows}" if scaling.grows else ""
    console.print(f"{scaling.words} on {scaling.machine}{grows}")
    print_fitting(console, scaling.in_words(), NUMBERS, ["dim", *[""] * len(scaling.rows)])
    if scaling.left_out:
        console.print(scaling.left_out)
    if scaling.verdict:
        console.print(Text(scaling.verdict, style="bold"))
