"""``umm peers``: the universal algorithm beside current practice, and whether to change."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from umm.cli.flags.asked import PROBLEM
from umm.cli.flags.chain import CHAIN, LAYERS, Layered
from umm.cli.flags.declared import command, flag, names_of
from umm.cli.flags.framework import OfFramework
from umm.cli.flags.options import Answering, Budgeted, Limited, Noisy, OfProblem, Paged
from umm.cli.flags.scaling import Scaled, compare_scales, show_scales
from umm.errors import EndedEarlyError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from umm.program import Outline
    from umm.program.problem import Problem
    from umm.space.peers.contender import Row, Scheme, Stack
    from umm.space.peers.multiplies import Way
    from umm.space.peers.table import Peers
    from umm.space.scaling import Scale
    from umm.space.search.robustness import Spread
    from umm.space.search.walk import Progress


class Peer(OfFramework, Scaled, Layered, OfProblem, Budgeted, Noisy, Limited, Paged, Answering):
    """One problem or chain, and its competitors."""

    refused: bool = flag(
        is_flag=True, usual=True, help="Also list algorithms that do not apply, and what would work.",
    )  # fmt: skip
    crossover: bool | None = flag(
        "--crossover/--no-crossover", default=None, usual=True,
        help="Look for other sizes at which the verdict changes.  [default: for a multiply]",
    )  # fmt: skip
    routings: int | None = flag(
        type=click.IntRange(2, 1000), metavar="COUNT",
        help="Add p50 and p95 over this many routings of a mixture of experts, with consecutive seeds.",
    )  # fmt: skip

    @property
    def program(self) -> "Outline | Problem":
        """The chain, not laid out, or the multiply."""
        return self.outline() or self.problem

    @property
    def stack(self) -> "Stack | None":
        """The layers; None if no number of them is asked for; InputError if there is no chain."""
        from umm.program.models import find_model
        from umm.space.peers.contender import Stack

        if self.layers is None:
            return None
        if self.chain is None:
            raise InputError("layers need a chain, such as --chain transformer-layer")
        vocab = find_model(self.model).vocab if self.model else 0
        return Stack(self.layers, self.recompute, self.optimizer, vocab)

    @property
    def at(self) -> "Callable[[int], Outline] | None":
        """Returns a preset with another number of tokens; None of anything else."""
        from umm.program.presets import PRESETS

        if self.chain not in PRESETS:
            return None
        return lambda tokens: cast("Outline", replace(self, sizes={**self.sizes, "tokens": tokens}).outline())


@command(Peer, machine="h100-8")
def peers(asked: Peer) -> None:
    """Compare the universal algorithm with other algorithms and with training systems.

    Every row starts with A and B in --a and --b (or --given) and ends with C in --c. Universal: in place,
    with the best stationary matrix and options. Redistribute: the same after moving operands to the best
    layouts, which a search finds. Then every other algorithm with its best options, including moves in and
    out. The verdict says what to do, and at which m that changes.

    With --chain: the best layouts of all its tensors, and the layouts of Megatron, sequence parallel, FSDP,
    data and data × tensor parallel. Every row assumes that inputs start in its layouts; --given X=row,W1=col
    adds the moves. Time, bytes and memory are of all --layers, those of a --model if not given.

    With --step: published recipes of whole training steps, with the flags of umm step.

    Ctrl-C and --seconds print the rows found so far, and name the missing ones.
    """
    from umm.cli.printed.peers_table import peers_record, print_peers, row_line
    from umm.space.peers.peers import peers as compare
    from umm.space.peers.table import Peers

    of_one = ("crossover", "routings", *names_of(Noisy))
    asked = asked.with_model(of_one)
    output, noise, routings = asked.output, asked.noise, asked.routings
    scales = asked.scales()
    asked.check_layers()
    if asked.layers is not None:
        asked.refuse(of_one, "{} is for one layer; leave out --layers")
    if scales:
        asked.refuse_of_one(("refused", *of_one))
        show_scales(asked, compare_scales(asked, scales, _best_of), {})
        return
    outline = asked.outline()
    if routings is not None and (noise is not None or outline is None or not outline.has_experts):
        raise InputError("--routings needs a mixture of experts, without --jitter and --straggler")
    with output.ending(Peers) as answer, output.reporting() as report:
        answer.append(
            compare(
                outline or asked.problem,
                asked.hardware,
                ranks=asked.ranks,
                memory=asked.budget,
                crossover=outline is None if asked.crossover is None else asked.crossover,
                at=asked.at,
                tokens=asked.sizes["tokens"] or 0,
                stack=asked.stack,
                progress=report,
                ended=lambda row: output.by_the_way(row_line(row)),
            )
        )
    (result,) = answer
    spreads = _spreads(asked, result)
    over = noise if routings is None else f"{routings} routings"

    asked.answer(
        lambda: peers_record(result, spreads, [_as_simulate(asked.ctx, result, x) for x in result.rows]),
        lambda console: print_peers(
            console, result, asked.refused, _as_simulate(asked.ctx, result, result.best), spreads, over
        ),
        [result],
    )


def _spreads(asked: Peer, result: "Peers") -> "Sequence[Spread] | None":
    """Return the median and p95 of each row; None if nothing varies, or it was ended early."""
    from umm.executor import executor
    from umm.space.peers.contender import over_routings
    from umm.space.search.robustness import spread

    output, noise = asked.output, asked.noise
    try:
        if noise is not None and not output.early:
            simulator = executor("sim")
            with output.tracking("draws of each row") as track:
                made = (result.rows[i].contender for i in track(range(len(result.rows))))
                return [spread(x.schedule(result.start, result.machine), noise, simulator) for x in made]
        if asked.routings is not None and not output.early:
            seeds = range(asked.routing_seed, asked.routing_seed + asked.routings)
            starts = [replace(asked, routing_seed=seed).outline() for seed in seeds]
            return over_routings(result.rows, [x for x in starts if x is not None], result.machine)
    except KeyboardInterrupt:  # the table is shown without them
        output.early.append(True)
    return None


def _best_of(asked: Peer, report: "Progress") -> "tuple[str, Scale]":
    """Return the program in words, and the best row on a number of nodes or ranks."""
    from umm.space.peers.peers import peers as compare
    from umm.space.peers.table import Peers
    from umm.space.scaling import NO_ROOM, Scale, devices_of

    program, machine, without = asked.program, asked.hardware, cast("Sequence[str]", ())
    how: dict[str, Any] = {"ranks": asked.ranks, "memory": asked.budget, "stack": asked.stack}
    try:
        result = compare(program, machine, crossover=None, **how)
    except EndedEarlyError as early:
        if not isinstance(early.found, Peers):
            raise
        result, without = early.found, early.found.missing
    best = result.best
    if program.kind == "problem":
        words = program.facts("")[0][1].rstrip(", ")
        chosen = ", ".join([best.algorithm, *(f"{x} {text}" for x, text in best.layouts.items())])
    else:
        layers = "" if asked.layers is None else f"{asked.layers} layers of "
        words = layers + program.in_words
        named = cast("Scheme", best.contender).named(_schemes(result))
        chosen = ", ".join(x for x in (named, best.how) if x)
    chosen += "" if best.fits else NO_ROOM
    used = devices_of(machine, result.ranks)
    return words, Scale(result.ranks, used, chosen, best.makespan_s, best.memory_bytes, without=without)


def _as_simulate(ctx: click.Context, result: "Peers", row: "Row") -> str:
    """Return the command that simulates a row."""
    if result.size == "m":
        start = result.asked or result.start
        typed, replaced = cast("Way", row.contender).typed(result.start, start), {"a", "b", "c", "given"}
    else:
        typed, replaced = cast("Scheme", row.contender).typed(_schemes(result)), set()
    words = ["umm", "simulate"]
    for param in ctx.command.params:
        name, value = param.name or "", ctx.params.get(param.name or "")
        of_program = {*CHAIN, *LAYERS, *PROBLEM, "module", "einsum", "letters"} - replaced
        of_model = name == "layers" and row.model is not None
        usual = ctx.get_parameter_source(name) is ParameterSource.DEFAULT and not of_model
        if name not in of_program or usual:
            continue
        if of_model and row.model is not None:
            value = row.model.layers
        if name == "recompute" and row.model is not None:
            value = row.model.recompute
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(param, click.Argument):
                words.append(str(one))
                continue
            switch = param.opts if one is True else param.secondary_opts
            words += [switch[0]] if isinstance(one, bool) else [param.opts[0], str(one)]
    return shlex.join(words + typed)


def _schemes(result: "Peers") -> "list[Scheme]":
    """Return the schemes of a table's rows, of a chain."""
    return [cast("Scheme", row.contender) for row in result.rows]
