"""The flags that commands share: the problem, who executes, the form of the output."""

from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from umm.cli.flags.values import (
    PRESETS,
    Finite,
    among,
    dimension,
    dimension_list,
    executors,
    load_config,
    load_preset,
    machines,
    named_values,
    ranks,
    scale,
)
from umm.cli.printed.streams import stop_after
from umm.dtypes import DTYPES
from umm.files import shown, whole_file
from umm.quoting.terminal import visible

if TYPE_CHECKING:
    from umm.space.search.noise import Noise

Command = TypeVar("Command", bound=Callable[..., Any])
PROBLEM = (
    "m",
    "n",
    "k",
    "a",
    "b",
    "c",
    "dtype",
    "c_dtype",
    "given",
    "ranks",
    "machine",
    "nodes",
    "changes",
    "preset",
)
NOISE = ("jitter", "straggler", "draws", "seed")


class _PathOfAnybody(click.Path):
    """A path that may be no path at all: with a NUL, or with half a character."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except ValueError:
            self.fail(f"{shown(str(value))} cannot name a file; write a path", param, ctx)


MOST_RUNS = 10_000_000
"""Of an executor, warm-ups included."""
READ = _PathOfAnybody(dir_okay=False, path_type=Path)
WRITE = _PathOfAnybody(dir_okay=False, path_type=Path)
FOLDER = _PathOfAnybody(file_okay=False, path_type=Path)


def option(*names: str, **extra: Any) -> Callable[[Command], Command]:
    """Return a Click option that ``UMM_<NAME>`` can also set."""
    flag = next((name for name in names if name.startswith("--")), names[0])
    variable = "UMM_" + flag.split("/")[0].strip("- ").replace("-", "_").upper()
    return click.option(*names, envvar=variable, **extra)


def given(ctx: click.Context, names: Iterable[str]) -> list[str]:
    """Return those of some flags that were typed, as they are typed."""
    return [
        ("-" if name in "mnk" else "--")
        + {"options": "option", "settings": "with", "changes": "set"}.get(name, name).replace("_", "-")
        for name in names
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]


def problem_options(
    machine: str, layouts: bool = True, many_m: bool = False, many_ranks: bool = False
) -> Callable[[Command], Command]:
    """Return a decorator that adds the flags of a problem.

    Args:
        machine: Name of the machine a command takes when none is given.
        layouts: Whether the command takes one layout for each matrix.
        many_m: Whether it takes several sizes m.
        many_ranks: Whether it takes several numbers of ranks and of nodes.
    """
    rows = (dimension_list, "LIST", "Rows of A and C: 1K,2K,4K.") if many_m else (
        dimension, "SIZE", "Rows of A and C; 48K means 49152, 2M 2097152, 1e6 a million.")  # fmt: skip
    flags = [
        option(
            "--config", type=READ, is_eager=True, callback=load_config, expose_value=False,
            help="TOML file with flag names as keys.",
        ),
        option(
            "--preset", type=click.Choice(list(PRESETS)), is_eager=True, callback=load_preset,
            help="Sizes of an MLP's multiply: mlp1 is 8192x49152x12288, mlp2 8192x12288x49152 (m, n, k).",
        ),
        option("-m", callback=rows[0], metavar=rows[1], help=rows[2]),
        option("-n", callback=dimension, metavar="SIZE", help="Columns of B and C."),
        option("-k", callback=dimension, metavar="SIZE", help="Columns of A, rows of B."),
        *type_options(),
        given_option(),
        ranks_option(many_ranks),
        option("--machine", default=machine, show_default=True, metavar="NAME|FILE",
               shell_complete=among(machines),
               help="A machine of 'umm machine list' or a machine file."),
        nodes_option(many_ranks),
        set_option(),
        kernels_option(),
    ]  # fmt: skip
    if layouts:
        form = (
            "row, col, 2d, 2d:3x4, cyclic:256x128:3x4, …, then @c for c replicas; shard(0), dtensor:…, jax:…"
        )
        flags += [
            option("--a", default="row", show_default=True, metavar="LAYOUT", help=f"Layout of A: {form}."),
            option("--b", default="row", show_default=True, metavar="LAYOUT", help="Layout of B."),
            option("--c", default="row", show_default=True, metavar="LAYOUT", help="Layout of C."),
        ]
    return all_of(flags)


def ranks_option(several: bool = False) -> Callable[[Any], Any]:
    """Return the flag for the number of ranks, or several of them."""
    said = "Number of ranks; the machine's own number if not given."
    if not several:
        return option("--ranks", type=int, metavar="P", help=said)
    return option("--ranks", callback=ranks, metavar="LIST", help=f"{said} A list compares numbers: 8,16,32.")


def nodes_option(several: bool = False) -> Callable[[Any], Any]:
    """Return the flag for the number of nodes, or several of them."""
    said = "Number of nodes, for machines whose file has network cards; the file's own number if not given."
    return option(
        "--nodes", metavar="LIST" if several else "N",
        help=f"{said} A list compares numbers: 1,2,4." if several else said,
    )  # fmt: skip


def set_option() -> Callable[[Any], Any]:
    """Return the flag that sets numbers of the machine."""
    return option(
        "--set", "changes", multiple=True, metavar="KEY=VALUE",
        help="Set a machine number to a value or times a factor: fabric.bandwidth=x0.5.",
    )  # fmt: skip


def kernels_option() -> Callable[[Any], Any]:
    """Return the flags that say whose kernels the machine has, and how they run."""
    return all_of([
        option(
            "--kernels", metavar="ENGINE",
            help="Whose kernels the machine has: vllm, trtllm, sglang, pytorch or xla, where its file has "
            "them; the file's own numbers if not given.",
        ),
        option(
            "--graphs/--eager", "graphs", default=None,
            help="Kernels of --kernels in CUDA graphs, as engines run them, or launched one by one.",
        ),
    ])  # fmt: skip


def type_options() -> list[Callable[[Any], Any]]:
    """Return the flags of the types of A and B, and of C."""
    return [
        option("--dtype", default="float32", show_default=True, metavar="TYPE",
               shell_complete=among(lambda: DTYPES),
               help=f"Type of A and B: {', '.join(DTYPES)}, or short: bf16, fp16, f32, f64, fp8 (e4m3); "
                    "fp8xe5m2 if A and B differ, fp8:128 for a scale per 128 elements along k."),
        option("--c-dtype", default="", metavar="TYPE", shell_complete=among(lambda: DTYPES),
               help="Type of C; if not given, that of A and B, or float32 if they have 16 bits."),
    ]  # fmt: skip


def given_option() -> Callable[[Any], Any]:
    """Return the flag that says where operands are."""
    return option(
        "--given", default="", metavar="a=row,…",
        help="Where A and B start and C must end, or where a chain's inputs start (X=row,…); moving "
        "them is part of the schedule.",
    )  # fmt: skip


def executor_options() -> Callable[[Command], Command]:
    """Return a decorator that adds the executor's own options."""
    return option(
        "--option", "options", multiple=True, callback=named_values, metavar="NAME=VALUE",
        help="An option of the executor, such as accumulate=landing; repeatable.",
    )  # fmt: skip


