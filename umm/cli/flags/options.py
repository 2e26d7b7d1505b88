"""The flags that commands share: the problem, the machine, who executes, the form of the output."""

from contextlib import redirect_stdout
from fractions import Fraction
from functools import cached_property
from io import StringIO
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.declared import Asked, flag
from umm.cli.flags.values import (
    PRESETS,
    Finite,
    among,
    dimension,
    executors,
    load_config,
    load_preset,
    machines,
    named_values,
    scale,
)
from umm.cli.printed.output import STANDS
from umm.cli.printed.streams import stop_after
from umm.dtypes import DTYPES
from umm.errors import InputError
from umm.files import shown, whole_file
from umm.quoting.terminal import visible

if TYPE_CHECKING:
    from umm.machines import Machine
    from umm.program.models.layers import Model
    from umm.program.problem import Problem
    from umm.space.search.noise import Noise


class _PathOfAnybody(click.Path):
    """A path that may be no path at all: with a NUL, or with half a character."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except ValueError:
            self.fail(f"{shown(str(value))} cannot name a file; write a path", param, ctx)


MOST_RUNS = 10_000_000  # of an executor, warm-ups included
READ = _PathOfAnybody(dir_okay=False, path_type=Path)
WRITE = _PathOfAnybody(dir_okay=False, path_type=Path)
FOLDER = _PathOfAnybody(file_okay=False, path_type=Path)
CARDS = "umm.cli.cards"  # whether a command has said by what cards nodes are joined, by its context


def into_file(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Redirect the command's stdout into a file; it is written even if the command then fails.

    InputError if it cannot be written.
    """
    if path is None or str(path) == "-":  # stdout itself
        return
    from umm.cli.printed.save import check_targets

    check_targets({"output": path})
    printed = StringIO()

    def write() -> None:
        if printed.getvalue():
            with whole_file(path) as partial:
                partial.write_text(printed.getvalue(), encoding="utf-8")
            if not ctx.params.get("quiet"):
                click.echo(visible(f"wrote {path}"), err=True)

    ctx.call_on_close(write)
    ctx.with_resource(redirect_stdout(printed))


class Printed(Asked, heading="Output"):
    """The form of the output."""

    as_json: bool = flag("--json", usual=True, help="One JSON object on stdout.")
    quiet: bool = flag(help="No progress and no notes on stderr.")
    no_color: bool = flag(help="No colour; so does NO_COLOR.")


class Answering(Printed, heading="Output"):
    """The form of the output, and where to."""

    to_file: None = flag(
        "-o", "--output", type=WRITE, callback=into_file, metavar="FILE", help="Write stdout to a file.",
    )  # fmt: skip


class Located(Asked, heading="Machine"):
    """A machine."""

    machine: Any = flag(
        metavar="NAME|FILE", shell_complete=among(machines), usual=True,
        help="A machine of 'umm machine list' or a machine file.",
    )  # fmt: skip
    nodes: str | None = flag(
        metavar="N", usual=True,
        help="Number of nodes, for machines whose file has network cards; the file's own if not given.",
    )  # fmt: skip
    changes: tuple[str, ...] = flag(
        "--set", multiple=True, metavar="KEY=VALUE",
        help="Set a machine number to a value or times a factor: fabric.bandwidth=x0.5.",
    )  # fmt: skip
    kernels: Any = flag(
        metavar="ENGINE",
        help="Whose kernels the machine has: vllm, trtllm, sglang, pytorch or xla, where its file has them; "
        "the file's own numbers if not given.",
    )  # fmt: skip
    graphs: bool | None = flag(
        "--graphs/--eager", default=None,
        help="Kernels of --kernels in CUDA graphs, as engines run them, or launched one by one.",
    )  # fmt: skip

    @cached_property
    def hardware(self) -> "Machine":
        """The machine that --machine, --nodes and --set describe.

        InputError for several values of a number. MachineError for a machine or a number that does not exist,
        or a value that cannot be.
        """
        for key, values in self._settings():
            if len(values) > 1:
                name = f"--{key}" if key in ("nodes", "kernels") else f"--set {key}"
                raise InputError(f"{name} has several values; a list is an axis of umm search and umm sweep")
        return self.machines(self.machine)[0]

    def machines(self, name: str) -> "list[Machine]":
        """Return a machine with every combination of the values that --nodes and --set give.

        MachineError for a machine or a number that does not exist, or a value that cannot be.
        """
        from umm.machines import machine
        from umm.machines.cluster import cards_in_words

        settings = self._settings()
        keys, lists = [key for key, _ in settings], [values for _, values in settings]
        choices = [dict(zip(keys, values, strict=True)) for values in product(*lists)]
        machines = [machine(name, self._by_model(name, x)) for x in choices]
        engines = dict.fromkeys(x.engine for x in machines if x.engine is not None)
        meta, words = self.ctx.meta, list[str]()
        if engines and STANDS not in meta:  # whose kernels they are is said once; answers in JSON have it too
            meta[STANDS] = [engine.model_dump() for engine in engines]
            words = [engine.in_words for engine in engines]
        if self.nodes is not None and CARDS not in meta and not self.output.as_json:
            meta[CARDS] = True
            cards = [cards_in_words(x.document, x.source_path.stem) for x in machines]
            words += dict.fromkeys(filter(None, cards))
        for text in words if not self.output.as_json else ():
            self.output.note(text)
        return machines

    def _by_model(self, name: str, settings: dict[str, str]) -> dict[str, str]:
        """Return settings with the backend of attention that an engine takes for the model of the command."""
        from umm.machines import machine
        from umm.machines.settings import KERNELS, split_settings
        from umm.program.models import find_model
        from umm.serve.rates import kernels_of

        model, engine = getattr(self, "model", None), (split_settings(name)[1] | settings).get(KERNELS)
        if not engine or not model:
            return settings
        known = find_model(model, getattr(self, "ignore", ()))
        return settings | {KERNELS: kernels_of(engine, known, machine(name))}

    def _settings(self) -> list[tuple[str, list[str]]]:
        """Return each number that is set, with its values; that of nodes first."""
        from umm.machines.settings import GRAPHS, KERNELS, NODES, read_setting

        graphs = None if self.graphs is None else "yes" if self.graphs else "no"
        flags = ((NODES, self.nodes), (KERNELS, self.kernels), (GRAPHS, graphs))
        settings = [(key, text) for key, text in flags if text is not None]
        settings += [read_setting(text) for text in self.changes]
        keys = [key for key, _ in settings]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise InputError(f"{twice} is set twice; keep one, or write a list: --set {twice}=x0.5,x1")
        return [(key, [part.strip() for part in value.split(",")]) for key, value in settings]


