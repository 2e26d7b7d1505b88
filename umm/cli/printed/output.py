"""Where output goes: data to stdout, progress to stderr, tables whose words stay whole."""

import math
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, cast

import click

from umm.cli.printed.streams import limit_reached
from umm.errors import EndedEarlyError
from umm.quoting.terminal import json_line, visible
from umm.units import duration

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
    from rich.progress import Progress
    from rich.table import Table

SCHEMA = 1
STANDS = "umm.stands"  # where a command keeps whose kernels its machines have, by its context
CUT = "…"  # what stands for what is left out
EVERY_S = 10.0  # seconds between lines of progress where stderr is no terminal
MOST_COUNTED = 10_000_000
LONGEST_S = 3600.0  # of a time that is said to be left


@dataclass(frozen=True)
class Output:
    """The form of the output that was asked for."""

    as_json: bool = False  # one JSON object instead of text
    quiet: bool = False  # no notes and no progress
    no_color: bool = False  # plain text even on a terminal
    # Not empty once what is shown was ended early.
    early: list[bool] = field(default_factory=list, compare=False)
    # Keys of a model's file that are not modelled, and a remark on each.
    remarks: dict[str, str] = field(default_factory=dict, compare=False)

    def console(self, err: bool = False) -> "Console":
        """Return a rich console for stdout, or for stderr."""
        from rich.console import Console, RenderHook

        class Piped(Console):
            def on_broken_pipe(self) -> None:
                raise  # called where a BrokenPipeError is handled; rich would exit with 1

        class Visible(RenderHook):
            def process_renderables(self, renderables: list[Any]) -> list[Any]:
                return [_Shown(x) for x in renderables]

        plain, stream = self.no_color or bool(os.environ.get("NO_COLOR")), sys.stderr if err else sys.stdout
        console = Piped(
            file=cast(IO[str], stream if stream.isatty() else _Trimmed(stream)),
            color_system=None if plain else "auto",
            highlight=False,
            emoji=False,
            markup=False,
            soft_wrap=False,
        )
        console.push_render_hook(Visible())
        return console

    def json(self, command: str, content: dict[str, Any]) -> None:
        """Print one versioned object; a number that is not finite becomes null.

        Where the user's ``--seconds`` cut the answer, it says so: ``stopped_after_s``.
        """
        limit = limit_reached()
        record = {"schema": SCHEMA, "command": command, **content}
        if self.remarks:
            record.setdefault("not_modelled", list(self.remarks))
        if limit is not None:
            record["stopped_after_s"] = limit
        ctx = click.get_current_context(silent=True)
        if ctx is not None and STANDS in ctx.meta:
            record["kernels"] = ctx.meta[STANDS]
        click.echo(json_line(_finite(record)))

    def not_modelled(self, keys: Mapping[str, str]) -> None:
        """Name in one line on stderr, and in the JSON, the keys of a model's file that are not modelled."""
        self.remarks.update(keys)
        if keys:
            self.note(f"not modelled: {', '.join(f'{key} ({remark})' for key, remark in keys.items())}")

    def note(self, text: str) -> None:
        """Print one line on stderr unless quiet."""
        if not self.quiet:
            click.echo(visible(text), err=True)

    @contextmanager
    def progress(self) -> Iterator["Progress"]:
        """Yield a progress bar on stderr unless quiet; without a terminal it prints a line now and then."""
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
        from rich.text import Text

        class Count(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(how_far(task.completed, task.total, task.speed))

        console = self.console(err=True)
        shown = not self.quiet and console.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), Count())
        with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
            if shown or self.quiet:
                yield bar
                return
            done = Event()

            def speak() -> None:
                last, since = "", monotonic()
                while not done.wait(EVERY_S):
                    for task in bar.tasks:
                        line = f"{task.description}: {how_far(task.completed, task.total, task.speed)}"
                        if line != last:
                            last, since = line, monotonic()
                            click.echo(line, err=True)
                        else:
                            click.echo(f"{line}, for {duration(monotonic() - since)}", err=True)

            speaker = Thread(target=speak, daemon=True)
            speaker.start()
            try:
                yield bar
            finally:
                done.set()
                speaker.join()

    def by_the_way(self, text: str) -> None:
        """Print a part of the answer as soon as it is known, above a terminal's bar and nowhere else."""
        if sys.stderr.isatty():
            self.note(text)

    @contextmanager
    def reporting(self) -> Iterator[Callable[[str, int, int], None]]:
        """Yield a function of a stage's name, its progress, and its total; 0 if that is not known."""
        with self.progress() as bar:
            tasks = [bar.add_task("looking", total=None)]

            def report(what: str, done: int, total: int) -> None:
                if bar.tasks[0].description != what:
                    bar.remove_task(tasks.pop())
                    tasks.append(bar.add_task(what, total=total or None))
                bar.update(tasks[0], completed=done, total=total or None)

            yield report

    @contextmanager
    def ending(self, kind: type) -> Iterator[list[Any]]:
        """Give a list for the answer of a block; ended early, the list gets the answer so far.

        After the block the caller shows what is in the list, and ends with :meth:`end`.

        Args:
            kind: The type of the answer; that of a computation inside the block is none.
        """
        answer: list[Any] = []
        try:
            yield answer
        except EndedEarlyError as early:
            if not isinstance(early.found, kind):
                raise
            answer[:] = [early.found]
            self.early.append(True)

    def end(self) -> None:
        """End the command as one that was ended early, if it was; click.Abort if so."""
        if self.early:
            raise click.Abort

    @contextmanager
    def tracking(self, what: str) -> Iterator[Callable[[Iterable[int]], Iterable[int]]]:
        """Yield a function that hands out numbers one after another and advances the bar."""
        with self.progress() as bar:
            yield lambda numbers: bar.track(list(numbers), description=what)