def measure_options(executor: str) -> Callable[[Command], Command]:
    """Return a decorator that adds who executes a schedule and how often; with the executor's default."""
    return all_of(
        [
            option("--executor", default=executor, show_default=True, metavar="NAME",
                   shell_complete=among(executors),
                   help="Executor; 'umm doctor' lists what can run here."),
            executor_options(),
            option("--iters", type=click.IntRange(max=MOST_RUNS), default=10, show_default=True,
                   help="Measured runs."),
            option("--warmup", type=click.IntRange(0, MOST_RUNS), default=1, show_default=True,
                   help="Warm-up runs before them."),
            option("--scale", callback=scale, metavar="1/16",
                   help="Scale m, n and k by this factor, to fit this host."),
        ]
    )  # fmt: skip


def noise_options() -> Callable[[Command], Command]:
    """Return a decorator that adds how runs differ from the prediction; :func:`asked_noise` takes them."""
    return all_of(
        [
            option("--jitter", metavar="SHARE",
                   help="Random variation of every rank: 3%, or gemm=2%,link=5%,launch=10%. normal: a "
                        "normal distribution, not a lognormal one; delay: ranks are late but never early; "
                        "gemm=FILE draws from measured seconds. Adds p50 and p95 over draws."),
            option("--straggler", metavar="COUNT:RATE",
                   help="Slow ranks: 1:0.8 is one random rank that computes at 80 %."),
            option("--draws", type=click.IntRange(1, 100_000), default=200, show_default=True,
                   help="Number of draws of --jitter and --straggler."),
            option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
                   help="Seed of the draws; all candidates have the same draws."),
        ]
    )  # fmt: skip


def asked_noise(flags: dict[str, Any]) -> "Noise | None":
    """Take the flags of noise out of all flags and return what they mean; None if neither is given.

    Raises:
        InputError: for a text that means nothing.
    """
    jitter, straggler, draws, seed = (flags.pop(x) for x in NOISE)
    if jitter is None and straggler is None:
        return None
    from umm.space.search.noise import Noise

    return Noise.of(jitter, straggler, draws=draws, seed=seed)


def time_limit() -> Callable[[Command], Command]:
    """Return a decorator that adds a limit of time, at which a command ends with what it has found."""
    return option(
        "--seconds", type=Finite(min=0, min_open=True), callback=_stop_after, expose_value=False,
        metavar="SECONDS", help="Stop after this time with the best found so far, marked as not proven.",
    )  # fmt: skip


def _stop_after(ctx: click.Context, param: click.Parameter, seconds: float | None) -> None:
    if seconds is not None:
        ctx.call_on_close(stop_after(seconds))


def into_file(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Let what the command prints on stdout go into a file; one is written even if the command then fails.

    Raises:
        InputError: if it cannot be written.
    """
    if path is None or str(path) == "-":  # stdout itself
        return
    from umm.cli.printed.save import check_targets

    check_targets(path)
    printed = StringIO()

    def write() -> None:
        if printed.getvalue():
            with whole_file(path) as partial:
                partial.write_text(printed.getvalue(), encoding="utf-8")
            if not ctx.params.get("quiet"):
                click.echo(visible(f"wrote {path}"), err=True)

    ctx.call_on_close(write)
    ctx.with_resource(redirect_stdout(printed))


def output_options(file: bool = True) -> Callable[[Command], Command]:
    """Return a decorator that adds the form of the output.

    Args:
        file: Whether -o writes to a file what else goes to stdout; False for a command whose -o is another.
    """
    to_file = option(
        "-o", "--output", type=WRITE, callback=into_file, expose_value=False, metavar="FILE",
        help="Write stdout to a file.",
    )  # fmt: skip
    return all_of(
        [
            *([to_file] if file else []),
            option("--json", "as_json", is_flag=True, help="One JSON object on stdout."),
            option("--quiet", is_flag=True, help="No progress and no notes on stderr."),
            option("--no-color", is_flag=True, help="No colour; so does NO_COLOR."),
        ]
    )


def all_of(flags: list[Callable[[Any], Any]]) -> Callable[[Command], Command]:
    """Return a decorator that adds several flags, in this order."""

    def decorate(command: Command) -> Command:
        for flag in reversed(flags):
            command = flag(command)
        return command

    return decorate