class Configured(Asked):
    """A file of flags."""

    config: Path | None = flag(
        type=READ, is_eager=True, callback=load_config, help="TOML file with flag names as keys.",
    )  # fmt: skip


class FromModel(Asked):
    """A model, by its name or its file."""

    model: str = flag(
        required=True, metavar="NAME|FILE", usual=True, help="A model of 'umm models', or its config.json.",
    )  # fmt: skip
    ignore: tuple[str, ...] = flag(
        multiple=True, metavar="KEY", help="Read --model's config.json without this key; may be repeated.",
    )  # fmt: skip

    def read_model(self, priced: str = "") -> "Model":
        """Return the model, and note its file's keys that are not modelled.

        InputError if there is no such model, or its file is refused.

        Args:
            priced: Remark of keys that the command prices all the same.
        """
        from umm.program.models import find_model

        model = find_model(self.model, self.ignore)
        self.output.not_modelled({key: x for key, x in model.not_modelled.items() if x != priced})
        return model


class Typed(Asked, heading="Problem"):
    """The types of the elements."""

    dtype: str = flag(
        default="float32", metavar="TYPE", shell_complete=among(lambda: DTYPES),
        usual=True,
        help=f"Type of A and B: {', '.join(DTYPES)}, or short: bf16, fp16, f32, f64, fp8 (e4m3); "
        "fp8xe5m2 if A and B differ, fp8:128 for a scale per 128 elements along k.",
    )  # fmt: skip
    c_dtype: str = flag(
        default="", metavar="TYPE", shell_complete=among(lambda: DTYPES),
        help="Type of C; if not given, that of A and B, or bfloat16 if they have 8 bits.",
    )  # fmt: skip
    given: str = flag(
        default="", metavar="a=row,…",
        help="Where A and B start and C must end, or where a chain's inputs start (X=row,…); moving them is "
        "part of the schedule.",
    )  # fmt: skip


class Counted(Asked, heading="Machine"):
    """A number of ranks, which a help lists before the machine."""

    ranks: Any = flag(
        type=int, metavar="P", usual=True, help="Number of ranks; the machine's own number if not given.",
    )  # fmt: skip


class OnRanks(Located, Counted, heading="Machine"):
    """A machine and a number of its ranks."""

    @property
    def count(self) -> int:
        """Number of ranks, the machine's own if none is given, checked to be possible there."""
        count = self.hardware.default_ranks if self.ranks is None else self.ranks
        self.hardware.check_ranks(count)
        return int(count)


class Dimensions(Asked, heading="Problem"):
    """The sizes of a multiply."""

    preset: str | None = flag(
        type=click.Choice(list(PRESETS)), is_eager=True, callback=load_preset, usual=True,
        help="Sizes of an MLP's multiply: mlp1 is 8192x49152x12288, mlp2 8192x12288x49152 (m, n, k).",
    )  # fmt: skip
    m: Any = flag(
        "-m", callback=dimension, metavar="SIZE", usual=True,
        help="Rows of A and C; 48K means 49152, 2M 2097152, 1e6 a million.",
    )  # fmt: skip
    n: Any = flag("-n", callback=dimension, metavar="SIZE", usual=True, help="Columns of B and C.")
    k: Any = flag("-k", callback=dimension, metavar="SIZE", usual=True, help="Columns of A, rows of B.")


