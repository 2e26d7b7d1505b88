"""The flags that commands share: the problem, the schedule's choices, the form of the output."""

import re
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from umm.cli.flags.config import PRESETS, load_config, load_preset
from umm.dtypes import DTYPES
from umm.errors import InputError
from umm.files import whole_file
from umm.units import parse_dimension

Command = TypeVar("Command", bound=Callable[..., Any])
PROBLEM = ("m", "n", "k", "a", "b", "c", "dtype", "ranks", "machine", "preset")
SCHEDULE = (
    "stationary",
    "policy",
    "prefetch",
    "max_gemms",
    "max_accumulates",
    "offset",
    "granularity",
    "reuse",
    "final",
)
READ = click.Path(dir_okay=False, path_type=Path)
WRITE = click.Path(dir_okay=False, path_type=Path)


def dimension(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Return the integer that a matrix dimension such as 48K means."""
    if text is None:
        return None
    try:
        return parse_dimension(text)
    except InputError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def option(*names: str, **extra: Any) -> Callable[[Command], Command]:
    """Return a Click option that ``UMM_<NAME>`` can also set."""
    flag = next((name for name in names if name.startswith("--")), names[0])
    variable = "UMM_" + flag.split("/")[0].strip("- ").replace("-", "_").upper()
    return click.option(*names, envvar=variable, **extra)


def given(ctx: click.Context, names: tuple[str, ...] = (*PROBLEM, *SCHEDULE)) -> list[str]:
    """Return those of some flags, the problem's and the schedule's, that were typed, as they are typed."""
    return [
        ("-" if name in "mnk" else "--") + {"options": "option"}.get(name, name).replace("_", "-")
        for name in names
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]


def problem_options(machine: str, layouts: bool = True) -> Callable[[Command], Command]:
    """Return a decorator that adds the flags of a problem.

    Args:
        machine: Name of the machine a command takes when none is given.
        layouts: Whether the command takes one layout for each matrix.
    """
    flags = [
        option(
            "--config", type=READ, is_eager=True, callback=load_config, expose_value=False,
            help="TOML file with flag names as keys.",
        ),
        option(
            "--preset", type=click.Choice(list(PRESETS)), is_eager=True, callback=load_preset,
            help="Sizes of an MLP's multiply: mlp1 is 8192x49152x12288, mlp2 8192x12288x49152 (m, n, k).",
        ),
        option("-m", callback=dimension, metavar="SIZE", help="Rows of A and C; 48K means 49152."),
        option("-n", callback=dimension, metavar="SIZE", help="Columns of B and C."),
        option("-k", callback=dimension, metavar="SIZE", help="Columns of A, rows of B."),
        option("--dtype", default="float32", show_default=True, metavar="TYPE",
               help=f"{', '.join(DTYPES)}."),
        option("--ranks", type=int, metavar="P", help="Processes; the machine's own number if not given."),
        option("--machine", default=machine, show_default=True, metavar="NAME|FILE",
               help="A machine of 'umm machine list' or a topology file."),
    ]  # fmt: skip
    if layouts:
        form = "row, col, 2d, 2d:3x4, cyclic:256x128:3x4, …, then @c for c replicas"
        flags += [
            option("--a", default="row", show_default=True, metavar="LAYOUT", help=f"Layout of A: {form}."),
            option("--b", default="row", show_default=True, metavar="LAYOUT", help="Layout of B."),
            option("--c", default="row", show_default=True, metavar="LAYOUT", help="Layout of C."),
        ]
    return _all(flags)


def schedule_options() -> Callable[[Command], Command]:
    """Return a decorator that adds the choices of a schedule beyond its problem."""
    return _all(
        [
            option("--stationary", default="auto", show_default=True, metavar="A|B|C|auto",
                   help="Matrix that stays in place; auto is the largest."),
            option("--policy", default="direct", show_default=True, metavar="NAME",
                   help="What orders the actions: direct, greedy, cost-greedy, exhaustive."),
            option("--prefetch", type=int, default=2, show_default=True, metavar="D",
                   help="Ops ahead whose tiles are fetched."),
            option("--max-gemms", type=int, default=2, show_default=True, metavar="G",
                   help="Gemms in flight."),
            option("--max-accumulates", type=int, default=2, show_default=True, metavar="S",
                   help="Accumulates in flight."),
            option("--offset", default="index", show_default=True, metavar="none|index|rotate",
                   help="Iteration offset."),
            option("--granularity", default="tile", show_default=True, metavar="tile|slice",
                   help="What a get moves."),
            option("--reuse", type=click.Choice(["on", "none"]), default="on", show_default=True,
                   help="Whether the next op that needs the same range finds it there."),
            option("--final", default="reduce", show_default=True, metavar="reduce|broadcast",
                   help="A replicated C ends complete in its origin, or in every replica."),
        ]
    )  # fmt: skip


def axis_options() -> Callable[[Command], Command]:
    """Return a decorator that adds layouts and choices as axes: one value or a comma list."""
    axes = {
        "a": (
            "all",
            "Layouts of A; all, also among others, is row, col and 2d with every replication factor.",
        ),
        "b": ("all", "Layouts of B."),
        "c": ("all", "Layouts of C."),
        "stationary": ("A,B,C", "Matrices that may stay in place."),
        "policy": ("direct", "What orders the actions."),
        "prefetch": ("2", "Ops ahead whose tiles are fetched."),
        "max-gemms": ("2", "Gemms in flight."),
        "max-accumulates": ("2", "Accumulates in flight."),
        "offset": ("index", "Iteration offset: none, index, rotate."),
        "granularity": ("tile", "What a get moves: tile, slice."),
        "reuse": ("on", "Whether a range is kept for the next op: on, none."),
        "final": ("reduce", "Where a replicated C ends: reduce, broadcast."),
    }
    return _all(
        [
            option(f"--{name}", default=default, show_default=True, metavar="LIST", help=text)
            for name, (default, text) in axes.items()
        ]
    )


def named_values(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Return what a list of NAME=VALUE means: numbers, on and off, and text otherwise."""
    words = {"on": True, "off": False, "true": True, "false": False}
    found: dict[str, Any] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name.isidentifier() and equals and value):
            raise click.BadParameter(f"{part!r} is no option; write it like blocks=16", ctx, param)
        found[name] = words[value] if value in words else _number_or_text(value)
    return found