def how_far(completed: float, total: float | None, speed: float | None) -> str:
    """Return how far something is, and how long the rest takes at its speed.

    A total that nobody counts to, such as that of all layouts of a chain, says nothing and is left out.

    >>> how_far(1200, 16800, 850.4), how_far(0, None, None), how_far(52, 2**40, 0.57)
    ('1,200 of 16,800, about 18 s left', 'working', '52 done')
    """
    if total is None or completed > MOST_COUNTED:
        return "working"
    if total > MOST_COUNTED:
        return f"{completed:,.0f} done"
    seconds = (total - completed) / speed if speed else LONGEST_S
    left = f", about {duration(seconds)} left" if total > completed and seconds < LONGEST_S else ""
    return f"{completed:,.0f} of {total:,.0f}{left}"


@dataclass(frozen=True)
class _Shown:
    """A rich renderable whose texts the terminal shows and never obeys."""

    inner: "ConsoleRenderable"

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.segment import Segment

        for segment in console.render(self.inner, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


class _Trimmed:
    """A stream that gets no spaces at the ends of lines."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(re.sub(r" +(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _finite(value: Any) -> Any:
    """Return a value with None for every number that is not finite, for which JSON has no form."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def facts() -> "Table":
    """Return an empty table of names and texts."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, min_width=8)
    table.add_column(overflow="fold")
    return table


def grid(headings: Sequence[str], numbers: Collection[str] = (), folds: Collection[str] = ()) -> "Table":
    """Return an empty table without lines.

    Args:
        numbers: Those aligned on the right.
        folds: Those whose words go on in the next line; no others are broken.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        justify: Any = "right" if heading in numbers else "left"
        wraps = heading in folds
        table.add_column(
            heading, justify=justify, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis"
        )
    return table


MOST_COLUMNS = 10_000  # columns that no table needs


def width_of(console: "Console", table: "Table") -> int:
    """Return how many columns a table takes if none of its words is broken."""
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(width=MOST_COLUMNS), table).maximum


def print_whole(console: "Console", table: "Table") -> None:
    """Print a table; where it is wider than the console its lines are, rather than that a word breaks."""
    width = console.width
    console.width = max(width, width_of(console, table))
    console.print(table, crop=False)
    console.width = width


SHORT = {"stationary": "stat."}  # headings where a table would be too wide


def print_fitting(
    console: "Console", lines: Sequence[Sequence[str]], numbers: Collection[str], styles: Sequence[str]
) -> None:
    """Print lines as a table; where that is too wide, with short headings, or with words below the numbers.

    Args:
        lines: Of cells, the headings first.
        numbers: Headings of the columns that are aligned on the right; the others have words.
        styles: Of each line.
    """
    from rich.padding import Padding
    from rich.text import Text

    short = [[SHORT.get(heading, heading) for heading in lines[0]], *lines[1:]]
    for gap, shown in ((2, lines), (1, lines), (1, short)):
        table = _table(shown, numbers, styles, gap)
        if width_of(console, table) <= console.width:
            console.print(table)
            return
    widths = [max(map(len, column)) for column in zip(*short, strict=True)]
    above = [i for i, heading in enumerate(lines[0]) if heading in numbers]
    while len(above) > 1 and sum(widths[i] + 2 for i in above) - 2 > console.width:
        above.pop()
    below = [i for i in range(len(widths)) if i not in above]
    indent = widths[above[0]] + 2
    for line, style in zip(short, styles, strict=True):
        console.print(Text("  ".join(line[i].rjust(widths[i]) for i in above), style=style))
        if line is not short[0]:
            items = [f"{lines[0][i]} {line[i]}" for i in below]
            console.print(Padding(Text(_joined(items, console.width - indent)), (0, 0, 0, indent)))


def _joined(items: Iterable[str], width: int) -> str:
    """Return items joined by commas, each whole on one line unless it is wider than that.

    >>> print(_joined(["$/million 4,993.83", "memory 55.2 GiB"], 24))
    $/million 4,993.83,
    memory 55.2 GiB
    """
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 2 < width:
            lines[-1] += f", {item}"
        else:
            lines.append(item)
    return ",\n".join(lines)


def _table(
    lines: Sequence[Sequence[str]], numbers: Collection[str], styles: Sequence[str], gap: int
) -> "Table":
    """Return lines as a table, the headings first, with a gap between its columns."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, gap, 0, 0))
    for heading in lines[0]:
        table.add_column(justify="right" if heading in numbers else "left", no_wrap=True)
    for line, style in zip(lines, styles, strict=True):
        table.add_row(*line, style=style)
    return table


def cut(count: int, most: int) -> list[int | None]:
    """Return the indices to show, with None where some are left out.

    >>> cut(4, 4), cut(9, 4)
    ([0, 1, 2, 3], [0, 1, None, 8])
    """
    if count <= most:
        return list(range(count))
    return [*range(most - 2), None, count - 1]