class OfSizes(OnRanks, Typed, Dimensions, Configured, heading="Problem"):
    """A multiply's sizes and types, and a machine."""

    @property
    def dimensions(self) -> dict[str, Any]:
        """The sizes m, n and k; InputError if one is missing."""
        sizes = {"m": self.m, "n": self.n, "k": self.k}
        missing = [f"-{name}" for name, size in sizes.items() if size is None]
        if missing:
            raise InputError(
                f"the problem lacks {' and '.join(missing)}; give -m, -n and -k, or --preset mlp1"
            )
        return sizes

    @property
    def types(self) -> dict[str, Any]:
        """The types, and where operands are given."""
        return {"dtype": self.dtype, "c_dtype": self.c_dtype, "given": self.given}


class OfProblem(OfSizes, heading="Problem"):
    """A multiply, laid out."""

    a: str = flag(
        default="row", metavar="LAYOUT", usual=True,
        help="Layout of A: row, col, 2d, 2d:3x4, cyclic:256x128:3x4, …, then @c for c replicas; shard(0), "
        "dtensor:…, jax:….",
    )  # fmt: skip
    b: str = flag(default="row", metavar="LAYOUT", usual=True, help="Layout of B.")
    c: str = flag(default="row", metavar="LAYOUT", usual=True, help="Layout of C.")

    @property
    def problem(self) -> "Problem":
        """The multiply; without --ranks on all of the machine's.

        InputError if a dimension is missing, or it cannot be.
        """
        from umm.program.problem import Problem

        return Problem(**self.dimensions, a=self.a, b=self.b, c=self.c, **self.types, ranks=self.count)


class Executed(Asked, heading="Execution"):
    """Who executes, with its own options."""

    executor: str = flag(
        default="numpy", metavar="NAME", shell_complete=among(executors),
        help="Executor; 'umm doctor' lists what can run here.",
    )  # fmt: skip
    options: dict[str, Any] = flag(
        "--option", multiple=True, callback=named_values, metavar="NAME=VALUE",
        help="An option of the executor, such as accumulate=landing; repeatable.",
    )  # fmt: skip


class Measured(Executed, heading="Execution"):
    """Who executes a schedule and how often."""

    iters: int = flag(type=click.IntRange(max=MOST_RUNS), default=10, help="Measured runs.")
    warmup: int = flag(type=click.IntRange(0, MOST_RUNS), default=1, help="Warm-up runs before them.")
    scale: Fraction | None = flag(
        callback=scale, metavar="1/16", help="Scale m, n and k by this factor, to fit this host.",
    )  # fmt: skip


class Noisy(Asked, heading="Noise"):
    """How runs differ from the prediction."""

    jitter: str | None = flag(
        metavar="SHARE",
        help="Random variation of every rank: 3%, or gemm=2%,link=5%,launch=10%. normal: a normal "
        "distribution, not a lognormal one; delay: ranks are late but never early; gemm=FILE draws from "
        "measured seconds. Adds p50 and p95 over draws.",
    )  # fmt: skip
    straggler: str | None = flag(
        metavar="COUNT:RATE", help="Slow ranks: 1:0.8 is one random rank that computes at 80 %.",
    )  # fmt: skip
    draws: int = flag(
        type=click.IntRange(1, 100_000), default=200,
        help="Number of draws of --jitter and --straggler.",
    )  # fmt: skip
    seed: int = flag(
        type=click.IntRange(min=0), default=0, show_default=True,
        help="Seed of the draws; all candidates have the same draws.",
    )  # fmt: skip

    @cached_property
    def noise(self) -> "Noise | None":
        """The noise; None without its flags; InputError for a bad text, or draws of none."""
        if self.jitter is None and self.straggler is None:
            self.refuse(("draws", "seed"), "{} is of noise; add --jitter or --straggler, or leave it out")
            return None
        from umm.space.search.noise import Noise

        return Noise.of(self.jitter, self.straggler, draws=self.draws, seed=self.seed)


def _stop_after(ctx: click.Context, param: click.Parameter, seconds: float | None) -> float | None:
    if seconds is not None:
        ctx.call_on_close(stop_after(seconds))
    return seconds


class Limited(Asked):
    """A limit of time, at which a command ends with its results so far."""

    seconds: float | None = flag(
        type=Finite(min=0, min_open=True), callback=_stop_after, metavar="SECONDS",
        help="Stop after this time with the best found so far, marked as not proven.",
    )  # fmt: skip


class Budgeted(Asked, heading="Space"):
    """The memory limit of a rank."""

    memory: str = flag(
        default="device", show_default="90 % of the device", metavar="BUDGET", usual=True,
        help="Memory limit of a rank: 16GiB, a multiple of the unreplicated share such as 2x, or none: all "
        "of the device.",
    )  # fmt: skip

    @property
    def budget(self) -> str | None:
        """The memory limit of a rank; None for all of the device."""
        return None if self.memory == "none" else self.memory


class Paged(Asked, heading="Output"):
    """A page of the answer."""

    html: Path | None = flag(type=WRITE, usual=True, help="Write a standalone page.")


class FromFile(Asked, heading="Schedule"):
    """A schedule that was saved."""

    saved: Path | None = flag("--schedule", type=READ, help="Run a saved schedule instead.")
