"""Answers of the commands in :mod:`umm.cli.commands.search`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from umm.cli.commands.search import Search
from umm.cli.flags.chain import BEST
from umm.cli.flags.declared import names_of
from umm.cli.flags.options import Noisy
from umm.cli.flags.scaling import compare_scales, show_scales
from umm.cli.flags.schedule import SCHEDULE
from umm.cli.printed.leaderboard import answers_record, found_record, print_answers, print_found
from umm.cli.printed.output import Output
from umm.errors import InfeasibleError, InputError
from umm.executor import executor
from umm.machines import Machine
from umm.space import Choice, Found, SearchInterruptedError, Space
from umm.space import search as find
from umm.space.scaling import Scale
from umm.space.search.noise import Noise
from umm.space.search.robustness import robust
from umm.space.search.walk import Progress
from umm.units import format_seconds, percent

TOP = 10
PARTITIONS = ("row", "col", "2d")
OTHERWISE = ("gathered", "chunks")
"""Movements that each multiply of a chain may have too, where nothing is said and the best is not proven."""

EMITTED = ("torch", "jax", "torchtitan", "megatron", "nccl")
"""Frameworks that a chain is printed for; one multiply is printed for torch, JAX and umm."""


def search(asked: Search) -> None:
    """Answer ``umm search``."""
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
    spaces = _spaces(asked)
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
                    result = _within_limit(
                        asked, space, machine, memory=asked.budget, top=TOP if top is None else top,
                        progress=lambda settled, points: bar.update(task, completed=settled, total=points),
                        standing=lambda best, least: say(standing(best, least)),
                        otherwise=_otherwise(asked),
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


def keep_best(asked: Search, result: Found, best: Choice, machine: Machine) -> None:
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


def _best_of(asked: Search, report: Progress, answers: list[Found]) -> tuple[str, Scale]:
    """Return the program in words, and the best on a number of nodes or ranks; add the answer to others."""
    (space,), machine = _spaces(asked), asked.hardware
    without: tuple[str, ...] = ()
    try:
        result = find(space, machine, memory=asked.budget, progress=report, otherwise=_otherwise(asked))
    except SearchInterruptedError as early:
        if not early.found.top:
            raise
        result, without = early.found, ("proof",)
    answers.append(result)
    best, ranks = result.top[0], result.points.ranks
    words = result.points.words.rpartition(";")[0] or result.points.words.rpartition(", ")[0]
    figures = best.words, best.makespan_s, best.memory_bytes
    return words, Scale.of(machine, ranks, *figures, gap=result.gap, without=without)


def shown_best(
    output: Output, result: Found, noise: Noise | None, say: Callable[[str], None], ranked: bool, silent: bool
) -> Choice:
    """Print the result of a search unless it is silent, at once or not at all, and return the best."""
    steady = None
    if noise is not None:
        say(f"simulating {noise.draws} draws of the best")
        steady = robust(result, noise, executor("sim"))
    if output.as_json and not silent:
        output.json("search", found_record(result, steady))
    elif not silent:
        console = output.console()
        with console.capture() as printed:
            if not ranked:
                say("time against memory")
            print_found(console, result, ranked)
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
    gap = max(0.0, 1 - least_s / best_s)
    within = f", at most {percent(gap, 1)} from the best" if least_s > 0 else ""
    return f"searching: best {format_seconds(best_s)}{within}"


def _spaces(asked: Search) -> list[Space]:
    """Return the spaces: one for each m, or that of a chain.

    InputError for an axis of one multiply in the search of a chain.
    """
    outline = asked.outline()
    if outline is not None:
        others = [x for x in SCHEDULE if x not in ("stationary", "movement", "prefetch")]
        others += ["grids", "balanced", "interleaved"]
        asked.refuse(others, "{} is not an axis of a chain's search; leave it out")
        stationary = asked.axes["stationary"] if asked.typed(["stationary"]) else None
        axes = {x: asked.axes_asked[x] for x in ("movement", "prefetch")}
        return [asked.chain_space(outline, asked.ranks, stationary=stationary, **axes)]
    asked.refuse_layers()
    sizes = asked.dimensions
    rows = sizes.pop("m")
    partitions = PARTITIONS + (tuple(f"{x}:balanced" for x in PARTITIONS) if asked.balanced else ())
    orders = ("blocked", "interleaved") if asked.interleaved else ("blocked",)
    among: dict[str, Any] = {"grids": asked.grids, "partitions": partitions, "orders": orders}
    space = Space(rows[0], **sizes, **asked.types, ranks=asked.ranks, **asked.axes_asked, **among)
    return [space.changed(m=m) for m in rows]


def _within_limit(asked: Search, space: Space, *how: Any, **more: Any) -> Found:
    """Return the result of a search; where a model's layers cannot fit a limit, of one layer.

    A typed limit counts all typed layers, but those that a model implies only if they fit.
    """
    try:
        return find(space, *how, **more)
    except InfeasibleError as error:
        if space.layers == 1 or asked.typed(["layers"]) or not asked.typed(["memory"]):
            raise
        asked.output.note(f"{space.layers} layers: {error}; --memory is taken for one, as with --layers 1")
        return find(space.changed(layers=1), *how, **more)


def _otherwise(asked: Search) -> tuple[str, ...]:
    """Return movements that each multiply of a chain may have too."""
    return OTHERWISE if asked.chain is not None and not asked.typed(["movement"]) else ()
