"""Tables whose words stay whole, whatever the width of the console."""

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

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
