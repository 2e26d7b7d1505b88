"""``umm search``: the best layouts for a problem and a machine, proven by bounds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.chain import BEST, ChainSearched
from umm.cli.flags.declared import command, flag, names_of
from umm.cli.flags.framework import OfFramework
from umm.cli.flags.options import WRITE, Answering, Budgeted, Limited, Noisy, Paged
from umm.cli.flags.scaling import Scaled, compare_scales, show_scales
from umm.cli.flags.schedule import SCHEDULE, SearchedAxes
from umm.cli.flags.values import dimension_list
from umm.cli.printed.output import Output
from umm.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from umm.machines import Machine
    from umm.space import Choice, Found, Space
    from umm.space.scaling import Scale
    from umm.space.search.noise import Noise
    from umm.space.search.walk import Progress

PARTITIONS = ("row", "col", "2d")
TOP = 10
OTHERWISE = ("gathered", "chunks")
"""Movements that each multiply of a chain may have too, where nothing is said and the best is not proven."""


class Search(
    OfFramework, SearchedAxes, ChainSearched, Scaled, Budgeted, Noisy, Paged, Limited, Answering,
    heading="Space",
):  # fmt: skip
    """A space of layouts and choices, and the form of the answer."""

    m: Any = flag(
        "-m", callback=dimension_list, metavar="LIST", usual=True, help="Rows of A and C: 1K,2K,4K.",
    )  # fmt: skip
    grids: str = flag(
        type=click.Choice(["all", "square"]), default="all", show_default=True,
        help="Process grids to try for 2d and cyclic: every one, or the most square.",
    )  # fmt: skip
    balanced: bool = flag(
        is_flag=True,
        help="Also try balanced row, col and 2d, whose tiles differ by one row or column at most.",
    )  # fmt: skip
    interleaved: bool = flag(is_flag=True, help="Also try interleaved replicas, on every c-th rank.")
    top: int | None = flag(
        type=int, usual=True, help="List this many of the fastest instead of the front of time and memory.",
    )  # fmt: skip
    emit: str | None = flag(
        type=click.Choice(("torch", "jax", "umm", "torchtitan", "megatron", "nccl")), usual=True,
        help="Print only a program that sets up the winner; of a chain torch, jax, torchtitan's TOML, "
        "Megatron-LM's flags or lines of NCCL's tuner.",
    )  # fmt: skip
    save_chain: Path | None = flag(
        type=WRITE, metavar="FILE.toml",
        help="Write the chain with the best layouts, called best, for --chain of other commands.",
    )  # fmt: skip

    @property
    def many(self) -> bool:
        """Whether several sizes or settings are asked for, which have one answer each."""
        return len(self.m or []) > 1 or any("," in text for text in self.changes)

    def spaces(self) -> "list[Space]":
        """Return the spaces: one for each m, or that of a chain.

        Raises:
            InputError: for an axis of one multiply in the search of a chain.
        """
        from umm.space import Space

        outline = self.outline()
        if outline is not None:
            others = [x for x in SCHEDULE if x not in ("stationary", "movement", "prefetch")]
            self.refuse(others, "{} is not an axis of a chain's search; leave it out")
            stationary = self.axes["stationary"] if self.typed(["stationary"]) else None
            axes = {x: self.axes_asked[x] for x in ("movement", "prefetch")}
            return [self.chain_space(outline, self.ranks, stationary=stationary, **axes)]
        self.refuse_layers()
        sizes = self.dimensions
        rows = sizes.pop("m")
        partitions = PARTITIONS + (tuple(f"{x}:balanced" for x in PARTITIONS) if self.balanced else ())
        orders = ("blocked", "interleaved") if self.interleaved else ("blocked",)
        among: dict[str, Any] = {"grids": self.grids, "partitions": partitions, "orders": orders}
        space = Space(rows[0], **sizes, **self.types, ranks=self.ranks, **self.axes_asked, **among)
        return [space.changed(m=m) for m in rows]

    def within_limit(self, space: "Space", find: "Callable[..., Found]", *how: Any, **more: Any) -> "Found":
        """Return the result of a search; where a model's layers cannot fit a limit, of one layer.

        A typed limit counts all typed layers, but those that a model implies only if they fit.
        """
        try:
            return find(space, *how, **more)
        except InfeasibleError as error:
            if space.layers == 1 or self.typed(["layers"]) or not self.typed(["memory"]):
                raise
            self.output.note(f"{space.layers} layers: {error}; --memory is taken for one, as with --layers 1")
            return find(space.changed(layers=1), *how, **more)

    @property
    def otherwise(self) -> tuple[str, ...]:
        """Movements that each multiply of a chain may have too."""
        return OTHERWISE if self.chain is not None and not self.typed(["movement"]) else ()


@command(Search, machine="h100-8")
def search(asked: Search) -> None:
    """Find the best layouts for a problem and a machine: the front of time against memory, with proof.

    Without further flags: row, col and 2d on every process grid with every replication factor for A, B and C,
    every stationary matrix, whole tiles and slices, every way to end a replicated C. Points are priced by a
    lower bound and simulated from the lowest up, until no bound left can beat what was found. A comma list
    makes an axis: --a row,col@2 --prefetch 1,2. Ctrl-C prints the best found so far, marked as not proven.

    With --chain the best layouts of all its tensors together. A gradient shares its tensor's layout, and a
    map's output its input's. Every multiply keeps its largest matrix in place, or with --stationary best the
    fastest one. With several --movement or --prefetch each multiply has its own; of movements within a node
    without the flag too, where the best with one for all is not proven and others make it faster. Memory is
    of all --layers, those of a --model if not given, and times are of one in the middle.

    Several sizes (-m 1K,2K,4K) or settings (--set fabric.bandwidth=x0.5,x1) have one answer each; several
    --nodes or --ranks one table: time, speed-up, efficiency, device time and, with --price, dollars.

    --emit prints the winner as a program: DTensor or torch.distributed, JAX shardings and jit, or umm.
    """
    from umm.cli.printed.leaderboard import answers_record, print_answers
    from umm.space import SearchInterruptedError
    from umm.space import search as find

    asked = asked.with_model(names_of(Noisy))
    output, noise, emit, html, top = asked.output, asked.noise, asked.emit, asked.html, asked.top
    chain = asked.chain is not None
    if emit and output.as_json:
        raise InputError("--emit prints a program alone; leave out --json")
    if emit and emit not in (EMITTED if chain else ("torch", "jax", "umm")):
        raise InputError(f"--emit {emit} is for {'one multiply' if chain else '--chain'}; leave it out")
    if html is not None and (emit or chain):
        raise InputError(
            f"--html draws the space of one multiply; leave out --{'chain' if chain else 'emit'}"
        )
    answers: list[Found] = []
    scales = asked.scales()
    if scales and not asked.many:
        asked.refuse_of_one(("emit", "save_chain", "top", *names_of(Noisy)))
        scaling = compare_scales(asked, scales, lambda one, report: _best_of(one, report, answers))
        show_scales(asked, scaling, answers_record(answers) if output.as_json and not chain else {})
        return
    if asked.layers is not None and asked.layers > 1 and noise is not None:
        raise InputError("--jitter and --straggler are for one layer; leave out --layers")
    spaces = asked.spaces()
    if asked.save_chain is not None and not chain:
        raise InputError("--save-chain needs a chain, such as --chain mlp")
    machines = asked.machines(asked.machine)
    several = len(spaces) * len(machines) > 1
    if several and noise is not None:
        raise InputError("--jitter and --straggler are for one answer; give one -m and one --set")
    if several and (emit or html is not None or top is not None or chain):
        which = "--emit" if emit else "--html" if html is not None else "--chain" if chain else "--top"
        raise InputError(f"several sizes or settings have one answer each; leave out {which}")

    def show_answers() -> None:
        asked.answer(lambda: answers_record(answers), lambda console: print_answers(console, answers))

    with output.progress() as bar:
        task = bar.add_task("searching", total=None)

        def say(what: str) -> None:
            bar.update(task, description=what)

        try:
            for machine in machines:
                for space in spaces:
                    result = asked.within_limit(
                        space, find, machine, memory=asked.budget, top=TOP if top is None else top,
                        progress=lambda settled, points: bar.update(task, completed=settled, total=points),
                        standing=lambda best, least: say(standing(best, least)),
                        otherwise=asked.otherwise,
                    )  # fmt: skip
                    answers.append(result)
        except SearchInterruptedError as stopped:
            if answers:
                show_answers()
            elif not stopped.found.top or emit:
                raise
            else:
                shown_best(output, stopped.found, None, say, True, False)
            raise click.Abort from None
        if several:
            show_answers()
            return
        try:
            best = shown_best(output, result, noise, say, top is not None, bool(emit))
        except KeyboardInterrupt:  # amid what follows a search: what is known is shown without it
            if emit:
                raise
            shown_best(output, replace(result, whole=False), None, say, True, False)
            raise click.Abort from None
        keep_best(asked, result, best, machines[0])


EMITTED = ("torch", "jax", "torchtitan", "megatron", "nccl")
"""What a chain is printed as; one multiply is printed for torch, JAX and umm."""


def keep_best(asked: Search, result: "Found", best: "Choice", machine: "Machine") -> None:
    """Print the best as a program, draw the space it is of, and write it as a chain, as asked for."""
    if asked.emit and asked.chain is not None:
        from umm.cli.printed.save import chain_program
        from umm.executor import run

        click.echo(chain_program(asked.emit, run(best.schedule(machine), "sim"), machine), nl=False)
    elif asked.emit:
        from umm.cli.printed.save import program_of
        from umm.machines.settings import split_settings

        settings = [f"{key}={value}" for key, value in split_settings(result.machine)[1].items()]
        named = " ".join([asked.machine, *settings])
        click.echo(program_of(best, machine, named, asked.emit), nl=False)
    asked.paged(result)
    if asked.save_chain is not None:
        from umm.program import save_chain

        save_chain(result.points.outline.with_layouts(BEST, best.layouts), asked.save_chain)
        asked.output.note(f"wrote the chain to {asked.save_chain}")


def _best_of(asked: Search, report: "Progress", answers: "list[Found]") -> "tuple[str, Scale]":
    """Return the program in words, and the best on a number of nodes or ranks; add the answer to others."""
    from umm.space import SearchInterruptedError
    from umm.space import search as find
    from umm.space.scaling import Scale, devices_of

    (space,), machine = asked.spaces(), asked.hardware
    without: tuple[str, ...] = ()
    try:
        result = find(space, machine, memory=asked.budget, progress=report, otherwise=asked.otherwise)
    except SearchInterruptedError as early:
        if not early.found.top:
            raise
        result, without = early.found, ("proof",)
    answers.append(result)
    best, ranks = result.top[0], result.points.ranks
    words = result.points.words.rpartition(";")[0] or result.points.words.rpartition(", ")[0]
    used = devices_of(machine, ranks)
    seconds, nbytes = best.makespan_s, best.memory_bytes
    return words, Scale(ranks, used, best.words, seconds, nbytes, result.gap, without=without)


def shown_best(
    output: Output,
    result: "Found",
    noise: "Noise | None",
    say: Callable[[str], None],
    ranked: bool,
    silent: bool,
) -> "Choice":
    """Print the result of a search unless it is silent, at once or not at all, and return the best."""
    from umm.cli.printed.leaderboard import found_record, print_front, print_ranking, robust_record
    from umm.executor import executor
    from umm.space.search.robustness import robust

    steady = None
    if noise is not None:
        say(f"simulating {noise.draws} draws of the best")
        steady = robust(result, noise, executor("sim"))
    if output.as_json and not silent:
        record = found_record(result)
        output.json("search", record if steady is None else robust_record(record, result, steady))
    elif not silent:
        console = output.console()
        with console.capture() as printed:
            if not ranked:
                say("time against memory")
            (print_ranking if ranked else print_front)(console, result)
            if steady is not None:
                console.print(str(steady))
        console.file.write(printed.get())
    return result.top[0] if steady is None else steady.choice


def standing(best_s: float, least_s: float) -> str:
    """Return where a search stands: the best so far, and how far it can be from the best if a bound is known.

    >>> standing(2.763e-3, 2.6e-3)
    'searching: best 2.76 ms, at most 5.9 % from the best'
    >>> standing(2.763e-3, 0.0)
    'searching: best 2.76 ms'
    """
    from umm.units import format_seconds

    gap = max(0.0, 1 - least_s / best_s)
    within = f", at most {100 * gap:.1f} % from the best" if least_s > 0 else ""
    return f"searching: best {format_seconds(best_s)}{within}"
