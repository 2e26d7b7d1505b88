"""``umm search``: the best layouts for a problem and a machine, proven by bounds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.chain import BEST, chain_options, chain_search_options, with_model
from umm.cli.flags.options import (
    NOISE,
    WRITE,
    asked_noise,
    given,
    noise_options,
    option,
    output_options,
    problem_options,
    time_limit,
)
from umm.cli.flags.scaling import (
    asked_scales,
    compare_scales,
    refuse_of_one,
    scaling_options,
    show_scales,
)
from umm.cli.flags.schedule import SCHEDULE, asked_axes, axis_options
from umm.cli.printed.output import Output
from umm.errors import InputError

if TYPE_CHECKING:
    from umm.machines import Machine
    from umm.space import Choice, Found, Space
    from umm.space.scaling import Scale
    from umm.space.search.noise import Noise
    from umm.space.search.walk import Progress

PARTITIONS = ("row", "col", "2d")
TOP = 10
EMITTED = ("torch", "jax", "umm")
OTHERWISE = ("gathered", "chunks")
"""Movements that each multiply of a chain may have too, where nothing is said and the best is not proven."""


@click.command()
@problem_options(machine="h100-8", layouts=False, many_m=True, many_ranks=True)
@scaling_options()
@chain_options(layouts=False)
@chain_search_options(layers=True)
@option(
    "--save-chain", type=WRITE, metavar="FILE.toml",
    help="Write the chain with the best layouts, called best, for --chain of other commands.",
)  # fmt: skip
@axis_options(searched=True)
@option("--grids", type=click.Choice(["all", "square"]), default="all", show_default=True,
        help="Process grids to try for 2d and cyclic: every one, or the most square.")  # fmt: skip
@option(
    "--balanced",
    is_flag=True,
    help="Also try balanced row, col and 2d, whose tiles differ by one row or column at most.",
)
@option("--interleaved", is_flag=True, help="Also try interleaved replicas, on every c-th rank.")
@option(
    "--memory",
    default="device",
    show_default="90 % of the device",
    metavar="BUDGET",
    help="Memory limit of a rank: 16GiB, a multiple of the unreplicated share such as 2x, or none: all of "
    "the device.",
)
@option("--top", type=int, help="List this many of the fastest instead of the front of time and memory.")
@noise_options()
@option("--emit", type=click.Choice(EMITTED), help="Print only a program that sets up the winner.")
@option("--html", type=WRITE, help="Write a standalone page: time against memory of the whole space.")
@time_limit()
@output_options()
@click.pass_context
def search(
    ctx: click.Context,
    /,
    memory: str,
    top: int | None,
    emit: str | None,
    save_chain: Path | None,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    no_color: bool,
    **flags: Any,
) -> None:
    """Find the best layouts for a problem and a machine: the front of time against memory, with proof.

    Without further flags: row, col and 2d on every process grid with every replication factor for A, B and C,
    every stationary matrix, whole tiles and slices, every way to end a replicated C. Points are priced by a
    lower bound and simulated from the lowest up, until no bound left can beat what was found. A comma list
    makes an axis: --a row,col@2 --prefetch 1,2. Ctrl-C prints the best found so far, marked as not proven.

    With --chain the best layouts of all its tensors together. A gradient shares its tensor's layout, and a
    map's output its input's. Every multiply keeps its largest matrix in place, or with --stationary best the
    fastest one. With several --movement or --prefetch each multiply has its own; of movements within a node
    without the flag too, where the best with one for all is not proven and others make it faster.

    Several sizes (-m 1K,2K,4K) or settings (--set fabric.bandwidth=x0.5,x1) have one answer each; several
    --nodes or --ranks one table: time, speed-up, efficiency, device time and, with --price, dollars.

    --emit prints the winner as a program: DTensor or torch.distributed, JAX shardings and jit, or umm.
    """
    from umm.cli.flags.asked import asked_machines
    from umm.cli.printed.leaderboard import (
        answers_record,
        print_answers,
    )
    from umm.cli.printed.save import check_targets, program_of
    from umm.machines.settings import split_settings
    from umm.space import SearchInterruptedError
    from umm.space import search as find
    from umm.space.scaling import Scale, devices_of

    output = Output(as_json, quiet, no_color)
    flags = with_model(ctx, flags, output)
    noise = asked_noise(flags)
    chain = flags["chain"] is not None
    otherwise = OTHERWISE if chain and not given(ctx, ["movement"]) else ()
    if emit and (as_json or chain):
        raise InputError(
            f"--emit prints a program for one multiply; leave out --{'chain' if chain else 'json'}"
        )
    if html is not None and (emit or chain):
        raise InputError(
            f"--html draws the space of one multiply; leave out --{'chain' if chain else 'emit'}"
        )
    check_targets(html, save_chain)
    scales = asked_scales(flags)
    if scales and not _many(flags):
        refuse_of_one(ctx, ("emit", "save_chain", "top", *NOISE))
        budget, answers = None if memory == "none" else memory, []

        def best_of(of: dict[str, Any], machine: "Machine", report: "Progress") -> "tuple[str, Scale]":
            (space,) = asked_spaces(ctx, of)
            without: tuple[str, ...] = ()
            try:
                found = find(space, machine, memory=budget, progress=report, otherwise=otherwise)
            except SearchInterruptedError as early:
                if not early.found.top:
                    raise
                found, without = early.found, ("proof",)
            answers.append(found)
            best, ranks = found.top[0], found.points.ranks
            words = found.points.words.rpartition(";")[0] or found.points.words.rpartition(", ")[0]
            used = devices_of(machine, ranks)
            seconds, nbytes = best.makespan_s, best.memory_bytes
            return words, Scale(ranks, used, best.words, seconds, nbytes, found.gap, without=without)

        scaling = compare_scales(output, flags, scales, best_of)
        more = answers_record(answers) if as_json and not chain else {}
        show_scales(output, "search", scaling, html, more)
        return
    spaces = asked_spaces(ctx, flags)
    if save_chain is not None and not chain:
        raise InputError("--save-chain needs a chain, such as --chain mlp")
    machines = asked_machines(flags["machine"], flags)
    several = len(spaces) * len(machines) > 1
    if several and noise is not None:
        raise InputError("--jitter and --straggler are for one answer; give one -m and one --set")
    if several and (emit or html is not None or top is not None or chain):
        which = "--emit" if emit else "--html" if html is not None else "--chain" if chain else "--top"
        raise InputError(f"several sizes or settings have one answer each; leave out {which}")
    asked = [(space, machine) for machine in machines for space in spaces]
    answers = []
    with output.progress() as bar:
        task = bar.add_task("searching", total=None)

        def say(what: str) -> None:
            bar.update(task, description=what)

        try:
            for where, machine in asked:
                found = find(
                    where,
                    machine,
                    memory=None if memory == "none" else memory,
                    top=TOP if top is None else top,
                    progress=lambda settled, points: bar.update(task, completed=settled, total=points),
                    standing=lambda best, least: say(standing(best, least)),
                    otherwise=otherwise,
                )
                answers.append(found)
        except SearchInterruptedError as stopped:
            found = stopped.found
            if answers and as_json:
                output.json("search", answers_record(answers))
            elif answers:
                print_answers(output.console(), answers)
            elif not found.top or emit:
                raise
            else:
                shown_best(output, found, None, say, True, False)
            raise click.Abort from None
        if several and as_json:
            output.json("search", answers_record(answers))
        elif several:
            print_answers(output.console(), answers)
        else:
            try:
                best = shown_best(output, found, noise, say, top is not None, bool(emit))
            except KeyboardInterrupt:  # amid what follows a search: what is found is shown without it
                if emit:
                    raise
                shown_best(output, replace(found, whole=False), None, say, True, False)
                raise click.Abort from None
        if emit:
            settings = [f"{key}={value}" for key, value in split_settings(found.machine)[1].items()]
            named_machine = " ".join([flags["machine"], *settings])
            click.echo(program_of(best, machine, named_machine, emit), nl=False)
        if html is not None:
            from umm.figures.pareto import write_front

            write_front(found, html)
            output.note(f"wrote {html}; it opens in any browser, offline")
        if save_chain is not None:
            from umm.program import save_chain as write_chain

            write_chain(found.points.outline.with_layouts(BEST, best.layouts), save_chain)
            output.note(f"wrote the chain to {save_chain}")


def shown_best(
    output: Output,
    found: "Found",
    noise: "Noise | None",
    say: Callable[[str], None],
    ranked: bool,
    silent: bool,
) -> "Choice":
    """Print what a search found unless it is silent, at once or not at all, and return the best.

    Args:
        output: Where to.
        found: What was found.
        noise: What varies; the best is then the one with the least p95.
        say: Shows what is computed.
        ranked: Whether the fastest are printed in place of the front of time and memory.
        silent: Whether nothing is printed.
    """
    from umm.cli.printed.leaderboard import found_record, print_front, print_ranking, robust_record
    from umm.executor import executor
    from umm.space.search.robustness import robust

    steady = None
    if noise is not None:
        say(f"simulating {noise.draws} draws of the best")
        steady = robust(found, noise, executor("sim"))
    if output.as_json and not silent:
        record = found_record(found)
        output.json("search", record if steady is None else robust_record(record, found, steady))
    elif not silent:
        console = output.console()
        with console.capture() as printed:
            if not ranked:
                say("time against memory")
            (print_ranking if ranked else print_front)(console, found)
            if steady is not None:
                console.print(str(steady))
        console.file.write(printed.get())
    return found.top[0] if steady is None else steady.choice


def standing(best_s: float, least_s: float) -> str:
    """Return where a search stands: the best so far, and how far it can be from the best there is.

    >>> standing(2.763e-3, 2.6e-3)
    'searching: best 2.76 ms, at most 5.9 % from the best'
    """
    from umm.units import format_seconds

    gap = max(0.0, 1 - least_s / best_s)
    return f"searching: best {format_seconds(best_s)}, at most {100 * gap:.1f} % from the best"


def _many(flags: dict[str, Any]) -> bool:
    """Whether several sizes or settings are asked for, which have one answer each."""
    return len(flags["m"] or []) > 1 or any("," in text for text in flags["changes"])


def asked_spaces(ctx: click.Context, flags: dict[str, Any]) -> "list[Space]":
    """Return the spaces that the flags describe: one for each m, or that of a chain.

    Raises:
        InputError: for an axis of one multiply in the search of a chain.
    """
    from umm.cli.flags.asked import dimensions
    from umm.cli.flags.chain import asked_chain_space, asked_outline, refuse_layers
    from umm.space import Space

    outline = asked_outline(ctx, flags)
    if outline is not None:
        typed = given(ctx, [x for x in SCHEDULE if x not in ("stationary", "movement", "prefetch")])
        if typed:
            raise InputError(f"{', '.join(typed)} is not an axis of a chain's search; leave it out")
        stationary = flags["stationary"] if given(ctx, ["stationary"]) else None
        axes = {x: asked_axes(flags)[x] for x in ("movement", "prefetch")}
        return [asked_chain_space(outline, flags["ranks"], flags, stationary=stationary, **axes)]
    refuse_layers(flags)
    sizes = dimensions(flags)
    rows = sizes.pop("m")
    named = {name: flags[name] for name in ("dtype", "c_dtype", "given")}
    space = Space(
        rows[0],
        **sizes,
        **named,
        ranks=flags["ranks"],
        **asked_axes(flags),
        grids=flags["grids"],
        partitions=PARTITIONS + (tuple(f"{x}:balanced" for x in PARTITIONS) if flags["balanced"] else ()),
        orders=("blocked", "interleaved") if flags["interleaved"] else ("blocked",),
    )
    return [space.changed(m=m) for m in rows]
