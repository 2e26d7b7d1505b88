"""Tables whose words stay whole, whatever the width of the console."""

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

MOST = 10_000  # columns that no table needs


def width_of(console: Console, table: Table) -> int:
    """Return how many columns a table takes if none of its words is broken."""
    return Measurement.get(console, console.options.update(width=MOST), table).maximum


def print_whole(console: Console, table: Table) -> None:
    """Print a table; where it is wider than the console its lines are, rather than that a word breaks."""
    width = console.width
    console.width = max(width, width_of(console, table))
    console.print(table, crop=False)
    console.width = width


def print_fitting(
    console: Console, lines: Sequence[Sequence[str]], numbers: Collection[str], styles: Sequence[str]
) -> None:
    """Print lines as a table; where that is too wide, their words lie below their numbers.

    Args:
        console: Where to.
        lines: Of cells, the headings first.
        numbers: Headings of the columns that are aligned on the right; the others have words.
        styles: Of each line.
    """
    for gap in (2, 1):
        table = _table(lines, numbers, styles, gap)
        if width_of(console, table) <= console.width:
            console.print(table)
            return
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    words = [i for i, heading in enumerate(lines[0]) if heading not in numbers]
    above = [i for i in range(len(widths)) if i not in words]
    for line, style in zip(lines, styles, strict=True):
        console.print(Text("  ".join(line[i].rjust(widths[i]) for i in above), style=style))
        if line is not lines[0]:
            rest = ", ".join(f"{lines[0][i]} {line[i]}" for i in words)
            console.print(Padding(rest, (0, 0, 0, widths[above[0]] + 2)))


def _table(
    lines: Sequence[Sequence[str]], numbers: Collection[str], styles: Sequence[str], gap: int
) -> Table:
    """Return lines as a table, the headings first, with a gap between its columns."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, gap, 0, 0))
    for heading in lines[0]:
        table.add_column(justify="right" if heading in numbers else "left", no_wrap=True)
    for line, style in zip(lines, styles, strict=True):
        table.add_row(*line, style=style)
    return table
