"""``umm peers``: the universal algorithm beside what people use today, and whether to leave what one has."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from umm.cli.flags.chain import CHAIN, LAYERS, chain_options, check_layers, with_model
from umm.cli.flags.options import (
    NOISE,
    PROBLEM,
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
from umm.cli.printed.output import Output
from umm.errors import EndedEarlyError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from umm.machines import Machine
    from umm.program import Outline
    from umm.space.peers.contender import Row, Scheme, Stack
    from umm.space.peers.multiplies import Way
    from umm.space.peers.table import Peers
    from umm.space.scaling import Scale
    from umm.space.search.walk import Progress


@click.command()
@problem_options(machine="h100-8", many_ranks=True)
@scaling_options()
@chain_options(layouts=False, layers=True)
@option(
    "--memory",
    default="device",
    show_default="90 % of the device",
    metavar="BUDGET",
    help="Memory limit of a rank: 16GiB, a multiple of the unreplicated share such as 2x, or none: all of "
    "the device.",
)
@option("--refused", is_flag=True, help="Also list algorithms that do not apply, and what would work.")
@option("--crossover/--no-crossover", default=None,
        help="Look for other sizes at which the verdict changes.  [default: for a multiply]")  # fmt: skip
@noise_options()
@option(
    "--routings",
    type=click.IntRange(2, 1000),
    metavar="COUNT",
    help="Add p50 and p95 over this many routings of a mixture of experts, with consecutive seeds.",
)
@time_limit()
@option("--html", type=WRITE, help="Write a standalone page with all timelines side by side.")
@output_options()
@click.pass_context
def peers(
    ctx: click.Context,
    /,
    memory: str,
    refused: bool,
    crossover: bool | None,
    routings: int | None,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    no_color: bool,
    **flags: Any,
) -> None:
    """Compare the universal algorithm with other algorithms and with training systems.

    Every row starts with A and B in --a and --b (or --given) and ends with C in --c. Universal: in place,
    with the best stationary matrix and options. Redistribute: the same after moving operands to the best
    layouts, which a search finds. Then every other algorithm with its best options, including moves in and
    out. The verdict says what to do, and at which m that changes.

    With --chain: the best layouts of all its tensors, and the layouts of Megatron, sequence parallel, FSDP,
    data and data × tensor parallel. Every row assumes that inputs start in its layouts; --given X=row,W1=col
    adds the moves. With --layers time, bytes and memory are of all layers.

    Ctrl-C and --seconds print the rows found so far, and name the missing ones.
    """
    from umm.cli.flags.asked import asked_machine, asked_problem
    from umm.cli.flags.chain import asked_outline
    from umm.cli.printed.peers_table import peers_record, print_peers, print_spreads
    from umm.cli.printed.save import check_targets
    from umm.executor import executor
    from umm.space.peers.contender import over_routings
    from umm.space.peers.peers import peers as compare
    from umm.space.peers.table import Peers
    from umm.space.scaling import NO_ROOM, Scale, devices_of
    from umm.space.search.robustness import spread

    output = Output(as_json, quiet, no_color)
    flags = with_model(ctx, flags, output)
    noise = asked_noise(flags)
    check_targets(html)
    scales = asked_scales(flags)
    check_layers(ctx, flags)
    if flags["layers"] is not None:
        given_too = given(ctx, ("crossover", "routings", *NOISE))
        if given_too:
            raise InputError(f"{', '.join(given_too)} is for one layer; leave out --layers")
    if scales:
        refuse_of_one(ctx, ("refused", "crossover", "routings", *NOISE))

        def best_of(of: dict[str, Any], on: "Machine", report: "Progress") -> "tuple[str, Scale]":
            program = asked_outline(ctx, of) or asked_problem(of)
            budget = None if memory == "none" else memory
            without: Sequence[str] = ()
            try:
                found = compare(
                    program, on, ranks=of["ranks"], memory=budget, crossover=False, stack=_stack(of)
                )
            except EndedEarlyError as early:
                if not isinstance(early.found, Peers):
                    raise
                found, without = early.found, early.found.missing
            best = found.best
            if program.kind == "problem":
                words = program.facts("")[0][1].rstrip(", ")
                chosen = ", ".join([best.algorithm, *(f"{x} {text}" for x, text in best.layouts.items())])
            else:
                layers = "" if flags["layers"] is None else f"{flags['layers']} layers of "
                words = layers + program.in_words
                named = cast("Scheme", best.contender).named(_schemes(found))
                chosen = ", ".join(x for x in (named, best.how) if x)
            chosen += "" if best.fits else NO_ROOM
            used = devices_of(on, found.ranks)
            seconds, nbytes = best.makespan_s, best.memory_bytes
            return words, Scale(found.ranks, used, chosen, seconds, nbytes, without=without)

        show_scales(output, "peers", compare_scales(output, flags, scales, best_of), html, {})
        return
    outline = asked_outline(ctx, flags)
    if routings is not None and (noise is not None or outline is None or not outline.has_experts):
        raise InputError("--routings needs a mixture of experts, without --jitter and --straggler")
    with output.ending(Peers) as answer, output.reporting() as report:
        answer.append(
            compare(
                outline or asked_problem(flags),
                asked_machine(flags),
                ranks=flags["ranks"],
                memory=None if memory == "none" else memory,
                crossover=outline is None if crossover is None else crossover,
                at=_at(ctx, flags),
                tokens=flags["tokens"] or 0,
                stack=_stack(flags),
                progress=report,
            )
        )
    found, spreads = answer[0], None
    try:
        if noise is not None and not output.early:
            simulator = executor("sim")
            with output.tracking("draws of each row") as track:
                made = (found.rows[i].contender for i in track(range(len(found.rows))))
                spreads = [spread(x.schedule(found.start, found.machine), noise, simulator) for x in made]
        if routings is not None and not output.early:
            first = flags["routing_seed"]
            starts = [asked_outline(ctx, flags | {"routing_seed": first + x}) for x in range(routings)]
            spreads = over_routings(found.rows, [x for x in starts if x is not None], found.machine)
    except KeyboardInterrupt:  # the table is shown without them
        output.early.append(True)
    if as_json:
        record = peers_record(found, spreads)
        for row, of in zip(found.rows, record["rows"], strict=True):
            of["command"] = _as_simulate(ctx, found, row)
        output.json("peers", record)
    else:
        print_peers(output.console(), found, refused)
        if spreads is not None:
            over = noise if routings is None else f"{routings} routings"
            print_spreads(output.console(), found, spreads, over)
        output.console().print(f"To repeat {found.best.algorithm}:")
        again = _as_simulate(ctx, found, found.best)
        output.console().print(again, highlight=False, markup=False, soft_wrap=True)
    if html is not None:
        from umm.figures.report import write_peers

        write_peers(found, html)
        output.note(f"wrote {html}; it opens in any browser, offline")
    output.end()


def _as_simulate(ctx: click.Context, found: "Peers", row: "Row") -> str:
    """Return the command that simulates a row."""
    if found.size == "m":
        asked = found.asked or found.start
        typed, own = cast("Way", row.contender).typed(found.start, asked), {"a", "b", "c", "given"}
    else:
        typed, own = cast("Scheme", row.contender).typed(_schemes(found)), set()
    words = ["umm", "simulate"]
    for param in ctx.command.params:
        name, value = param.name or "", ctx.params.get(param.name or "")
        of_program = {*CHAIN, *LAYERS, *PROBLEM} - own
        if name not in of_program or ctx.get_parameter_source(name) is ParameterSource.DEFAULT:
            continue
        if name == "recompute" and row.model is not None:
            value = row.model.recompute
        for one in value if isinstance(value, tuple) else (value,):
            words += [param.opts[0]] if one is True else [param.opts[0], str(one)]
    return shlex.join(words + typed)


def _schemes(found: "Peers") -> "list[Scheme]":
    """Return the schemes of a table's rows, of a chain."""
    return [cast("Scheme", row.contender) for row in found.rows]


def _stack(flags: dict[str, Any]) -> "Stack | None":
    """Return the layers that the flags describe; None if they describe no number of them.

    Raises:
        InputError: if there is no chain.
    """
    from umm.program.models import find_model
    from umm.space.peers.contender import Stack

    if flags["layers"] is None:
        return None
    if flags["chain"] is None:
        raise InputError("layers need a chain, such as --chain transformer-layer")
    vocab = find_model(flags["model"]).vocab if flags["model"] else 0
    return Stack(flags["layers"], flags["recompute"], flags["optimizer"], vocab)


def _at(ctx: click.Context, flags: dict[str, Any]) -> "Callable[[int], Outline] | None":
    """Return what gives a preset with another number of tokens; None of anything else."""
    from umm.cli.flags.chain import asked_outline
    from umm.program.presets import PRESETS

    if flags["chain"] not in PRESETS:
        return None
    return lambda tokens: cast("Outline", asked_outline(ctx, flags | {"tokens": tokens}))
