"""Where output goes: data to stdout, notes and progress to stderr, colour only on a terminal."""

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

SCHEMA = 1


@dataclass(frozen=True)
class Output:
    """The form of the output that was asked for.

    Attributes:
        as_json: One JSON object instead of text.
        quiet: No notes and no progress.
        no_color: Plain text even on a terminal.
    """

    as_json: bool = False
    quiet: bool = False
    no_color: bool = False

    def console(self, err: bool = False) -> "Console":
        """Return a rich console for stdout, or for stderr."""
        from rich.console import Console

        class Piped(Console):
            def on_broken_pipe(self) -> None:
                raise  # called where a BrokenPipeError is handled; rich would exit with 1

        plain = self.no_color or bool(os.environ.get("NO_COLOR"))
        return Piped(
            file=_trimmed(sys.stderr if err else sys.stdout),
            color_system=None if plain else "auto",
            highlight=False,
            emoji=False,
            markup=False,
            soft_wrap=False,
        )

    def json(self, command: str, content: dict[str, Any]) -> None:
        """Print one versioned object; a number that is not finite becomes null."""
        record = {"schema": SCHEMA, "command": command, **content}
        click.echo(json.dumps(_finite(record), ensure_ascii=False, allow_nan=False))

    def note(self, text: str) -> None:
        """Print one line on stderr unless quiet."""
        if not self.quiet:
            click.echo(text, err=True)

    @contextmanager
    def progress(self) -> Iterator["Progress"]:
        """Give a progress bar on stderr, shown only on a terminal and unless quiet; gone at the end."""
        from rich.progress import Progress

        console = self.console(err=True)
        with Progress(console=console, transient=True, disable=self.quiet or not console.is_terminal) as bar:
            yield bar

    @contextmanager
    def tracking(self, what: str) -> Iterator[Callable[[Iterable[int]], Iterable[int]]]:
        """Give what hands out numbers one after another and shows on the bar how far it is."""
        with self.progress() as bar:
            yield lambda numbers: bar.track(list(numbers), description=what)


def _trimmed(stream: Any) -> IO[str]:
    """Return a stream that, unless it is a terminal, gets no spaces at the ends of lines."""
    return cast(IO[str], stream if stream.isatty() else _Trimmed(stream))


class _Trimmed:
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