def _number_or_text(value: str) -> int | float | str:
    if value.isdecimal():
        return int(value)
    return float(value) if re.fullmatch(r"\d*\.\d+", value) else value


def executor_options() -> Callable[[Command], Command]:
    """Return a decorator that adds the executor's own options."""
    return option(
        "--option", "options", multiple=True, callback=named_values, metavar="NAME=VALUE",
        help="An option of the executor, such as accumulate=landing; as often as wanted.",
    )  # fmt: skip


def measure_options(executor: str) -> Callable[[Command], Command]:
    """Return a decorator that adds who executes a schedule and how often; with the executor's default."""
    return _all(
        [
            option("--executor", default=executor, show_default=True, metavar="NAME",
                   help="Who executes; 'umm doctor' lists who can."),
            executor_options(),
            option("--iters", type=int, default=10, show_default=True, help="Runs that count."),
            option("--warmup", type=int, default=1, show_default=True, help="Runs before them."),
        ]
    )  # fmt: skip


def into_file(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Let what the command prints on stdout go into a file; one is written even if the command then fails.

    Raises:
        InputError: if it cannot be written.
    """
    if path is None:
        return
    from umm.cli.printed.save import check_targets

    check_targets(path)
    printed = StringIO()

    def write() -> None:
        if printed.getvalue():
            with whole_file(path) as partial:
                partial.write_text(printed.getvalue(), encoding="utf-8")
            if not ctx.params.get("quiet"):
                click.echo(f"wrote {path}", err=True)

    ctx.call_on_close(write)
    ctx.with_resource(redirect_stdout(printed))


def output_options(file: bool = True) -> Callable[[Command], Command]:
    """Return a decorator that adds the form of the output.

    Args:
        file: Whether -o writes to a file what else goes to stdout; False for a command whose -o is another.
    """
    to_file = option(
        "-o", "--output", type=WRITE, callback=into_file, expose_value=False, metavar="FILE",
        help="Write what goes to stdout to a file.",
    )  # fmt: skip
    return _all(
        [
            *([to_file] if file else []),
            option("--json", "as_json", is_flag=True, help="One JSON object on stdout."),
            option("--quiet", is_flag=True, help="No progress and no notes on stderr."),
            option("--no-color", is_flag=True, help="No colour; so does NO_COLOR."),
        ]
    )


def _all(flags: list[Callable[[Any], Any]]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for flag in reversed(flags):
            command = flag(command)
        return command

    return decorate
